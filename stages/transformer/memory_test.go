package transformer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/stagetest"
	"github.com/weir-ml/weir/stages/transformer"
)

// zeros returns a sequence of zeros.
func zeros(tokens int) sequence {
	return sequence{tokens: make([]int32, tokens), labels: make([]int32, tokens), weights: make([]float32, tokens)}
}

// liveBefore runs a step of one microbatch, and returns the live bytes in addition to the model's
// before the first action of a kind, by class.
func liveBefore(t *testing.T, kind schedule.Kind, rule schedule.Rule, cfg transformer.Config, stageCount, tokens int, change func([]stages.Stage[kernels.Buffer])) memory.ByClass {
	t.Helper()
	dev := newHost(t)
	list := newModel(t, dev, cfg, stageCount).Stages()
	if change != nil {
		change(list)
	}
	var live memory.Stats
	seen := false
	r := newRunner(t, dev, list, func(c *runner.Config[kernels.Buffer]) {
		c.Plan.Rule = rule
		c.Hooks.Action = func(_ int, action schedule.Action) {
			if action.Kind() == kind && !seen {
				dev.Stats(&live)
				seen = true
			}
		}
	})
	runStep(t, r, 1, &source{dev, []sequence{zeros(tokens)}})
	require.True(t, seen)
	live.Classes[memory.Resident] = 0
	return live.Classes
}

// rises runs a step of two microbatches with a stage for each part, and returns how far each action
// rises above the level at its beginning, by the number of its stage and its kind.
func rises(t *testing.T, rule schedule.Rule, cfg transformer.Config, tokens int) (*kernels.Host, map[string]int64) {
	t.Helper()
	dev := newHost(t)
	above := map[string]int64{}
	running, before, retired := "", int64(0), int64(0)
	r := newRunner(t, dev, newModel(t, dev, cfg, cfg.Layers+2).Stages(), func(c *runner.Config[kernels.Buffer]) {
		c.Plan.Rule = rule
		c.Hooks.Action = func(_ int, action schedule.Action) {
			var stats memory.Stats
			dev.Stats(&stats)
			above[running] = max(stats.Peak, retired) - before
			retired = 0
			running, before = fmt.Sprint(action.Stage(), action.Kind()), stats.Live
			dev.ResetPeak()
		}
		c.Hooks.Microbatch = func(sample *memory.Sample) { retired = sample.Peak } // which starts a new peak
	})
	runStep(t, r, 2, &source{dev, []sequence{zeros(tokens)}})
	return dev, above
}

// TestKept measures the memory that a microbatch keeps between forward and backward, by class,
// and compares it with the table in the package's documentation.
func TestKept(t *testing.T) {
	for _, test := range []struct {
		name      string
		recompute bool
		saved     int64 // elements per token
	}{
		{"kept", false, int64(tiny.Layers*(9*tiny.Width+tiny.Heads) + 1)},
		{"recomputed", true, 1},
	} {
		for stageCount := 1; stageCount <= tiny.Layers+2; stageCount++ {
			cfg := tiny
			cfg.Recompute = test.recompute
			const tokens = 7
			live := liveBefore(t, schedule.B, nil, cfg, stageCount, tokens, nil)
			require.Equal(t, 4*tokens*test.saved, live[memory.Saved], test.name)
			inputs := int64(cfg.Layers + 1) // of the blocks and of the head
			require.Equal(t, 4*tokens*inputs*int64(cfg.Width), live[memory.Activation], test.name)
			require.Zero(t, live[memory.Workspace])
		}
	}
}

// TestBackwardPeak measures how far each backward rises above the level at its beginning, which
// shows a buffer that is released later than possible.
func TestBackwardPeak(t *testing.T) {
	for _, dropout := range []float32{0, 0.5} {
		cfg := tiny
		cfg.Dropout = dropout
		const tokens = 7
		dev, above := rises(t, nil, cfg, tokens)
		width := int64(4 * tokens * cfg.Width)
		statistics := int64(4 * tokens * 2)
		_, attention := dev.AttentionWorkspace(tokens, cfg.Heads, cfg.Width/cfg.Heads)
		head := dev.HeadWorkspace(tokens, cfg.Width, cfg.Vocabulary)
		dropped := int64(0) // the gradient before a dropout
		if dropout > 0 {
			dropped = width
		}
		// In the block's attention, the released up and middle slots count against the rise:
		// dmiddle, dattended and dqkv need no more than they left.
		block := max(4*width+dropped, int64(4*attention))
		require.Equal(t, block, above["1 B"], "block0, dropout %v", dropout)
		require.Equal(t, block, above["2 B"], "block1, dropout %v", dropout)
		require.Equal(t, 2*width+statistics+int64(4*head), above["3 B"], "head, dropout %v", dropout)
	}
}

// TestPeak requires that the peak does not depend on the number of microbatches and does not
// contain logits for every token.
func TestPeak(t *testing.T) {
	cfg := transformer.Config{Vocabulary: 2000, Width: 8, Layers: 1, Heads: 2, Context: 256, Seed: 1}
	dev := newHost(t)
	m := newModel(t, dev, cfg, 2)
	r := newRunner(t, dev, m.Stages(), nil)
	const tokens = 256
	q := zeros(tokens)
	q.weights[0] = 1
	before := dev.Live()
	var peaks []int64
	for _, microbatches := range []int{1, 4} {
		result := runStep(t, r, microbatches, &source{dev, []sequence{q}})
		require.Zero(t, result.Growth.Bytes)
		require.Equal(t, before, dev.Live())
		peaks = append(peaks, result.Peak-before)
	}
	require.Equal(t, peaks[0], peaks[1])
	require.Less(t, peaks[0], int64(4*tokens*cfg.Vocabulary), "bytes of all logits")
}

// TestAllocations requires that microbatches cost no allocation on the Go heap.
func TestAllocations(t *testing.T) {
	if invariants.Enabled {
		t.Skip("every call has a separate view if invariants are checked")
	}
	for _, rule := range []schedule.Rule{nil, stagetest.SplitRule(schedule.DepthFirst, 2)} {
		for _, recompute := range []bool{false, true} {
			cfg := tiny
			cfg.Dropout, cfg.Recompute = 0.1, recompute
			dev := newHost(t)
			m := newModel(t, dev, cfg, cfg.Layers+4)
			from := &source{dev, sequences(random(t), cfg, 4)}
			count := func(microbatches int) float64 {
				r := newRunner(t, dev, m.Stages(), func(c *runner.Config[kernels.Buffer]) { c.Plan.Rule = rule })
				return testing.AllocsPerRun(10, func() {
					result, err := r.Step(context.Background(), microbatches, from)
					if err == nil {
						err = m.Update(transformer.AdamW{LearningRate: 0.01}, result, 1)
					}
					if err != nil {
						t.Fatal(err)
					}
				})
			}
			require.Equal(t, count(4), count(40), "split %v, recompute %v", rule != nil, recompute)
		}
	}
}

var errPlanned = errors.New("planned")

// failing is a device that fails in the call with number at, and that reclaims nothing after an
// error, so that a leak of a stage stays visible.
type failing struct {
	kernels.Compute
	at, calls int
}

func (f *failing) Reclaim(uint64) int64 { return 0 }

func (f *failing) next() error {
	if f.calls++; f.calls == f.at {
		return errPlanned
	}
	return nil
}

func (f *failing) Alloc(class memory.Class, t kernels.DType, n int) (kernels.Buffer, error) {
	if err := f.next(); class != memory.Entry && err != nil {
		return kernels.Buffer{}, err
	}
	return f.Compute.Alloc(class, t, n)
}

func (f *failing) Add(dst, src kernels.Buffer) error {
	return errors.Join(f.next(), f.Compute.Add(dst, src))
}

func (f *failing) MatMul(op kernels.MatMul) error {
	return errors.Join(f.next(), f.Compute.MatMul(op))
}

func (f *failing) LayerNorm(op kernels.LayerNorm) error {
	return errors.Join(f.next(), f.Compute.LayerNorm(op))
}

func (f *failing) LayerNormBackward(op kernels.LayerNormBackward) error {
	return errors.Join(f.next(), f.Compute.LayerNormBackward(op))
}

func (f *failing) GELUBackward(dx, dy, x kernels.Buffer) error {
	return errors.Join(f.next(), f.Compute.GELUBackward(dx, dy, x))
}

func (f *failing) CausalAttention(op kernels.CausalAttention) error {
	return errors.Join(f.next(), f.Compute.CausalAttention(op))
}

func (f *failing) CausalAttentionBackward(op kernels.CausalAttentionBackward) error {
	return errors.Join(f.next(), f.Compute.CausalAttentionBackward(op))
}

func (f *failing) EmbedBackward(op kernels.EmbedBackward) error {
	return errors.Join(f.next(), f.Compute.EmbedBackward(op))
}

func (f *failing) HeadLossBackward(op kernels.HeadLossBackward) error {
	return errors.Join(f.next(), f.Compute.HeadLossBackward(op))
}

func (f *failing) Dropout(y, x kernels.Buffer, p float32, key kernels.Key) error {
	return errors.Join(f.next(), f.Compute.Dropout(y, x, p, key))
}

// TestErrors makes every call of a step fail in turn, in float32, in FP8 and with kept logits: the
// stages release their buffers without help, and a failed step leaves nothing in the tallies of the
// next.
func TestErrors(t *testing.T) {
	low := inFP8(t, "delayed")
	for name, test := range map[string]struct {
		cfg      transformer.Config
		change   func(*transformer.Config)
		failures int
	}{
		"kept":             {tiny, func(*transformer.Config) {}, 60},
		"recomputed":       {tiny, func(c *transformer.Config) { c.Recompute = true }, 60},
		"logits":           {tiny, func(c *transformer.Config) { c.Dropout, c.KeepLogits = 0, 1<<20 }, 40},
		"FP8":              {low, func(*transformer.Config) {}, 100},
		"attention in FP8": {low, func(c *transformer.Config) { c.FP8Attention = true }, 100},
	} {
		test.cfg.Dropout, test.cfg.Layers = 0.1, 1
		test.change(&test.cfg)
		for _, plan := range []schedule.Rule{nil, stagetest.SplitRule(schedule.DepthFirst, 1)} {
			require.Greater(t, failEveryCall(t, test.cfg, 3, plan), test.failures, name)
		}
	}
}

// failEveryCall makes every call of a step fail in turn, and returns how many of them ended their
// step.
func failEveryCall(t *testing.T, cfg transformer.Config, stageCount int, plan schedule.Rule) (failures int) {
	dev := &failing{Compute: newHost(t)}
	m := newModel(t, dev, cfg, stageCount)
	batch := sequences(random(t), cfg, 1)
	r := newRunner(t, dev, m.Stages(), func(c *runner.Config[kernels.Buffer]) { c.Plan.Rule = plan })
	live := dev.Live()
	for at := 1; ; at++ {
		dev.at, dev.calls = at, 0
		_, err := r.Step(context.Background(), 1, &source{dev, batch})
		require.Equal(t, live, dev.Live(), "call %d failed", at)
		if dev.calls < at {
			require.NoError(t, err)
			return failures
		}
		if err != nil {
			require.ErrorIs(t, err, errPlanned)
			failures++
		}
	}
}

// TestKeepLogits: no bit depends on the number of kept logits, whether the backward is one call
// or two, and a microbatch keeps as many as the bound allows: whole tiles, or all.
func TestKeepLogits(t *testing.T) {
	const tokens, tile = 5, 1040 // of the host, in words
	cfg := transformer.Config{Vocabulary: 2*tile + 20, Width: 8, Layers: 1, Heads: 2, Context: tokens, Seed: 1}
	all := int64(4 * tokens * cfg.Vocabulary)
	batch := sequences(random(t), cfg, 3)
	want := train(t, cfg, 1, 2, nil, batch)
	for _, test := range []struct{ bound, kept int64 }{
		{transformer.NoLogits, 0}, {0, 0}, {4*tokens*tile - 1, 0}, {4 * tokens * tile, 4 * tokens * tile}, {all - 1, 4 * tokens * 2 * tile}, {all, all}, {1 << 40, all}, {transformer.AllLogits, all},
	} {
		cfg.KeepLogits = test.bound
		for name, plan := range map[string]schedule.Rule{"B": nil, "I and W": stagetest.SplitRule(schedule.DepthFirst, 2)} {
			t.Run(fmt.Sprint(test.bound, " ", name), func(t *testing.T) { require.Equal(t, want, train(t, cfg, 3, 2, plan, batch)) })
		}
		saved := liveBefore(t, schedule.B, nil, cfg, 3, tokens, nil)[memory.Saved]
		require.Equal(t, test.kept+int64(4*tokens*(9*cfg.Width+cfg.Heads+1)), saved)
	}
	cfg.KeepLogits = transformer.NoLogits - 1
	require.ErrorContains(t, cfg.Validate(), "KeepLogits is -2")
}
