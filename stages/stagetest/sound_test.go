package stagetest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/stagetest"
)

func TestASoundStageHasNoFaults(t *testing.T) {
	for _, split := range []bool{false, true} {
		t.Run(fmt.Sprintf("split %v", split), func(t *testing.T) { stagetest.Run(t, config("", split)) })
	}
	t.Run("pointers", func(t *testing.T) { stagetest.Run(t, pointerConfig("")) })
}

func TestDecoratedStagesAreSound(t *testing.T) {
	for name, decorate := range map[string]func(s stages.Stage[handle]) stages.Stage[handle]{
		"recompute":  stages.Recompute[handle],
		"freeze":     stages.Freeze[handle],
		"sequential": func(s stages.Stage[handle]) stages.Stage[handle] { return pair(s, sibling(s)) },
		"all": func(s stages.Stage[handle]) stages.Stage[handle] {
			return stages.Recompute(pair(stages.Freeze(s), stages.Recompute(pair(sibling(s), sibling(s)))))
		},
	} {
		for _, split := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, split %v", name, split), func(t *testing.T) {
				cfg := config("", split)
				inner := cfg.New
				cfg.New = func() (stagetest.Subject[handle], error) {
					s, err := inner()
					s.Stage = decorate(s.Stage)
					return s, err
				}
				stagetest.Run(t, cfg)
			})
		}
	}
}

// pair returns the sequence of two stages.
func pair(a, b stages.Stage[handle]) stages.Stage[handle] {
	s, err := stages.Sequential("pair", a, b)
	if err != nil {
		panic(err)
	}
	return s
}

// sibling returns another stage that uses the same parameters (they are tied), with separate gradients.
func sibling(s stages.Stage[handle]) stages.Stage[handle] {
	split, splits := s.(splitProduct)
	original, _ := s.(*product)
	if splits {
		original = split.product
	}
	p := *original
	p.tied = true
	for i := range p.grads {
		var err error
		if p.grads[i], err = p.arena.Alloc(memory.Resident, 4*width); err != nil {
			panic(err)
		}
	}
	if splits {
		return splitProduct{&p}
	}
	return &p
}

// ends returns the configuration for the first and the last stage of a model, and for a model of one stage.
// Part "x" replaces the input if there is none.
func ends(input, output bool) stagetest.Config[handle] {
	return stagetest.Config[handle]{New: func() (stagetest.Subject[handle], error) {
		s, err := subject("", false)
		if err != nil {
			return s, err
		}
		p := s.Stage.(*product)
		end := &stages.Func[handle]{Declares: stages.Spec{Name: "end", Slots: []string{"x"}}, Parameters: p.Params()}
		end.Parameters[0].Weight = handle{} // it multiplies nothing here
		wire := []stages.Port{{Name: "x"}}
		if input {
			end.Declares.Inputs = wire
		} else {
			end.Declares.Reads = []stages.Read{{Part: "x"}}
		}
		if output {
			end.Declares.Outputs = wire
		} else {
			end.Declares.Losses = []string{"loss"}
		}
		end.ForwardFunc = func(_ context.Context, mb view, in, out []handle) error {
			var h handle
			if input {
				h = in[0]
			} else {
				h = mb.Part(1)
			}
			mb.Save(1, mb.Retain(h))
			if output {
				out[0] = mb.Retain(h)
				return nil
			}
			x := p.floats(mb, h)
			mb.Loss(1, float64(x[0]), float64(len(x)))
			return nil
		}
		end.BackwardFunc = func(_ context.Context, mb view, gradOut, gradIn []handle) error {
			x, seed := p.floats(mb, mb.Take(1)), float32(1)
			if output != (gradOut != nil) || !input && gradIn != nil {
				return errors.New("a first stage has gradIn, or a last stage gradOut")
			}
			if !output {
				seed = mb.LossSeed(1)
			}
			if gradIn != nil {
				g, dx := p.alloc(mb, memory.ActGrad, len(x))
				clear(dx)
				if dx[0], gradIn[0] = seed, g; output {
					copy(dx, p.floats(mb, gradOut[0]))
				}
			}
			dy := make([]float32, len(x))
			dy[0] = seed
			p.contribute(mb, x, x, dy)
			return nil
		}
		s.Stage = end
		return s, nil
	}}
}

func TestEndsOfAModelAreSound(t *testing.T) {
	for _, input := range []bool{false, true} {
		for _, output := range []bool{false, true} {
			t.Run(fmt.Sprintf("input %v, output %v", input, output), func(t *testing.T) {
				stagetest.Run(t, ends(input, output))
			})
		}
	}
}

// gelu is a stage over buffers of a device.
func gelu(device kernels.Compute) stages.Stage[kernels.Buffer] {
	wire := []stages.Port{{Name: "x"}}
	type mb = batchctx.Microbatch[kernels.Buffer]
	return &stages.Func[kernels.Buffer]{
		Declares: stages.Spec{Name: "gelu", Inputs: wire, Outputs: wire, Slots: []string{"x"}},
		ForwardFunc: func(_ context.Context, mb mb, in, out []kernels.Buffer) error {
			out[0] = mb.Must(device.Alloc(memory.Activation, kernels.Float32, in[0].N))
			mb.Save(1, mb.Retain(in[0]))
			return device.GELU(out[0], in[0])
		},
		BackwardFunc: func(_ context.Context, mb mb, gradOut, gradIn []kernels.Buffer) error {
			x := mb.Take(1)
			if gradIn == nil {
				return nil
			}
			gradIn[0] = mb.Must(device.Alloc(memory.ActGrad, kernels.Float32, x.N))
			return device.GELUBackward(gradIn[0], gradOut[0], x)
		},
	}
}

func TestStagesOnADevice(t *testing.T) {
	for name, make := range map[string]func(device kernels.Compute) stages.Stage[kernels.Buffer]{
		"gelu": gelu,
		"identity": func(kernels.Compute) stages.Stage[kernels.Buffer] {
			return stages.Identity[kernels.Buffer]("identity", stages.Port{Name: "x"}, stages.Port{Name: "mask", NoGrad: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			stagetest.Run(t, stagetest.Config[kernels.Buffer]{Allocations: true, New: func() (stagetest.Subject[kernels.Buffer], error) {
				device, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
				if err != nil {
					return stagetest.Subject[kernels.Buffer]{}, err
				}
				return stagetest.OnDevice(device, make(device), func(want stagetest.Want) int { return 5 + want.Microbatch%2 }), nil
			}})
		})
	}
}

func TestWhatIsGivenMayBeWrong(t *testing.T) {
	right := config("", false)
	with := func(change func(*stagetest.Subject[handle])) stagetest.Config[handle] {
		cfg := right
		cfg.New = func() (stagetest.Subject[handle], error) {
			s, err := right.New()
			change(&s)
			return s, err
		}
		return cfg
	}
	broken := errors.New("out of order")
	parts, losses := right, right
	parts.Parts = []string{"bias"}
	losses.Losses = []loss.Def{{Name: "another", Metric: true}}
	for name, test := range map[string]struct {
		cfg  stagetest.Config[handle]
		want string
	}{
		"no New":    {stagetest.Config[handle]{}, "Config.New is nil"},
		"New fails": {stagetest.Config[handle]{New: func() (s stagetest.Subject[handle], err error) { return s, broken }}, "out of order"},
		"no stage":  {with(func(s *stagetest.Subject[handle]) { s.Stage = nil }), "Subject.Stage is nil"},
		"no space":  {with(func(s *stagetest.Subject[handle]) { s.Space = nil }), "Subject.Space is nil"},
		"no Make":   {with(func(s *stagetest.Subject[handle]) { s.Make = nil }), "Subject.Make is nil"},
		"Make fails": {with(func(s *stagetest.Subject[handle]) {
			s.Make = func(stagetest.Want) (handle, error) { return handle{}, broken }
		}), "out of order"},
		"Read fails":  {with(func(s *stagetest.Subject[handle]) { s.Read = func(handle) ([]byte, error) { return nil, broken } }), "Subject.Read fails"},
		"Write fails": {with(func(s *stagetest.Subject[handle]) { s.Write = func(handle, []byte) error { return broken } }), "Subject.Write fails"},
		"Close fails": {with(func(s *stagetest.Subject[handle]) {
			inner := s.Close
			s.Close = func() error { return errors.Join(inner(), broken) }
		}), "Subject.Close fails"},
		"no Gradients":           {with(func(s *stagetest.Subject[handle]) { s.Gradients = nil }), "Gradients is nil"},
		"a part missing":         {parts, "labels"},
		"losses that are others": {losses, `"sum"`},
	} {
		t.Run(name, func(t *testing.T) {
			faults := stagetest.Check(test.cfg)
			if len(faults) != 1 || faults[0].Code != stagetest.BadConfig || !strings.Contains(faults[0].Text, test.want) {
				t.Errorf("want a bad config that says %q, got %v", test.want, faults)
			}
		})
	}
}

// recorder is a testing.TB that keeps the reported errors.
type recorder struct {
	testing.TB
	errors, logs []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Log(args ...any) { r.logs = append(r.logs, fmt.Sprint(args...)) }

func TestRunReports(t *testing.T) {
	r := &recorder{TB: t}
	stagetest.Run(r, config("keeps saved", false))
	if len(r.errors) != 1 || !strings.Contains(r.errors[0], "stagetest: keeps saved: it keeps a reference to its saved tensor of microbatch 0") || len(r.logs) != 0 {
		t.Errorf("errors %q, logs %q", r.errors, r.logs)
	}

	// Without Read tensors are not compared: a stage with wrong gradients passes, and Run
	// reports that.
	r = &recorder{TB: t}
	cfg := config("ignores Add", false)
	inner := cfg.New
	cfg.New = func() (stagetest.Subject[handle], error) {
		s, err := inner()
		s.Read = nil
		return s, err
	}
	stagetest.Run(r, cfg)
	if len(r.errors) != 0 || len(r.logs) != 1 || !strings.Contains(r.logs[0], "tensors were not") {
		t.Errorf("errors %q, logs %q", r.errors, r.logs)
	}
}
