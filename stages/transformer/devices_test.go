package transformer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/stagetest"
	"github.com/weir-ml/weir/stages/transformer"
)

// newModelOn returns a model on several devices that is closed when the test ends.
func newModelOn(t testing.TB, cfg transformer.Config, devices ...[]kernels.Compute) *transformer.Model {
	t.Helper()
	m, err := transformer.NewOn(cfg, devices...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// TestDevices places the stages of a model on devices: each has the parameters that its stages
// use, each name once, and the initial weights are the same as on one device.
func TestDevices(t *testing.T) {
	a, b, alone := newHost(t), newHost(t), newHost(t)
	on := map[kernels.Compute]string{a: "a", b: "b"}
	one := newModel(t, alone, tiny, 4)
	cfgUntied := tiny
	cfgUntied.Untied = true
	for _, test := range []struct {
		name    string
		cfg     transformer.Config
		devices [][]kernels.Compute
		table   string // devices that have the embedding's table
		block1  string
		norm    string
		uses    map[string]int // of the table, by device
	}{
		{"each half", tiny, [][]kernels.Compute{{a, a, b, b}}, "ab", "b", "b", map[string]int{"a": 1, "b": 1}},
		{"a wave", tiny, [][]kernels.Compute{{a, b, b, a}}, "a", "b", "a", map[string]int{"a": 2}},
		{"untied", cfgUntied, [][]kernels.Compute{{a, a, b, b}}, "a", "b", "b", map[string]int{"a": 1}},
		{"identities", tiny, [][]kernels.Compute{{a, b, a, b, a, b, a}}, "a", "a", "a", map[string]int{"a": 2}},
		{"two copies", tiny, [][]kernels.Compute{{a, b}, {b, a}}, "ab", "ba", "ba", map[string]int{"a": 2, "b": 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newModelOn(t, test.cfg, test.devices...)
			places := map[string]string{}
			accumulators := map[string]map[kernels.Buffer]bool{"a": {}, "b": {}}
			for i, p := range m.Parameters() {
				if !test.cfg.Untied {
					require.Equal(t, one.Parameters()[i].Name, p.Name, "the order is the same as on one device")
				}
				for c := range p.All() {
					places[p.Name] += on[c.Device]
					require.Equal(t, memory.Resident, c.Device.Class(c.Weight))
					for _, b := range []kernels.Buffer{c.Grad, c.M, c.V} {
						require.Equal(t, make([]float32, c.Weight.N), read(t, c.Device, b))
					}
					if i := slices.IndexFunc(one.Parameters(), func(q *transformer.Parameter) bool { return q.Name == p.Name }); i >= 0 {
						require.Equal(t, read(t, alone, one.Parameters()[i].Weight), read(t, c.Device, c.Weight), p.Name)
					}
				}
			}
			require.Equal(t, test.table, places["embedding.weight"])
			require.Equal(t, test.block1, places["block1.mlp.up.weight"])
			require.Equal(t, test.norm, places["norm.weight"])

			count := map[string]int{}
			flat := slices.Concat(test.devices...)
			require.Len(t, m.Stages(), len(flat))
			for s, stage := range m.Stages() {
				for _, param := range stages.Params(stage) {
					dev := on[flat[s]]
					require.False(t, accumulators[dev][param.Grad], "every use has an accumulator of its own")
					accumulators[dev][param.Grad] = true
					if param.Name == "embedding.weight" {
						count[dev]++
					}
				}
			}
			require.Equal(t, test.uses, count)
			require.NoError(t, m.Close())
			require.Zero(t, a.Live())
			require.Zero(t, b.Live())
		})
	}
}

func TestNewOnRefuses(t *testing.T) {
	a := newHost(t)
	for want, devices := range map[string][][]kernels.Compute{
		"no list of devices":   nil,
		"devices for 0 stages": {{}},
		"devices for 2 stages of copy 1, and for 1 of copy 0":     {{a}, {a, a}},
		"stage 1 of copy 0 has no device":                         {{a, nil}},
		"the device of stage 0 of copy 1 is a transformer_test.s": {{a}, {slice{Compute: a}}},
	} {
		_, err := transformer.NewOn(tiny, devices...)
		require.ErrorContains(t, err, want)
	}
	_, err := transformer.NewOn(transformer.Config{}, []kernels.Compute{nil})
	require.ErrorContains(t, err, "Vocabulary is 0")
	require.ErrorContains(t, err, "no device")
	_, err = transformer.New(nil, tiny, 2)
	require.ErrorContains(t, err, "stage 1 of copy 0 has no device")
}

// slice is a device that is not comparable in Go.
type slice struct {
	kernels.Compute
	_ []int
}

// TestNewOnTooSmallDevices: whichever of two devices is full, the memory of both is released.
func TestNewOnTooSmallDevices(t *testing.T) {
	for which := range 2 {
		var devices []kernels.Compute
		for i := range 2 {
			capacity := int64(64 << 10)
			if i == which {
				capacity = 4 << 10
			}
			dev, err := kernels.NewHost(kernels.HostConfig{Capacity: capacity})
			require.NoError(t, err)
			defer func() { require.NoError(t, dev.Close()) }()
			devices = append(devices, dev)
		}
		_, err := transformer.NewOn(tiny, []kernels.Compute{devices[0], devices[1], devices[0], devices[1]})
		require.ErrorIs(t, err, memory.ErrOutOfMemory)
		for _, dev := range devices {
			require.Zero(t, dev.Live())
		}
	}
}

// end is a stage without parameters at the end of a model that the tests cut in two.
type end struct{ *stages.Func[kernels.Buffer] }

func (e end) BackwardInput(ctx context.Context, mb batchctx.Microbatch[kernels.Buffer], gradOut, gradIn []kernels.Buffer) error {
	return e.Backward(ctx, mb, gradOut, gradIn)
}

func (e end) BackwardWeight(context.Context, batchctx.Microbatch[kernels.Buffer]) error { return nil }

// stepCut trains on one microbatch with the stages before the cut on the first device and the
// others on the second: each device has a runner, and the first one has a last stage that runs
// the second runner in its forward. It returns the result of the second runner.
func stepCut(t *testing.T, list []stages.Stage[kernels.Buffer], cut int, plan schedule.Rule, q sequence, dev [2]*kernels.Host) *runner.Result {
	wire := []stages.Port{{Name: "hidden"}}
	var there, back kernels.Buffer // the tensors between the runners
	var result *runner.Result
	feed := &stages.Func[kernels.Buffer]{
		Declares: stages.Spec{Name: "feed", Outputs: wire},
		ForwardFunc: func(_ context.Context, _ batchctx.Microbatch[kernels.Buffer], _, out []kernels.Buffer) (err error) {
			out[0], err = kernels.Transfer(dev[1], dev[0], there)
			return err
		},
		BackwardFunc: func(_ context.Context, _ batchctx.Microbatch[kernels.Buffer], gradOut, _ []kernels.Buffer) (err error) {
			back, err = kernels.Transfer(dev[0], dev[1], gradOut[0])
			return err
		},
	}
	set := func(c *runner.Config[kernels.Buffer]) { c.Plan.Rule = plan }
	second := newRunner(t, dev[1], append([]stages.Stage[kernels.Buffer]{end{feed}}, list[cut:]...), set)
	sink := &stages.Func[kernels.Buffer]{
		Declares: stages.Spec{Name: "sink", Inputs: wire, Losses: []string{transformer.LossName}},
		ForwardFunc: func(ctx context.Context, mb batchctx.Microbatch[kernels.Buffer], in, _ []kernels.Buffer) (err error) {
			there = in[0]
			if result, err = second.Step(ctx, 1, &source{dev[1], []sequence{q}}); err != nil {
				return err
			}
			mb.Loss(1, result.Losses[0].Sum, result.Losses[0].Weight)
			return nil
		},
		BackwardFunc: func(_ context.Context, mb batchctx.Microbatch[kernels.Buffer], _, gradIn []kernels.Buffer) error {
			gradIn[0] = back // for the seed that the second runner has used, which is the same
			mb.LossSeed(1)
			return nil
		},
	}
	first := newRunner(t, dev[0], append(slices.Clone(list[:cut]), end{sink}), set)
	_, err := first.Step(context.Background(), 1, &source{dev[0], []sequence{q}})
	require.NoError(t, err)
	return result
}

// TestTwoDevices trains on two devices and requires the numbers of one: losses, gradients and,
// after Update, weights and moments on both.
func TestTwoDevices(t *testing.T) {
	for _, untied := range []bool{false, true} {
		for cut := 1; cut <= 3; cut++ {
			for name, plan := range map[string]schedule.Rule{"B": nil, "I and W": stagetest.SplitRule(schedule.DepthFirst, 0)} {
				t.Run(fmt.Sprintf("untied %v, cut %d, %s", untied, cut, name), func(t *testing.T) {
					cfg := tiny
					cfg.Dropout, cfg.Untied = 0.2, untied
					q := sequences(random(t), cfg, 1)[0]
					alone, dev := newHost(t), [2]*kernels.Host{newHost(t), newHost(t)}
					one := newModel(t, alone, cfg, 4)
					want, err := newRunner(t, alone, one.Stages(), nil).Step(context.Background(), 1, &source{alone, []sequence{q}})
					require.NoError(t, err)

					devices := []kernels.Compute{dev[1], dev[1], dev[1], dev[1]}
					for s := range cut {
						devices[s] = dev[0]
					}
					two := newModelOn(t, cfg, devices)
					got := stepCut(t, two.Stages(), cut, plan, q, dev)
					require.Equal(t, want.Losses, got.Losses)
					for _, p := range two.Parameters() {
						sumUses(t, p)
					}
					adam := transformer.AdamW{LearningRate: 0.01, WeightDecay: 0.1}
					require.NoError(t, one.Update(adam, want, 0))
					require.NoError(t, two.Update(adam, weighed(t, dev[0], q, got), 0))
					requireSameParameters(t, one, two)
				})
			}
		}
	}
}

// weighed returns the result of a step with the losses of another one and no gradients: the
// tests sum those themselves, so they are not the gradients of the other step.
func weighed(t *testing.T, dev *kernels.Host, q sequence, of *runner.Result) *runner.Result {
	head := &stages.Func[kernels.Buffer]{
		Declares: stages.Spec{Name: "head", Losses: []string{transformer.LossName}},
		ForwardFunc: func(_ context.Context, mb batchctx.Microbatch[kernels.Buffer], _, _ []kernels.Buffer) error {
			mb.Loss(1, of.Losses[0].Sum, of.Losses[0].Weight)
			return nil
		},
	}
	result, err := newRunner(t, dev, []stages.Stage[kernels.Buffer]{head}, nil).Step(context.Background(), 1, &source{dev, []sequence{q}})
	require.NoError(t, err)
	return result
}

// sumUses does the work of the runner at the end of a step: every copy gets the sum over the
// uses, in the order of stages.
func sumUses(t *testing.T, p *transformer.Parameter) {
	total := read(t, p.Device, p.Grad)
	for _, c := range p.Others {
		for i, g := range read(t, c.Device, c.Grad) {
			total[i] += g
		}
	}
	for c := range p.All() {
		require.NoError(t, c.Device.WriteFloat32(c.Grad, total))
	}
}

// requireSameParameters requires that every copy in have equals the one in want.
func requireSameParameters(t *testing.T, want, have *transformer.Model) {
	t.Helper()
	require.Len(t, have.Parameters(), len(want.Parameters()))
	for i, p := range want.Parameters() {
		require.Empty(t, p.Others)
		other := have.Parameters()[i]
		require.Equal(t, p.Name, other.Name)
		for c := range other.All() {
			for what, pair := range map[string][2]kernels.Buffer{
				"weight": {p.Weight, c.Weight}, "gradient": {p.Grad, c.Grad}, "first moment": {p.M, c.M}, "second moment": {p.V, c.V},
			} {
				require.Equal(t, bits(read(t, p.Device, pair[0])), bits(read(t, c.Device, pair[1])), "%s of %s", what, p.Name)
			}
		}
	}
}

// TestTwoCopies trains on the same microbatch in both copies of a model, on two devices with
// one stage of each: the gradients are twice those of one copy.
func TestTwoCopies(t *testing.T) {
	cfg := tiny
	cfg.Untied = true
	q := sequences(random(t), cfg, 1)[0]
	alone, dev := newHost(t), [2]*kernels.Host{newHost(t), newHost(t)}
	one := newModel(t, alone, cfg, 2)
	want, err := newRunner(t, alone, one.Stages(), nil).Step(context.Background(), 1, &source{alone, []sequence{q}})
	require.NoError(t, err)
	twice := newModelOn(t, cfg, []kernels.Compute{dev[0], dev[1]}, []kernels.Compute{dev[1], dev[0]})
	list := twice.Stages()
	require.Equal(t, want.Losses, stepCut(t, list[:2], 1, nil, q, dev).Losses)
	got := stepCut(t, list[2:], 1, nil, q, [2]*kernels.Host{dev[1], dev[0]})
	require.Equal(t, want.Losses, got.Losses)
	for i, p := range one.Parameters() {
		both := twice.Parameters()[i]
		require.Len(t, both.Others, 1)
		for c := range both.All() {
			require.Equal(t, read(t, alone, p.Grad), read(t, c.Device, c.Grad), p.Name)
		}
		sumUses(t, both)
	}
	require.NoError(t, twice.Update(transformer.AdamW{LearningRate: 0.01, WeightDecay: 0.1}, weighed(t, dev[0], q, got), 0))
	for _, p := range twice.Parameters() {
		for _, c := range p.Others {
			require.Equal(t, read(t, p.Device, p.Weight), read(t, c.Device, c.Weight), p.Name)
		}
	}
}
