package runner_test

import (
	"context"
	"io"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/transport"
)

// The stages of these tests are on a device, and each test defines their calls.
type buffer = kernels.Buffer

var objective = []loss.Def{{Name: "loss", Reduction: loss.Mean, Objective: true}}

// deviced is the configuration of a dry run and of a planned step: one stage, whose source gives
// a part of the given number of elements.
type deviced struct {
	dev   kernels.Device
	stage stages.Func[buffer]
	part  func(e batchctx.Entry[buffer]) int
}

func newDeviced(dev kernels.Device) *deviced {
	grad, err := dev.Alloc(memory.Resident, kernels.Float32, 1)
	if err != nil {
		panic(err)
	}
	return &deviced{dev: dev, part: func(batchctx.Entry[buffer]) int { return 4 }, stage: stages.Func[buffer]{
		Declares:   stages.Spec{Name: "only", Reads: []stages.Read{{Part: "x"}}, Slots: []string{"x", "carry"}},
		Parameters: []batchctx.Use[buffer]{{Name: "w", Grad: grad, Contributes: batchctx.Sometimes}},
	}}
}

// Next puts the part.
func (d *deviced) Next(_ context.Context, e batchctx.Entry[buffer]) error {
	b, err := d.dev.Alloc(memory.Entry, kernels.Float32, d.part(e))
	if err != nil {
		return err
	}
	e.Put("x", b)
	return nil
}

func (d *deviced) alloc(class memory.Class, n int) buffer {
	b, err := d.dev.Alloc(class, kernels.Float32, n)
	if err != nil {
		panic(err)
	}
	return b
}

func (d *deviced) config() runner.Config[buffer] {
	return runner.Config[buffer]{
		Stages: []stages.Stage[buffer]{&d.stage}, Spaces: runner.Spaces(d.dev), Gradients: d.dev.(kernels.Compute),
		Losses: objective,
	}
}

func (d *deviced) record() (*layout.Profile, error) {
	return record.Stages(context.Background(), d.config(),
		record.Shape[buffer]{Name: "four", Source: d})
}

// device returns a Null device, or a host if a step is to run.
func device(t *testing.T, null bool) kernels.Compute {
	t.Helper()
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, host.Close()) })
	if !null {
		return host
	}
	dev := kernels.NewNull(host)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

// A profile lists how a stage changes references, in order; a tensor for W is in a slot that ends
// with B.
func TestRecord(t *testing.T) {
	d := newDeviced(device(t, true))
	d.stage.ForwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
		x := mb.Part(1)
		scratch := d.alloc(memory.Workspace, 5)
		mb.Save(1, mb.Retain(x))
		mb.SaveFor(batchctx.ByWeight, 2, d.alloc(memory.Saved, 3))
		mb.Release(scratch)
		return nil
	}
	d.stage.BackwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
		mb.Take(1)
		mb.ReleaseSaved(1)
		mb.Take(2)
		return nil
	}
	profile, err := d.record()
	require.NoError(t, err)
	require.NoError(t, profile.Validate())
	require.Equal(t, [][]layout.Param{{{Name: "w", Bytes: 4}}}, profile.Params)
	require.Len(t, profile.Shapes, 1)
	shape := &profile.Shapes[0]
	own := func(i int) layout.Ref { return layout.Ref{Kind: layout.Own, Index: i} }
	part := layout.Ref{Kind: layout.PartRead}
	require.Equal(t, []layout.EntryProfile{
		{ // a rank that does not want the part releases it
			Parts: 0, Buffers: []layout.Buffer{{Bytes: 16, Class: memory.Entry}}, Out: []layout.Ref{{}},
			Events: []layout.RefChange{{Op: layout.Alloc, Ref: own(0)}, {Op: layout.Release, Ref: own(0)}},
		},
		{
			Parts: 1, Buffers: []layout.Buffer{{Bytes: 16, Class: memory.Entry}}, Out: []layout.Ref{own(0)},
			Events: []layout.RefChange{{Op: layout.Alloc, Ref: own(0)}},
		},
	}, shape.Entries)
	require.Equal(t, layout.StageProfile{
		Stage: "only", Slots: []layout.Ref{part, own(1)},
		Buffers: []layout.Buffer{
			{Name: "workspace of F", Bytes: 20, Class: memory.Workspace}, {Name: `slot "carry"`, Bytes: 12, Class: memory.Saved},
			{Name: "workspace of F", Bytes: 20, Class: memory.Workspace}, {Name: "saved of F", Bytes: 12, Class: memory.Saved}, // of an evaluation
		},
		Forward: &layout.Call{Out: []layout.Ref{}, Events: []layout.RefChange{
			{Op: layout.Alloc, Ref: own(0)}, {Op: layout.Retain, Ref: part}, {Op: layout.Alloc, Ref: own(1)}, {Op: layout.Release, Ref: own(0)},
		}},
		Whole: &layout.Call{Out: []layout.Ref{}, Taken: 1, Events: []layout.RefChange{
			{Op: layout.Release, Ref: part}, {Op: layout.Release, Ref: own(1)},
		}},
		Eval: &layout.Call{Out: []layout.Ref{}, Events: []layout.RefChange{
			{Op: layout.Alloc, Ref: own(2)}, {Op: layout.Retain, Ref: part}, {Op: layout.Release, Ref: part},
			{Op: layout.Alloc, Ref: own(3)}, {Op: layout.Release, Ref: own(3)}, {Op: layout.Release, Ref: own(2)},
		}},
	}, shape.Stages[0])
	require.EqualValues(t, 4, d.dev.Live(), "a dry run keeps only the gradient")
}

// A dry run ends with an error that names the culprit, and keeps nothing.
func TestRecordRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		forward func(d *deviced, mb batchctx.Microbatch[buffer])
		is      error
		says    string
	}{
		"lost": {
			func(d *deviced, _ batchctx.Microbatch[buffer]) { d.alloc(memory.Workspace, 3) },
			record.ErrUnended, "stage 0 (only) in F: 1 to a buffer of 12 bytes (workspace) that it allocated",
		},
		"kept part": {
			func(_ *deviced, mb batchctx.Microbatch[buffer]) {
				x := mb.Part(1)
				mb.Retain(x)
			},
			record.ErrUnended, "stage 0 (only) in F: 1 to entry part 0 that it retained",
		},
		"resident": {
			func(d *deviced, _ batchctx.Microbatch[buffer]) { d.alloc(memory.Resident, 3) },
			nil, "it allocates 12 bytes of class resident",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeviced(device(t, true))
			d.stage.ForwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
				test.forward(d, mb)
				return nil
			}
			_, err := d.record()
			require.ErrorContains(t, err, test.says)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
				require.EqualValues(t, 4, d.dev.Live())
			}
		})
	}
	t.Run("another time", func(t *testing.T) {
		d, calls := newDeviced(device(t, true)), 0
		d.stage.ForwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
			calls++
			mb.Save(1, d.alloc(memory.Saved, calls))
			return nil
		}
		d.stage.Declares.Slots = []string{"x"}
		d.stage.BackwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error { mb.Take(1); return nil }
		split := &splitFunc{&d.stage}
		cfg := d.config()
		cfg.Stages[0] = split
		_, err := record.Stages(t.Context(), cfg,
			record.Shape[buffer]{Name: "four", Source: d})
		require.ErrorContains(t, err, "it allocates 8 bytes (saved), but its first call allocated 4 (saved)")
	})
	t.Run("no entries", func(t *testing.T) {
		d := newDeviced(device(t, true))
		_, err := record.Stages(t.Context(), d.config(),
			record.Shape[buffer]{Name: "none", Source: runner.Indexed(func(context.Context, batchctx.Entry[buffer]) error { return io.EOF })})
		require.ErrorIs(t, err, io.EOF)
	})
	t.Run("no watch", func(t *testing.T) {
		_, err := newDeviced(device(t, false)).record()
		require.ErrorContains(t, err, "needs a space that is memory.Watched")
	})
}

// splitFunc is a stage with an I and a W that do nothing.
type splitFunc struct{ *stages.Func[buffer] }

func (s *splitFunc) BackwardInput(context.Context, batchctx.Microbatch[buffer], []buffer, []buffer) error {
	return nil
}

func (s *splitFunc) BackwardWeight(context.Context, batchctx.Microbatch[buffer]) error { return nil }

// A size that depends on values is planned as its upper bound. A step may allocate less; a larger
// allocation is ErrUnplanned and names the planned one.
func TestBoundedSize(t *testing.T) {
	have := 2
	build := func(dev kernels.Device) *deviced {
		d := newDeviced(dev)
		d.part = func(e batchctx.Entry[buffer]) int { return e.AtMost(have+1, 9) }
		d.stage.ForwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
			mb.Loss(1, 1, 1)
			b, err := d.dev.Alloc(memory.Workspace, kernels.Float32, mb.AtMost(have, 8))
			if err != nil {
				return err
			}
			mb.Release(b)
			return nil
		}
		d.stage.Declares.Losses = []string{objective[0].Name}
		d.stage.BackwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
			mb.LossSeed(1)
			return nil
		}
		return d
	}
	profile, err := build(device(t, true)).record()
	require.NoError(t, err)
	require.Equal(t, layout.Buffer{Name: "workspace of F", Bytes: 32, AtMost: true, Class: memory.Workspace}, profile.Shapes[0].Stages[0].Buffers[0])
	require.Equal(t, layout.Buffer{Bytes: 36, AtMost: true, Class: memory.Entry}, profile.Shapes[0].Entries[1].Buffers[0])

	d := build(device(t, false))
	cfg := d.config()
	cfg.Memory.Profile = profile
	r := newRunner(t, cfg)
	for _, step := range []struct {
		have int
		fits bool
	}{{2, true}, {8, true}, {9, false}, {1, true}} {
		have = step.have
		result, err := r.Step(t.Context(), 3, d)
		if step.fits {
			require.NoError(t, err)
			require.True(t, result.Planned)
			require.EqualValues(t, 36+32, result.Height)
			continue
		}
		require.ErrorIs(t, err, memory.ErrUnplanned)
		require.ErrorContains(t, err, "40 bytes (entry) requested")
		require.ErrorContains(t, err, "the plan has at most 36 bytes (entry)")
		require.EqualValues(t, 4, d.dev.Live())
	}
}

// A profile of the longest microbatch serves every shorter one: sizes are upper bounds, and the live bytes
// are still compared exactly with the plan (L6). A buffer may have no elements.
func TestTheLongestMicrobatchIsEnough(t *testing.T) {
	tokens, forgets := 9, false
	build := func(dev kernels.Device) *deviced {
		d := newDeviced(dev)
		d.part = func(batchctx.Entry[buffer]) int { return tokens }
		d.stage.Declares.Losses, d.stage.Declares.Slots = []string{objective[0].Name}, []string{"y", "routed"}
		d.stage.ForwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
			mb.Loss(1, 1, 1)
			n := mb.Part(1).N
			mb.Save(1, mb.Must(d.dev.Alloc(memory.Saved, kernels.Float32, 2*n)))
			routed := mb.Must(d.dev.Alloc(memory.Saved, kernels.Float32, mb.AtMost(max(n-5, 0), n)))
			mb.Check(d.dev.(kernels.Compute).Zero(routed))
			if forgets {
				mb.Release(routed)
			} else {
				mb.Save(2, routed)
			}
			return nil
		}
		d.stage.BackwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
			mb.LossSeed(1)
			mb.Take(1)
			if !forgets {
				mb.Take(2)
			}
			return nil
		}
		return d
	}
	profile, err := build(device(t, true)).record()
	require.NoError(t, err)
	d := build(device(t, false))
	cfg := d.config()
	cfg.Memory.Profile, cfg.Schedule = profile, "breadth-first"
	r := newRunner(t, cfg)
	for _, step := range []int{9, 5, 1, 8, 9} {
		tokens = step
		result := runStep(t, r, 3, d)
		require.True(t, result.Planned)
	}
	tokens = 10
	_, err = r.Step(t.Context(), 3, d)
	require.ErrorIs(t, err, memory.ErrUnplanned)
	require.ErrorContains(t, err, "at most 36 bytes (entry): record the longest microbatch")
	tokens, forgets = 3, true
	_, err = r.Step(t.Context(), 3, d)
	require.ErrorIs(t, err, batchctx.ErrLeak, "it saves less than its profile")
	require.ErrorContains(t, err, "the stages do not match their profile")
}

// The live bytes are compared with the memory plan after every microbatch, and at step end, which
// is the only audit if an unchecked plan retires no microbatch (L6). In both steps the books
// agree.
func TestThePlanOfMemoryIsAudited(t *testing.T) {
	unretired := func(p schedule.Params) (*schedule.Plan, error) {
		plan, err := schedule.DepthFirst(p)
		if err != nil {
			return nil, err
		}
		facts := []schedule.StageInfo{{}}
		facts[0].Reads[schedule.F] = 1
		if plan, err = lower.Lifetimes(plan, facts, 1); err != nil {
			return nil, err
		}
		for _, segment := range plan.Programs[0] {
			for i, action := range segment.Body {
				segment.Body[i] = action.WithDrop(action.Drop() &^ schedule.Retire)
			}
		}
		return plan, nil
	}
	for _, tc := range []struct {
		name   string
		plan   schedule.Rule
		action schedule.Action // after which the difference is found
		bytes  int64
	}{
		{"saves less", schedule.BreadthFirst, schedule.NewAction(schedule.B, 0, 0), -12},
		{"holds more", unretired, 0, 8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			does := ""
			build := func(dev kernels.Device) *deviced {
				d := newDeviced(dev)
				d.stage.Declares.Losses = []string{objective[0].Name}
				d.stage.ForwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
					mb.Loss(1, 1, 1)
					saved := d.alloc(memory.Saved, 3)
					if does == "saves less" {
						mb.Release(saved)
					} else {
						mb.Save(1, saved)
					}
					return nil
				}
				d.stage.BackwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
					mb.LossSeed(1)
					if does != "saves less" {
						mb.ReleaseSaved(1)
					}
					scratch := d.alloc(memory.ActGrad, 2)
					if does == "holds more" && mb.Index() == 1 {
						mb.Hold(scratch)
					} else {
						mb.Release(scratch)
					}
					return nil
				}
				return d
			}
			profile, err := build(device(t, true)).record()
			require.NoError(t, err)
			does = tc.name
			d := build(device(t, false))
			cfg := d.config()
			cfg.Memory.Profile, cfg.Plan.Rule, cfg.Plan.Unchecked = profile, tc.plan, tc.action == 0
			r := newRunner(t, cfg)
			_, err = r.Step(t.Context(), 2, d)
			var leak *batchctx.LeakError
			require.ErrorAs(t, err, &leak)
			require.Equal(t, tc.bytes, leak.Bytes)
			require.ErrorContains(t, err, "but the memory plan has")
			var where *transport.StepError
			require.ErrorAs(t, err, &where)
			require.Equal(t, tc.action, where.Action.WithDrop(0))
			require.EqualValues(t, 4, d.dev.Live())
		})
	}
}

// spoken is a stage with its own Profile.
type spoken struct {
	*stages.Func[buffer]
	profile layout.StageProfile
}

func (s *spoken) Profile(string) (layout.StageProfile, error) { return s.profile, nil }

// The Profile of a stage that allocates elsewhere is used unchanged.
func TestProfiled(t *testing.T) {
	d := newDeviced(device(t, true))
	cfg := d.config()
	told := layout.StageProfile{Stage: "only", Buffers: []layout.Buffer{{Bytes: 7, Class: memory.Workspace}}}
	cfg.Stages[0] = &spoken{&d.stage, told}
	profile, err := record.Stages(t.Context(), cfg,
		record.Shape[buffer]{Name: "four", Source: d})
	require.NoError(t, err, "it was not called: it has no ForwardFunc")
	require.Equal(t, []layout.StageProfile{told}, profile.Shapes[0].Stages)
}

// An empty profile and a negative budget are refused.
func TestProfileOfAGroup(t *testing.T) {
	d := newDeviced(device(t, true))
	cfg := d.config()
	cfg.Memory.Profile = &layout.Profile{}
	_, err := runner.New(cfg)
	require.ErrorIs(t, err, layout.ErrProfile)
	cfg.Memory.Profile, cfg.Memory.Budget = nil, -1
	_, err = runner.New(cfg)
	require.ErrorContains(t, err, "Budget is -1")
}

// A table that a stage hands over repeatedly is one resident buffer of the profile, on every path
// through the stages. The sets of parts that ranks may want are in ascending order.
func TestRecordResident(t *testing.T) {
	dev := device(t, true)
	d := newDeviced(dev)
	table := d.alloc(memory.Resident, 6)
	wire := []stages.Port{{Name: "positions"}}
	lookup := &stages.Func[buffer]{
		Declares: stages.Spec{Name: "lookup", Reads: []stages.Read{{Part: "x"}, {Part: "y", At: batchctx.AtBackward}}, Outputs: wire},
		ForwardFunc: func(_ context.Context, mb batchctx.Microbatch[buffer], _, out []buffer) error {
			out[0] = mb.Retain(table)
			return nil
		},
		BackwardFunc: func(context.Context, batchctx.Microbatch[buffer], []buffer, []buffer) error { return nil },
		Parameters:   []batchctx.Use[buffer]{{Name: "e", Grad: d.alloc(memory.Resident, 1), Contributes: batchctx.Sometimes}},
	}
	d.stage.Declares.Inputs, d.stage.Declares.Reads, d.stage.Declares.Slots = wire, []stages.Read{{Part: "y"}}, nil
	d.stage.Declares.Losses = []string{objective[0].Name}
	d.stage.ForwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], in, _ []buffer) error {
		require.Equal(t, []buffer{table}, in)
		mb.Loss(1, 1, 1)
		return nil
	}
	d.stage.BackwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, gradIn []buffer) error {
		mb.LossSeed(1)
		gradIn[0] = d.alloc(memory.ActGrad, 6)
		return nil
	}
	cfg := d.config()
	cfg.Stages = []stages.Stage[buffer]{lookup, &d.stage}
	profile, err := record.Stages(t.Context(), cfg, record.Shape[buffer]{Name: "four", Source: runner.Indexed(func(_ context.Context, e batchctx.Entry[buffer]) error {
		e.Put("x", d.alloc(memory.Entry, 4))
		e.Put("y", d.alloc(memory.Entry, 4))
		return nil
	})})
	require.NoError(t, err)
	require.Equal(t, []layout.Buffer{{Bytes: 24, Class: memory.Resident}}, profile.Shapes[0].Stages[0].Buffers)
	var sets []uint64
	for _, e := range profile.Shapes[0].Entries {
		sets = append(sets, e.Parts)
	}
	require.Equal(t, []uint64{0, 1, 2, 3}, sets)
}

// A budget that cannot be enforced is refused, and so are steps and evaluations that exceed their budget.
func TestBudget(t *testing.T) {
	d := newDuo(t)
	nothing := runner.Indexed(func(context.Context, batchctx.Entry[buffer]) error { return nil })
	profile, err := record.Stages(t.Context(), d.config, record.Shape[buffer]{Name: "one", Source: nothing})
	require.NoError(t, err)
	cfg := d.config
	cfg.Memory.Profile, cfg.Memory.Budget, cfg.Spaces, cfg.Gradients = profile, 1, nil, nil
	for _, dev := range d.devices {
		cfg.Spaces = append(cfg.Spaces, dev)
	}
	for says, change := range map[string]func(m *runner.Memory){
		"only with Memory.Profile":             func(m *runner.Memory) { m.Profile = nil },
		"with Memory.Profile":                  func(m *runner.Memory) { m.Profile = (*layout.Profile)(nil) },
		"without Memory.TolerateLeaks":         func(m *runner.Memory) { m.TolerateLeaks = true },
		"is not memory.Planned, so the memory": func(*runner.Memory) { cfg.Spaces[1] = struct{ memory.Space[buffer] }{cfg.Spaces[1]} },
	} {
		kept, spaces := cfg.Memory, slices.Clone(cfg.Spaces)
		change(&cfg.Memory)
		_, err := runner.New(cfg)
		require.ErrorContains(t, err, "Memory.Budget is set")
		require.ErrorContains(t, err, says)
		cfg.Memory, cfg.Spaces = kept, spaces
	}
	cfg.Outputs = func(int, []buffer) error { return nil }
	r := newRunner(t, cfg)
	_, err = r.Evaluate(t.Context(), 3, nothing)
	require.ErrorIs(t, err, layout.ErrBudget, "an evaluation has the same budget, also with Outputs")
	_, err = r.Step(t.Context(), 3, nothing)
	require.ErrorIs(t, err, layout.ErrBudget)
	require.ErrorContains(t, err, "runner: a plan for 3 microbatches: ")
	require.ErrorContains(t, err, "none of the alternatives fits")
}

// counting is a context that counts how often it is asked for its error. A search asks once for every 16
// buffers that it places.
type counting struct {
	context.Context
	asked atomic.Int64
}

func (c *counting) Err() error { c.asked.Add(1); return c.Context.Err() }

// lengths is a source of microbatches of eight lengths, whose classes it announces.
type lengths struct{ *deviced }

func (lengths) Shape(microbatch int) int { return microbatch % 8 }

// TestAPlanForShapesTakesMilliseconds plans the memory of microbatches of eight shapes. By default the
// search places each buffer a few times, and the layout is within 1 % of the peak. For many microbatches, the layout is
// that of the envelope.
func TestAPlanForShapesTakesMilliseconds(t *testing.T) {
	build := func(dev kernels.Device) *deviced {
		d := newDeviced(dev)
		d.stage.Declares.Losses = []string{objective[0].Name}
		d.stage.ForwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
			mb.Loss(1, 1, 1)
			mb.Save(1, mb.Retain(mb.Part(1)))
			mb.SaveFor(batchctx.ByWeight, 2, d.alloc(memory.Saved, mb.Part(1).N/3))
			return nil
		}
		d.stage.BackwardFunc = func(_ context.Context, mb batchctx.Microbatch[buffer], _, _ []buffer) error {
			mb.LossSeed(1)
			n := mb.Take(1).N
			mb.Take(2)
			mb.Release(d.alloc(memory.Workspace, n/2))
			return nil
		}
		return d
	}
	length := func(class int) int { return 100 + class*37 }
	null := build(device(t, true))
	var shapes []record.Shape[buffer]
	for class := range 8 {
		shapes = append(shapes, record.Shape[buffer]{Name: string(rune('a' + class)), Source: runner.Indexed(func(_ context.Context, e batchctx.Entry[buffer]) error {
			e.Put("x", null.alloc(memory.Entry, length(class)))
			return nil
		})})
	}
	profile, err := record.Stages(t.Context(), null.config(), shapes...)
	require.NoError(t, err)
	d := build(device(t, false))
	d.part = func(e batchctx.Entry[buffer]) int { return length(e.Index() % 8) }
	cfg := d.config()
	cfg.Memory.Profile, cfg.Schedule = profile, "depth-first"
	r := newRunner(t, cfg)
	const many = 30_000 // of which each allocates three times
	plan, err := r.Prepare(t.Context(), many, lengths{d})
	require.NoError(t, err)
	require.Equal(t, "envelope of 8 shape classes", plan.(*layout.Memory).Ranks[0].Sizes)
	result := runStep(t, r, many, lengths{d})
	require.LessOrEqual(t, result.Ranks[0].Peak, result.Ranks[0].PeakPlanned)

	cfg.Schedule, cfg.Plan = "breadth-first", runner.Plan{}
	r = newRunner(t, cfg)
	for _, m := range []int{7, 64, 128} {
		ctx := &counting{Context: t.Context()}
		plan, err := r.Prepare(ctx, m, lengths{d})
		require.NoError(t, err)
		rank := &plan.(*layout.Memory).Ranks[0]
		require.LessOrEqual(t, ctx.asked.Load(), int64(rank.Buffers), "%d microbatches: asked once for 16 placements", m)
		require.LessOrEqual(t, rank.Height-rank.Bound, rank.Bound/100, "%d microbatches", m)
		runStep(t, r, m, lengths{d})
	}
}
