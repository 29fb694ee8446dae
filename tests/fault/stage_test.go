package fault_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// crooked is a stage with an additional function at the end of a call: of Forward if kind is F,
// of Backward if it is B.
type crooked struct {
	stage
	kind       schedule.Kind
	microbatch int
	armed      *bool
	do         func(mb view, given, made []tensor) error
}

func (c *crooked) Unwrap() stage { return c.stage }

func (c *crooked) Forward(ctx context.Context, mb view, in, out []tensor) error {
	return c.after(schedule.F, mb, in, out, c.stage.Forward(ctx, mb, in, out))
}

func (c *crooked) Backward(ctx context.Context, mb view, gradOut, gradIn []tensor) error {
	return c.after(schedule.B, mb, gradOut, gradIn, c.stage.Backward(ctx, mb, gradOut, gradIn))
}

func (c *crooked) after(kind schedule.Kind, mb view, given, made []tensor, err error) error {
	if err != nil || !*c.armed || kind != c.kind || mb.Index() != c.microbatch {
		return err
	}
	return c.do(mb, given, made)
}

// TestStageMistakes makes one stage return the wrong tensor, or treat a borrowed one as its
// own. The step ends at that action, or with that microbatch.
func TestStageMistakes(t *testing.T) {
	const m = 3
	both := []schedule.Kind{schedule.F, schedule.B}
	for _, c := range []struct {
		name  string
		kinds []schedule.Kind
		want  error
		do    func(r *rig) func(mb view, given, made []tensor) error
	}{
		{"leaves out a tensor", both, memory.ErrNone, func(r *rig) func(view, []tensor, []tensor) error {
			return func(mb view, _, made []tensor) error {
				h := made[0]
				made[0] = tensor{}
				mb.Release(h)
				return nil
			}
		}},
		{"hands over a stale tensor", both, memory.ErrStale, func(r *rig) func(view, []tensor, []tensor) error {
			return func(mb view, _, made []tensor) error { mb.Release(made[0]); return nil }
		}},
		{"hands over a tensor of another arena", both, memory.ErrOtherArena, func(r *rig) func(view, []tensor, []tensor) error {
			other := newPool(r.t, &r.events, 1<<20)
			return func(_ view, _, made []tensor) error {
				made[0] = twin(r.t, other, made[0])
				return nil
			}
		}},
		{"returns a borrowed tensor", both, memory.ErrNoPlain, func(r *rig) func(view, []tensor, []tensor) error {
			return func(mb view, given, made []tensor) error {
				h := made[0]
				made[0] = given[0]
				mb.Release(h)
				return nil
			}
		}},
		{"fails with its hands full", both, errPlanted, func(r *rig) func(view, []tensor, []tensor) error {
			return func(mb view, given, made []tensor) error {
				mb.Retain(given[0])
				_, _, err := r.pool.alloc(memory.Workspace, 9)
				require.NoError(t, err)
				return errPlanted
			}
		}},
		{"keeps a workspace", both, batchctx.ErrLeak, func(r *rig) func(view, []tensor, []tensor) error {
			return func(view, []tensor, []tensor) error {
				_, _, err := r.pool.alloc(memory.Workspace, 9)
				return err
			}
		}},
		{"keeps its own tensor", both, batchctx.ErrLeak, func(r *rig) func(view, []tensor, []tensor) error {
			return func(_ view, _, made []tensor) error { return r.pool.Retain(made[0]) }
		}},
		{"keeps a borrowed tensor", both, batchctx.ErrLeak, func(r *rig) func(view, []tensor, []tensor) error {
			return func(_ view, given, _ []tensor) error { return r.pool.Retain(given[0]) }
		}},
		{"fills a port without a gradient", []schedule.Kind{schedule.B}, batchctx.ErrLeak, func(r *rig) func(view, []tensor, []tensor) error {
			return func(_ view, _, made []tensor) (err error) {
				made[1], _, err = r.pool.alloc(memory.ActGrad, 9)
				return err
			}
		}},
	} {
		for _, kind := range c.kinds {
			for _, rule := range []schedule.Rule{schedule.DepthFirst, schedule.BreadthFirst} {
				for at := range m {
					t.Run(fmt.Sprintf("%s/%v of microbatch %d", c.name, kind, at), func(t *testing.T) {
						armed := false
						build := func(t testing.TB, model *model) []stage {
							all := []stage{model.embed("embed"), model.mix("mix a", "a"), model.mix("mix b", "b"), model.head()}
							all[1] = &crooked{stage: all[1], kind: kind, microbatch: at, armed: &armed}
							return all
						}
						d := design{build: build, rule: rule, capacity: 1 << 20}
						never := newRig(t, d)
						var bend *crooked
						d.build = func(t testing.TB, model *model) []stage {
							all := build(t, model)
							bend = all[1].(*crooked)
							return all
						}
						broken := newRig(t, d)
						bend.do = c.do(broken)
						require.Equal(t, never.clean(schedule.Training, m), broken.clean(schedule.Training, m))
						before := broken.pool.book()
						armed = true
						broken.events.plan(-1, returns, nil)
						result, err := broken.step(context.Background(), schedule.Training, m)
						armed = false
						require.Nil(t, result)
						require.ErrorIs(t, err, c.want)
						if leak := (*batchctx.LeakError)(nil); c.want == batchctx.ErrLeak {
							require.ErrorAs(t, err, &leak)
							require.Equal(t, at, leak.Microbatch, "%v", err)
						} else {
							var typed *runner.Error
							require.ErrorAs(t, err, &typed)
							require.Equal(t, schedule.Act(kind, 1, at), typed.Action.WithDrop(0))
							require.Equal(t, "mix a", typed.Name)
						}
						requireReleased(t, before, broken.pool.book())
						require.Equal(t, never.clean(schedule.Training, m), broken.clean(schedule.Training, m))
					})
				}
			}
		}
	}
}

// misplaced is a stage on another arena, with its gradients on the right one, as New requires.
type misplaced struct {
	stage
	params []batchctx.Use[tensor]
}

func (m *misplaced) Params() []batchctx.Use[tensor] { return m.params }

// TestStageOnAnotherArena builds one stage on the arena of another rank, which has buffers in
// all slots that the stage borrows.
func TestStageOnAnotherArena(t *testing.T) {
	d := design{build: whole, rule: schedule.DepthFirst, capacity: 1 << 20}
	other := newRig(t, d)
	for range 64 {
		_, _, err := other.pool.alloc(memory.Saved, 99)
		require.NoError(t, err)
	}
	d.build = func(t testing.TB, m *model) []stage {
		all := whole(t, m)
		all[1] = &misplaced{other.model.mix("mix a", "a"), stages.Params(all[1])}
		return all
	}
	wrong := newRig(t, d)
	before := [2]book{other.pool.book(), wrong.pool.book()}
	_, err := wrong.step(context.Background(), schedule.Training, 2)
	require.ErrorIs(t, err, memory.ErrOtherArena)
	require.ErrorContains(t, err, "mix a")
	requireReleased(t, before[0], other.pool.book())
	requireReleased(t, before[1], wrong.pool.book())
}

// TestOneStepAtATime calls the runner from within its own step, in all user code. The inner
// call fails and changes nothing.
func TestOneStepAtATime(t *testing.T) {
	d := design{build: whole, rule: schedule.DepthFirst, capacity: 1 << 20}
	r, never := newRig(t, d), newRig(t, d)
	ask := func() {
		_, err := r.runner.Step(context.Background(), 1, runner.Indexed(r.source()))
		require.ErrorIs(t, err, runner.ErrBusy)
		_, err = r.runner.Evaluate(context.Background(), 1, runner.Indexed(r.source()))
		require.ErrorIs(t, err, runner.ErrBusy)
		require.ErrorIs(t, r.runner.Close(), runner.ErrBusy)
	}
	before := r.pool.book()
	r.events.plan(-1, returns, nil)
	result, err := r.run(context.Background(), schedule.Training, 3, func(_ context.Context, e entry) error {
		ask()
		return r.fill(e)
	})
	require.NoError(t, err)
	require.Equal(t, never.clean(schedule.Training, 3), r.settle(schedule.Training, result))
	requireReleased(t, before, r.pool.book())
}

// TestRefusedBeforeItBegins covers errors before a step begins.
func TestRefusedBeforeItBegins(t *testing.T) {
	d := design{build: whole, rule: schedule.DepthFirst, capacity: 1 << 20}
	r, never := newRig(t, d), newRig(t, d)
	before := r.pool.book()
	unasked := func(context.Context, entry) error { t.Fatal("the source is not asked"); return nil }
	for _, m := range []int{0, -1, schedule.MaxMicrobatches + 1} {
		for _, mode := range []schedule.Mode{schedule.Training, schedule.ForwardOnly} {
			_, err := r.run(context.Background(), mode, m, unasked)
			require.ErrorIs(t, err, schedule.ErrParams)
			require.ErrorContains(t, err, fmt.Sprint(m))
		}
	}
	_, err := r.runner.Step(context.Background(), 1, nil)
	require.ErrorContains(t, err, "source is nil")

	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errCancelled)
	_, err = r.run(ctx, schedule.Training, 3, unasked)
	require.ErrorIs(t, err, errCancelled)
	var typed *runner.Error
	require.ErrorAs(t, err, &typed)
	require.Equal(t, schedule.Act(schedule.F, 0, 0), typed.Action.WithDrop(0))
	requireReleased(t, before, r.pool.book())
	require.Equal(t, never.clean(schedule.Training, 3), r.clean(schedule.Training, 3))
}

// TestSmallArena gives a step too little memory, by every size up to a sufficient one: it fails
// with ErrOutOfMemory and releases everything, or it works.
func TestSmallArena(t *testing.T) {
	for _, rule := range []schedule.Rule{schedule.DepthFirst, schedule.BreadthFirst} {
		d := design{build: whole, rule: rule, capacity: 1 << 20}
		never := newRig(t, d)
		want := never.clean(schedule.Training, 3)
		failed, worked := 0, 0
		for d.capacity = 64 * 8; worked < 3; d.capacity += 64 {
			r := newRig(t, d)
			before := r.pool.book()
			result, err := r.step(context.Background(), schedule.Training, 3)
			if err == nil {
				require.Equal(t, want, r.settle(schedule.Training, result))
				worked++
			} else {
				require.Zero(t, worked, "more memory is worse: %v", err)
				require.ErrorIs(t, err, memory.ErrOutOfMemory)
				var typed *runner.Error
				require.ErrorAs(t, err, &typed)
				failed++
			}
			requireReleased(t, before, r.pool.book())
		}
		require.Greater(t, failed, 3)
	}
}

// TestOutputsAreTheSinks keeps the outputs of an evaluation: the sink owns them, so that they
// are not a leak of the step.
func TestOutputsAreTheSinks(t *testing.T) {
	d := design{build: whole, rule: schedule.DepthFirst, capacity: 1 << 20}
	r := newRig(t, d)
	before := r.pool.book()
	var kept []tensor
	r.keep = func(out []tensor) { kept = append(kept, out...) }
	r.events.plan(-1, returns, nil)
	_, err := r.step(context.Background(), schedule.ForwardOnly, 3)
	require.NoError(t, err)
	require.Len(t, kept, 3)
	for _, h := range kept {
		_, err := r.pool.view(h)
		require.NoError(t, err)
		_, err = r.pool.Release(h)
		require.NoError(t, err)
	}
	requireReleased(t, before, r.pool.book())
}
