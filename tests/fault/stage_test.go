package fault_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/transport"
)

// mistaken is a stage that makes a mistake at the end of a call, once it is armed: of Forward if
// kind is F, of Backward if it is B.
type mistaken struct {
	stage
	kind       schedule.Kind
	microbatch int
	armed      bool
	mistake    func(mb view, given, made []tensor) error
}

func (s *mistaken) Unwrap() stage { return s.stage }

func (s *mistaken) Forward(ctx context.Context, mb view, in, out []tensor) error {
	return s.end(schedule.F, mb, in, out, s.stage.Forward(ctx, mb, in, out))
}

func (s *mistaken) Backward(ctx context.Context, mb view, gradOut, gradIn []tensor) error {
	return s.end(schedule.B, mb, gradOut, gradIn, s.stage.Backward(ctx, mb, gradOut, gradIn))
}

func (s *mistaken) end(kind schedule.Kind, mb view, given, made []tensor, err error) error {
	if err != nil || !s.armed || kind != s.kind || mb.Index() != s.microbatch {
		return err
	}
	return s.mistake(mb, given, made)
}

// stageMistakes are mistakes of a call with the arguments given and the results made, each with the
// expected error.
var stageMistakes = []struct {
	name  string
	kinds []schedule.Kind
	want  error
	make  func(r *rig, mb view, given, made []tensor) error
}{
	{"leaves out a tensor", forwardAndBackward, memory.ErrNone, func(_ *rig, mb view, _, made []tensor) error {
		h := made[0]
		made[0] = tensor{}
		mb.Release(h)
		return nil
	}},
	{"returns a stale tensor", forwardAndBackward, memory.ErrStale, func(_ *rig, mb view, _, made []tensor) error {
		mb.Release(made[0])
		return nil
	}},
	{"returns a tensor of another arena", forwardAndBackward, memory.ErrOtherArena, func(r *rig, _ view, _, made []tensor) error {
		made[0] = twin(r.t, newPool(r.t, &r.events, 1<<20), made[0])
		return nil
	}},
	{"returns a borrowed tensor", forwardAndBackward, memory.ErrNoPlain, func(_ *rig, mb view, given, made []tensor) error {
		h := made[0]
		made[0] = given[0]
		mb.Release(h)
		return nil
	}},
	{"fails while it owns buffers", forwardAndBackward, errPlanted, func(r *rig, mb view, given, _ []tensor) error {
		mb.Retain(given[0])
		_, _, err := r.pool.alloc(memory.Workspace, 9)
		require.NoError(r.t, err)
		return errPlanted
	}},
	{"keeps a workspace", forwardAndBackward, batchctx.ErrLeak, func(r *rig, _ view, _, _ []tensor) error {
		_, _, err := r.pool.alloc(memory.Workspace, 9)
		return err
	}},
	{"keeps its own tensor", forwardAndBackward, batchctx.ErrLeak, func(r *rig, _ view, _, made []tensor) error {
		return r.pool.Retain(made[0])
	}},
	{"keeps a borrowed tensor", forwardAndBackward, batchctx.ErrLeak, func(r *rig, _ view, given, _ []tensor) error {
		return r.pool.Retain(given[0])
	}},
	{"fills a port without a gradient", []schedule.Kind{schedule.B}, batchctx.ErrLeak, func(r *rig, _ view, _, made []tensor) (err error) {
		made[1], _, err = r.pool.alloc(memory.ActGrad, 9)
		return err
	}},
}

var forwardAndBackward = []schedule.Kind{schedule.F, schedule.B}

// TestStageMistakes makes one stage return the wrong tensor, or treat a borrowed tensor as one that it
// owns. The step ends at that action, or with that microbatch.
func TestStageMistakes(t *testing.T) {
	const m = 3
	for _, c := range stageMistakes {
		for _, kind := range c.kinds {
			for _, rule := range []schedule.Rule{schedule.DepthFirst, schedule.BreadthFirst} {
				for at := range m {
					t.Run(fmt.Sprintf("%s/%v of microbatch %d", c.name, kind, at), func(t *testing.T) {
						var last *mistaken
						d := design{rule: rule, capacity: 1 << 20, build: func(_ testing.TB, m *model) []stage {
							last = &mistaken{stage: m.mix("mix a", "a"), kind: kind, microbatch: at}
							return []stage{m.embed("embed"), last, m.mix("mix b", "b"), m.head()}
						}}
						intact, broken := newRig(t, d), newRig(t, d)
						last.mistake = func(mb view, given, made []tensor) error { return c.make(broken, mb, given, made) }
						require.Equal(t, intact.clean(schedule.Training, m), broken.clean(schedule.Training, m))
						before := broken.pool.book()
						last.armed = true
						broken.events.plan(-1, returns, nil)
						result, err := broken.step(context.Background(), schedule.Training, m)
						last.armed = false
						require.Nil(t, result)
						require.ErrorIs(t, err, c.want)
						if leak := (*batchctx.LeakError)(nil); c.want == batchctx.ErrLeak {
							require.ErrorAs(t, err, &leak)
							require.Equal(t, at, leak.Microbatch, "%v", err)
						} else {
							var typed *transport.StepError
							require.ErrorAs(t, err, &typed)
							require.Equal(t, schedule.NewAction(kind, 1, at), typed.Action.WithDrop(0))
							require.Equal(t, "mix a", typed.Name)
						}
						requireReleased(t, before, broken.pool.book())
						require.Equal(t, intact.clean(schedule.Training, m), broken.clean(schedule.Training, m))
					})
				}
			}
		}
	}
}

// misplaced is a stage on another arena. Its gradients are on the right one, as New requires.
type misplaced struct {
	stage
	params []batchctx.Use[tensor]
}

func (m *misplaced) Params() []batchctx.Use[tensor] { return m.params }

// TestStageOnAnotherArena makes one stage on the arena of another runner. That arena has buffers in the
// slots of all handles that the stage borrows.
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

// TestRefusedBeforeItBegins covers errors before a step begins.
func TestRefusedBeforeItBegins(t *testing.T) {
	d := design{build: whole, rule: schedule.DepthFirst, capacity: 1 << 20}
	r, intact := newRig(t, d), newRig(t, d)
	before := r.pool.book()
	uncalled := func(context.Context, entry) error { t.Fatal("the source was called"); return nil }
	for _, m := range []int{0, -1, schedule.MaxMicrobatches + 1} {
		for _, mode := range []schedule.Mode{schedule.Training, schedule.ForwardOnly} {
			_, err := r.run(context.Background(), mode, m, uncalled)
			require.ErrorIs(t, err, schedule.ErrParams)
			require.ErrorContains(t, err, fmt.Sprint(m))
		}
	}
	_, err := r.runner.Step(context.Background(), 1, nil)
	require.ErrorContains(t, err, "source is nil")

	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errCancelled)
	_, err = r.run(ctx, schedule.Training, 3, uncalled)
	require.ErrorIs(t, err, errCancelled)
	var typed *transport.StepError
	require.ErrorAs(t, err, &typed)
	require.Equal(t, schedule.NewAction(schedule.F, 0, 0), typed.Action.WithDrop(0))
	requireReleased(t, before, r.pool.book())
	require.Equal(t, intact.clean(schedule.Training, 3), r.clean(schedule.Training, 3))
}

// TestSmallArena runs a step in arenas of ever larger sizes, 64 bytes apart, until three have sufficed.
// The step either succeeds, or fails with ErrOutOfMemory and releases everything.
func TestSmallArena(t *testing.T) {
	for _, rule := range []schedule.Rule{schedule.DepthFirst, schedule.BreadthFirst} {
		d := design{build: whole, rule: rule, capacity: 1 << 20}
		intact := newRig(t, d)
		want := intact.clean(schedule.Training, 3)
		failed, worked := 0, 0
		for d.capacity = 64 * 8; worked < 3; d.capacity += 64 {
			r := newRig(t, d)
			before := r.pool.book()
			result, err := r.step(context.Background(), schedule.Training, 3)
			if err == nil {
				require.Equal(t, want, r.readAndUpdate(schedule.Training, result))
				worked++
			} else {
				require.Zero(t, worked, "a step fails with more memory: %v", err)
				require.ErrorIs(t, err, memory.ErrOutOfMemory)
				var typed *transport.StepError
				require.ErrorAs(t, err, &typed)
				failed++
			}
			requireReleased(t, before, r.pool.book())
		}
		require.Greater(t, failed, 3)
	}
}

// TestOutputsAreTheSinks keeps the outputs of an evaluation. The sink owns them, so the step does not
// report a leak.
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
