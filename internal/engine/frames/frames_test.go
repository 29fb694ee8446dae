package frames_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// rig holds frames over an arena with two stages. Stage 0 reads part 0 and returns one tensor. Stage 1 takes
// this tensor and reads part 1 in forward and backward. It saves in three slots, records one loss and has two
// parameters.
type rig struct {
	*frames.Frames[memory.Handle]
	t      *testing.T
	arena  *memory.Arena
	ledger *loss.Ledger
	grads  []memory.Handle
	in     []memory.Handle // if set, receives the inputs of the frame that is opened
}

func newRig(t *testing.T) *rig {
	t.Helper()
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, arena.Close()) })
	r := &rig{t: t, arena: arena}
	for range 2 {
		r.grads = append(r.grads, r.alloc(memory.Resident, 64))
	}
	r.ledger, err = loss.NewLedger([]loss.Def{{Name: "metric", Metric: true}, {Name: "loss", Reduction: loss.Mean, Objective: true}})
	require.NoError(t, err)
	r.Frames = frames.New(frames.Config[memory.Handle]{
		Space: arena, Rank: 3, Seed: 7, Parts: []string{"tokens", "labels", "unread"},
		Losses: r.ledger, Seeds: []float32{0, 4},
		Stages: []*frames.Declaration[memory.Handle]{
			{Name: "bottom", Outputs: 1, Reads: []frames.Read{{Part: 0}}},
			{Name: "top", Inputs: 1, Slots: []string{"x", "mask", "carry"}, Losses: []int{1}, LossNames: []string{"loss"},
				Reads: []frames.Read{{Part: 1, At: frames.AtForward | frames.AtBackward}},
				Params: []frames.Use[memory.Handle]{
					{Name: "w", Grad: r.grads[0]},
					{Name: "s", Grad: r.grads[1], Contributes: frames.Sometimes},
				}},
		},
	})
	r.begin(frames.Train)
	return r
}

func (r *rig) begin(pass frames.Pass) {
	r.ledger.Reset()
	r.Begin(5, pass, frames.Extent{Plan: &schedule.Plan{StageWindows: []int{2, 2}}, EntryWindow: 2, Wanted: []uint64{0b011}})
}

func (r *rig) alloc(class memory.Class, bytes int64) memory.Handle {
	h, err := r.arena.Alloc(class, bytes)
	require.NoError(r.t, err)
	return h
}

func (r *rig) live() int64 { return r.arena.Live() - 128 } // beyond the two gradients

// pull pulls the entry of a microbatch, with 100 bytes per part.
func (r *rig) pull(microbatch int) {
	r.t.Helper()
	require.NoError(r.t, r.pullWith(microbatch, func() error {
		require.Equal(r.t, microbatch, r.EntryIndex())
		for _, part := range []string{"tokens", "labels", "unread"} {
			require.NoError(r.t, r.Put(part, r.alloc(memory.Entry, 100)))
		}
		return nil
	}))
}

// open opens a frame and returns the view of its forward.
func (r *rig) open(stage, microbatch int) view[memory.Handle] {
	r.t.Helper()
	require.NoError(r.t, r.Open(stage, microbatch, r.in))
	return r.Call(stage, microbatch, frames.InForward)
}

func TestEntryPartsDieAtTheirLastRead(t *testing.T) { // L1
	r := newRig(t)
	mb := r.open(0, 1)
	_, err := mb.Part(0)
	require.ErrorIs(t, err, frames.ErrDropped, "not pulled yet")
	r.pull(0)
	require.EqualValues(t, 200, r.live(), "an unwanted part is dropped at once")
	require.Equal(t, frames.Counts{effects.Part: 2, effects.Saved: 1}, r.Counts())

	mb = r.open(0, 0)
	_, err = mb.Part(0)
	require.NoError(t, err)
	_, err = mb.Part(1)
	require.ErrorIs(t, err, frames.ErrUndeclared)
	_ = r.End(nil)
	require.NoError(t, r.DropParts(0, 0b001))
	require.EqualValues(t, 100, r.live())

	mb = r.Call(0, 0, frames.InForward)
	_, err = mb.Part(0)
	require.ErrorIs(t, err, frames.ErrDropped)
	require.ErrorIs(t, r.DropParts(0, 0b001), frames.ErrDropped)

	mb = r.open(1, 0)
	_, err = mb.Part(0)
	require.NoError(t, err, "a stage numbers its own reads")
	mb = r.Call(1, 0, frames.InBackwardWeight)
	_, err = mb.Part(0)
	require.ErrorIs(t, err, frames.ErrUndeclared, "not declared for W")
	mb = r.Call(1, 0, frames.InBackward)
	_, err = mb.Part(0)
	require.NoError(t, err)
	mb = r.Call(1, 2, frames.InBackward)
	_, err = mb.Part(0)
	require.ErrorIs(t, err, frames.ErrDropped, "microbatch 2 shares the place of microbatch 0, not its entry")
}

func TestAViewIsValidForItsCallAlone(t *testing.T) {
	r := newRig(t)
	r.open(0, 0)
	during := r.Generation()
	require.NoError(t, r.End(nil))
	require.NotEqual(t, during, r.Generation(), "a microbatch that was kept has ended before the next call begins")
}

func TestSourceMustPutWhatIsWanted(t *testing.T) {
	r := newRig(t)
	err := r.pullWith(0, func() error {
		for part, want := range map[string]bool{"tokens": true, "unread": false, "none": false} {
			wants, _ := r.Wants(part)
			require.Equal(t, want, wants, part)
		}
		require.NoError(t, r.Put("tokens", r.alloc(memory.Entry, 8)))
		live := r.live()
		require.ErrorIs(t, r.Put("tokens", r.alloc(memory.Entry, 8)), frames.ErrOccupied)
		other := r.alloc(memory.Entry, 8)
		require.ErrorIs(t, r.Put("none", other), frames.ErrUnread)
		require.ErrorIs(t, r.Put("labels", other), memory.ErrStale)
		require.Equal(t, live, r.live(), "a refused part is released")
		return nil
	})
	require.ErrorIs(t, err, frames.ErrMissing)
	require.ErrorContains(t, err, "labels")
	r.Abort()
	require.Zero(t, r.live())
}

func TestSavedStateIsTakenOnce(t *testing.T) { // L2
	r := newRig(t)
	mb := r.open(1, 0)
	require.NoError(t, mb.Save(0, frames.ByBackward, r.alloc(memory.Saved, 10)))
	require.NoError(t, mb.Save(2, frames.ByWeight, r.alloc(memory.Saved, 1000)))
	other := r.alloc(memory.Saved, 1)
	require.ErrorIs(t, mb.Save(0, frames.ByBackward, other), frames.ErrOccupied)
	require.ErrorIs(t, mb.Save(3, frames.ByBackward, other), frames.ErrUndeclared)
	require.NoError(t, mb.Release(other))
	_, err := mb.Take(0)
	require.ErrorIs(t, err, frames.ErrMisplaced)
	_ = r.End(nil)
	require.EqualValues(t, 1010, r.live())

	mb = r.Call(1, 0, frames.InBackwardInput)
	h, err := mb.Take(0)
	require.NoError(t, err)
	data, err := r.arena.Data(h)
	require.NoError(t, err)
	require.Len(t, data, 10)
	_, err = mb.Take(0)
	require.ErrorIs(t, err, frames.ErrTaken)
	_, err = mb.Take(1)
	require.ErrorIs(t, err, frames.ErrEmpty)
	_, err = mb.Take(2)
	require.ErrorIs(t, err, frames.ErrMisplaced)
	require.ErrorIs(t, mb.End(2), frames.ErrMisplaced)
	require.NoError(t, mb.End(0))
	require.EqualValues(t, 1000, r.live(), "End releases it before the action does")
	_, err = mb.Take(0)
	require.ErrorIs(t, err, frames.ErrTaken)
	require.NoError(t, mb.Save(1, frames.ByWeight, r.alloc(memory.Carry, 100)))
	spare := r.alloc(memory.Carry, 1)
	require.ErrorIs(t, mb.Save(0, frames.ByBackward, spare), frames.ErrMisplaced, "nothing would take it")
	require.NoError(t, mb.Release(spare))
	_ = r.End(nil)
	require.NoError(t, r.DropSaved(1, 0, frames.InBackwardInput, false))
	require.EqualValues(t, 1100, r.live())

	mb = r.Call(1, 0, frames.InBackwardWeight)
	_, err = mb.Take(1)
	require.NoError(t, err)
	_ = r.End(nil)
	require.NoError(t, r.DropSaved(1, 0, frames.InBackwardWeight, true))
	require.Zero(t, r.live(), "the frame releases all its slots, taken or not")
	require.NoError(t, r.Audit(frames.Counts{}))

	mb = r.Call(1, 0, frames.InBackward)
	_, err = mb.Take(0)
	require.ErrorIs(t, err, frames.ErrTaken, "the frame is gone")

	require.NoError(t, r.open(1, 2).Save(0, frames.ByBackward, r.alloc(memory.Saved, 10)))
	_, err = r.Call(1, 0, frames.InBackward).Take(0)
	require.ErrorIs(t, err, frames.ErrTaken, "microbatch 2 has the place of microbatch 0, whose frame is gone")
}

func TestATensorSavedTwiceCountsOnce(t *testing.T) { // L6
	r := newRig(t)
	h := r.alloc(memory.Activation, 100)
	out := []memory.Handle{h}
	require.NoError(t, r.PutAt(effects.Input, 1, 0, out, 0))
	require.Equal(t, memory.Handle{}, out[0], "handed over")
	r.in = make([]memory.Handle, 1)
	mb := r.open(1, 0)
	require.NoError(t, mb.Save(0, frames.ByBackward, mb.Retain(r.in[0])))
	require.NoError(t, mb.Save(1, frames.ByBackward, mb.Retain(r.in[0])))
	_ = r.End(nil)
	require.EqualValues(t, 100, r.Live())
	require.NoError(t, r.DropAt(effects.Input, 1, 0))
	require.EqualValues(t, 100, r.Live())
	require.NoError(t, r.Audit(frames.Counts{effects.Saved: 1}))
	require.NoError(t, r.DropSaved(1, 0, frames.InBackward, true))
	require.Zero(t, r.Live())
	require.Zero(t, r.live())
	require.NoError(t, r.Audit(frames.Counts{}))
}

func TestBorrowedHandlesCannotBeHandedOver(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.PutAt(effects.Input, 1, 0, []memory.Handle{r.alloc(memory.Activation, 100)}, 0))
	r.in = make([]memory.Handle, 1)
	mb := r.open(1, 0)
	require.Error(t, mb.Save(0, frames.ByBackward, r.in[0]), "Retain it first")
	require.Error(t, mb.Release(r.in[0]), "it is not the stage's")
	require.Error(t, mb.Save(0, frames.ByBackward, memory.Handle{}))
}

func TestMissingTensors(t *testing.T) {
	r := newRig(t)
	require.ErrorIs(t, r.Open(1, 0, make([]memory.Handle, 1)), frames.ErrMissing)
	require.ErrorIs(t, r.Gradients(0, 0, make([]memory.Handle, 1), 0), frames.ErrMissing)
	require.NoError(t, r.Gradients(0, 0, make([]memory.Handle, 1), 1), "a port without gradient")
	err := r.PutAt(effects.Input, 1, 0, make([]memory.Handle, 1), 0)
	require.ErrorIs(t, err, memory.ErrNone)
	require.ErrorIs(t, err, frames.ErrMissing)
	require.NoError(t, r.PutAt(effects.Input, 1, 0, []memory.Handle{r.alloc(memory.Activation, 1)}, 0))
	require.ErrorIs(t, r.PutAt(effects.Input, 1, 2, []memory.Handle{r.alloc(memory.Activation, 1)}, 0), frames.ErrOccupied)
	_ = r.open(0, 0)
	require.ErrorIs(t, r.Open(0, 2, nil), frames.ErrOccupied)
	r.pull(0)
	require.ErrorIs(t, r.pullWith(0, func() error { return nil }), frames.ErrOccupied)
	r.Abort()
	require.Zero(t, r.live())
}

func TestGradientsCountContributions(t *testing.T) { // L5
	r := newRig(t)
	mb := r.open(1, 0)
	_, _, err := mb.Grad(0)
	require.ErrorIs(t, err, frames.ErrMisplaced)
	mb = r.Call(1, 0, frames.InBackwardInput)
	_, _, err = mb.Grad(0)
	require.ErrorIs(t, err, frames.ErrMisplaced)

	mb = r.Call(1, 0, frames.InBackward)
	g, write, err := mb.Grad(0)
	require.NoError(t, err)
	require.Equal(t, r.grads[0], g)
	require.Equal(t, frames.First, write)
	_, _, err = mb.Grad(0)
	require.ErrorIs(t, err, frames.ErrContribution)
	_, _, err = mb.Grad(2)
	require.ErrorIs(t, err, frames.ErrUndeclared)

	mb = r.Call(1, 1, frames.InBackwardWeight)
	_, write, err = mb.Grad(0)
	require.NoError(t, err)
	require.Equal(t, frames.Add, write)

	require.NoError(t, r.Contributions(1, 2))
	require.ErrorIs(t, r.Contributions(1, 3), frames.ErrContribution)
	require.True(t, r.Written(1, 0))
	require.False(t, r.Written(1, 1))

	r.begin(frames.Train)
	require.ErrorIs(t, r.Contributions(1, 1), frames.ErrContribution, "a new step counts anew")
	mb = r.Call(1, 0, frames.InBackward)
	_, write, err = mb.Grad(0)
	require.NoError(t, err)
	require.Equal(t, frames.First, write)
}

func TestLossesAreTwoNumbers(t *testing.T) { // L3, L10, L13
	r := newRig(t)
	mb := r.open(1, 0)
	require.NoError(t, mb.Loss(0, 6, 3))
	require.ErrorIs(t, mb.Loss(0, 6, -1), loss.ErrWeight)
	require.ErrorIs(t, mb.Loss(1, 6, 1), frames.ErrUndeclared)
	seed, err := mb.LossSeed(0)
	require.NoError(t, err)
	require.EqualValues(t, 4, seed, "the stage's loss 0 is the ledger's loss 1")

	access := mb.Access()
	access.Pass = frames.Recompute
	mb.SetAccess(access)
	require.NoError(t, mb.Loss(0, 100, 100), "discarded in a recompute")
	_ = r.End(nil)
	mb = r.Call(1, 0, frames.InBackward)
	require.ErrorIs(t, mb.Loss(0, 1, 1), frames.ErrMisplaced)

	var record loss.Record
	require.NoError(t, r.ledger.Finish(&record))
	totals, err := r.ledger.Totals(&record)
	require.NoError(t, err)
	require.Equal(t, 2.0, totals.Values[1].Value)
	require.False(t, totals.Values[0].Present)
}

func TestScopesShiftAndDiscard(t *testing.T) {
	r := newRig(t)
	mb := r.open(1, 0)
	mb.SetAccess(batchctx.Access{Slots: mb.Access().Slots.Sub(1, 2), Params: mb.Access().Params.Sub(1, 1)})
	require.NoError(t, mb.Save(0, frames.ByBackward, r.alloc(memory.Saved, 10)))
	require.ErrorIs(t, mb.Save(2, frames.ByBackward, memory.Handle{}), frames.ErrUndeclared)
	require.ErrorIs(t, mb.Save(-1, frames.ByBackward, memory.Handle{}), frames.ErrUndeclared, "its neighbour's")
	mb.SetAccess(batchctx.Access{Slots: frames.Range{Count: 3}, Discard: true})
	require.NoError(t, mb.Save(0, frames.ByBackward, r.alloc(memory.Saved, 10)))
	require.EqualValues(t, 10, r.live(), "a discarding access releases saved tensors at once")
	_ = r.End(nil)
	mb = r.Call(1, 0, frames.InBackward)
	_, err := mb.Take(0)
	require.ErrorIs(t, err, frames.ErrEmpty)
	_, err = mb.Take(1)
	require.NoError(t, err)
	mb.SetAccess(batchctx.Access{Params: frames.Range{First: 1, Count: 1}})
	g, _, err := mb.Grad(0)
	require.NoError(t, err)
	require.Equal(t, r.grads[1], g)

	r.Abort()
	r.begin(frames.Eval)
	mb = r.open(1, 0)
	require.NoError(t, mb.Save(0, frames.ByBackward, r.alloc(memory.Saved, 10)))
	require.Zero(t, r.live(), "nothing would take it in Eval")
}

func TestViewsEndWithTheirCall(t *testing.T) {
	r := newRig(t)
	r.pull(0)
	mb := r.open(1, 0)
	_ = r.End(nil)
	h := r.alloc(memory.Saved, 1)
	_, err := mb.Part(0)
	require.ErrorIs(t, err, frames.ErrEnded)
	_, err = mb.Take(0)
	require.ErrorIs(t, err, frames.ErrEnded)
	_, _, err = mb.Grad(0)
	require.ErrorIs(t, err, frames.ErrEnded)
	_, err = mb.LossSeed(0)
	require.ErrorIs(t, err, frames.ErrEnded)
	require.ErrorIs(t, mb.Save(0, frames.ByBackward, h), frames.ErrEnded)
	require.ErrorIs(t, mb.Loss(0, 1, 1), frames.ErrEnded)
}

func TestAuditNamesTheAction(t *testing.T) { // L6
	for name, tc := range map[string]struct {
		leak  func(r *rig)
		plan  frames.Counts
		want  frames.LeakError
		words string
	}{
		"a workspace that is not released": {
			leak: func(r *rig) {
				r.open(1, 0)
				r.alloc(memory.Workspace, 40)
				_ = r.End(nil)
				r.UpdateExcess()
				require.NoError(r.t, r.DropSaved(1, 0, frames.InForward, true))
				r.open(0, 1) // a later action does not cause the leak
				_ = r.End(nil)
				r.UpdateExcess()
			},
			plan: frames.Counts{effects.Saved: 1},
			want: frames.LeakError{Stage: 1, Name: "top", Call: frames.InForward, Class: memory.Workspace, Bytes: 40},
		},
		"a saved tensor that is kept": {
			leak: func(r *rig) {
				mb := r.open(1, 0)
				h := r.alloc(memory.Saved, 50)
				mb.Retain(h)
				require.NoError(r.t, mb.Save(0, frames.ByBackward, h))
				_ = r.End(nil)
				r.UpdateExcess()
				r.Call(1, 0, frames.InBackward)
				_ = r.End(nil)
				require.NoError(r.t, r.DropSaved(1, 0, frames.InBackward, true))
				r.UpdateExcess()
			},
			want: frames.LeakError{Stage: 1, Name: "top", Call: frames.InBackward, Class: memory.Saved, Bytes: 50},
		},
		"an input that the stage before keeps": {
			leak: func(r *rig) {
				h := r.alloc(memory.Activation, 60)
				require.NoError(r.t, r.arena.Retain(h))
				require.NoError(r.t, r.PutAt(effects.Input, 1, 0, []memory.Handle{h}, 0))
				r.in = make([]memory.Handle, 1)
				r.open(1, 0)
				_ = r.End(nil)
				require.NoError(r.t, r.DropAt(effects.Input, 1, 0))
				r.UpdateExcess()
			},
			plan:  frames.Counts{effects.Saved: 1},
			want:  frames.LeakError{Stage: 1, Name: "top", Call: frames.InForward, Class: memory.Activation, Bytes: 60},
			words: "is still referenced, by stage 0 (bottom), which returned it",
		},
		"a frame that never ends": {
			leak:  func(r *rig) { r.open(1, 0); _ = r.End(nil); r.UpdateExcess() },
			want:  frames.LeakError{Stage: 1, Name: "top", Call: frames.InForward, Class: memory.Saved},
			words: "1 frames are alive, but the plan has 0",
		},
		"two leaks of the same size": { // the error names the first class
			leak: func(r *rig) {
				r.open(1, 0)
				r.alloc(memory.Workspace, 40)
				r.alloc(memory.Saved, 40)
				_ = r.End(nil)
				r.UpdateExcess()
			},
			plan: frames.Counts{effects.Saved: 1},
			want: frames.LeakError{Stage: 1, Name: "top", Call: frames.InForward, Class: memory.Saved, Bytes: 80},
		},
		"a leak that another class hides in the total": {
			leak: func(r *rig) {
				mb := r.open(1, 0)
				require.NoError(r.t, mb.Save(0, frames.ByBackward, r.alloc(memory.Saved, 50)))
				_ = r.End(nil)
				r.arena.Reclaim(0)
				r.alloc(memory.Workspace, 50)
				r.UpdateExcess()
			},
			plan:  frames.Counts{effects.Saved: 1},
			want:  frames.LeakError{Stage: 1, Name: "top", Call: frames.InForward, Class: memory.Workspace, Bytes: 50},
			words: "hides it in the total",
		},
		"a buffer freed elsewhere": {
			leak: func(r *rig) {
				mb := r.open(1, 0)
				require.NoError(r.t, mb.Save(0, frames.ByBackward, r.alloc(memory.Saved, 50)))
				_ = r.End(nil)
				r.arena.Reclaim(0)
				r.UpdateExcess()
			},
			plan:  frames.Counts{effects.Saved: 1},
			want:  frames.LeakError{Stage: 1, Name: "top", Call: frames.InForward, Class: memory.Saved, Bytes: -50},
			words: "freed elsewhere",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			tc.leak(r)
			err := r.Audit(tc.plan)
			require.ErrorIs(t, err, frames.ErrLeak)
			var leak *frames.LeakError
			require.True(t, errors.As(err, &leak))
			require.ErrorContains(t, err, tc.words)
			tc.want.Rank = 0
			leak.What, leak.Rank = "", 0
			require.Equal(t, tc.want, *leak)
		})
	}
}

// TestTheProducerOfAKeptInputIsBlamed tests a chain of three stages.
func TestTheProducerOfAKeptInputIsBlamed(t *testing.T) { // L6
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	defer arena.Close()
	c := frames.New(frames.Config[memory.Handle]{Space: arena, Stages: []*frames.Declaration[memory.Handle]{
		{Name: "low", Outputs: 1}, {Name: "middle", Inputs: 1, Outputs: 1}, {Name: "high", Inputs: 1},
	}})
	c.Begin(0, frames.Train, frames.Extent{Plan: &schedule.Plan{StageWindows: []int{1, 1, 1}}})
	h, err := arena.Alloc(memory.Activation, 8)
	require.NoError(t, err)
	require.NoError(t, arena.Retain(h))
	require.NoError(t, c.PutAt(effects.Input, 2, 0, []memory.Handle{h}, 0))
	c.Act(2, 0)
	require.NoError(t, c.DropAt(effects.Input, 2, 0))
	require.ErrorContains(t, c.Audit(frames.Counts{}), "is still referenced, by stage 1 (middle), which returned it")
}

// TestAFrameBeginsEmpty checks that a new frame holds nothing of an earlier microbatch in the same
// place.
func TestAFrameBeginsEmpty(t *testing.T) {
	r := newRig(t)
	for m := range 2 {
		mb := r.open(1, 2*m)
		if m == 0 {
			require.NoError(t, mb.Save(0, frames.ByBackward, r.alloc(memory.Saved, 8)))
		}
		mb = r.Call(1, 2*m, frames.InBackward)
		require.ErrorIs(t, mb.End(1), frames.ErrMisplaced, "nothing was saved there")
		_, err := mb.Take(0)
		require.Equal(t, m == 1, errors.Is(err, frames.ErrEmpty), err)
		_ = r.End(nil)
		require.NoError(t, r.DropSaved(1, 2*m, frames.InBackward, true))
	}
}

// TestAScopeIsWithinTheStages checks that SetAccess cuts off numbers that the stage does not
// have.
func TestAScopeIsWithinTheStages(t *testing.T) {
	r := newRig(t)
	mb := r.open(1, 0)
	all := frames.Range{Count: 99}
	mb.SetAccess(batchctx.Access{Slots: all, Reads: all, Losses: all, Params: all})
	require.Equal(t, batchctx.Access{
		Slots: frames.Range{Count: 3}, Reads: frames.Range{Count: 1}, Losses: frames.Range{Count: 1}, Params: frames.Range{Count: 2},
	}, mb.Access())
	for _, outside := range []frames.Range{{First: -1, Count: 2}, {First: 4, Count: 1}} {
		mb.SetAccess(batchctx.Access{Slots: outside})
		require.Equal(t, batchctx.Access{}, mb.Access())
		require.ErrorIs(t, mb.Save(0, frames.ByBackward, memory.Handle{}), frames.ErrUndeclared)
	}
}

func TestAuditWithoutAnAllocatorsBook(t *testing.T) {
	space := memory.NewGCSpace[*int](func(*int) memory.Class { return memory.Saved }, func(*int) int64 { return 8 })
	c := frames.New(frames.Config[*int]{Space: space, Stages: []*frames.Declaration[*int]{{Name: "only", Slots: []string{"x"}}}})
	require.Equal(t, 1, c.Books())
	c.Begin(0, frames.Train, frames.Extent{Plan: &schedule.Plan{StageWindows: []int{1}}, EntryWindow: 1})
	require.NoError(t, c.Open(0, 0, nil))
	mb := viewOf(c, 0, 0, frames.InForward)
	h := new(int)
	require.NoError(t, mb.Save(0, frames.ByBackward, h))
	mb.Retain(h)
	_ = c.End(nil)
	c.UpdateExcess()
	require.EqualValues(t, 8, c.Live())

	// A discarding access releases a saved tensor at once. If the tensor has another owner within the call, it
	// does not count as a leak.
	mb = viewOf(c, 0, 0, frames.InForward)
	mb.SetAccess(batchctx.Access{Slots: frames.Range{Count: 1}, Discard: true})
	passing := new(int)
	require.NoError(t, mb.Save(0, frames.ByBackward, mb.Retain(passing)))
	require.NoError(t, mb.Release(passing))
	c.UpdateExcess()
	require.Zero(t, c.Excess())
	_ = c.End(nil)
	mb = viewOf(c, 0, 0, frames.InBackward)
	_, err := mb.Take(0)
	require.NoError(t, err)
	_ = c.End(nil)
	require.NoError(t, c.DropSaved(0, 0, frames.InBackward, true))
	err = c.Audit(frames.Counts{})
	require.ErrorIs(t, err, frames.ErrLeak)
	require.ErrorContains(t, err, "8 bytes of class saved")
}

func TestSampleMeasuresGrowth(t *testing.T) { // L7
	r := newRig(t)
	for i := range 3 {
		r.open(0, i)
		r.alloc(memory.Workspace, 245760)
		_ = r.End(nil)
		require.NoError(t, r.DropSaved(0, i, frames.InForward, true))
		require.ErrorIs(t, r.Audit(frames.Counts{}), frames.ErrLeak)
		s := r.EndInterval()
		require.EqualValues(t, 245760, s.Growth)
		require.EqualValues(t, 245760*(i+1), s.Excess)
		require.EqualValues(t, s.Excess, s.Near.Live-128)
		require.EqualValues(t, s.Excess, s.Near.Classes[memory.Workspace])
	}
	require.Zero(t, r.EndInterval().Growth)
}

func TestAbortReleasesEverything(t *testing.T) { // L8
	r := newRig(t)
	for round := range 2 {
		r.pull(0)
		r.pull(1)
		require.NoError(t, r.PutAt(effects.Input, 1, 0, []memory.Handle{r.alloc(memory.Activation, 5)}, 0))
		require.NoError(t, r.PutAt(effects.Gradient, 0, 0, []memory.Handle{r.alloc(memory.ActGrad, 5)}, 0))
		mb := r.open(1, 0)
		require.NoError(t, mb.Save(0, frames.ByBackward, r.alloc(memory.Saved, 5)))
		r.alloc(memory.Workspace, 9) // lost by the stage
		r.Abort()
		require.Zero(t, r.live(), "round %d", round)
		require.Equal(t, frames.Counts{}, r.Counts())
		_, err := mb.Take(0)
		require.ErrorIs(t, err, frames.ErrEnded)
		r.begin(frames.Train)
	}
}

func TestOwnersAreNamed(t *testing.T) {
	r := newRig(t)
	r.pull(1)
	require.NoError(t, r.PutAt(effects.Input, 1, 0, []memory.Handle{r.alloc(memory.Activation, 5)}, 0))
	require.NoError(t, r.PutAt(effects.Gradient, 0, 1, []memory.Handle{r.alloc(memory.ActGrad, 6)}, 0))
	mb := r.open(1, 1)
	require.NoError(t, mb.Save(2, frames.ByBackward, r.alloc(memory.Saved, 7)))
	var names []string
	var bytes int64
	for info := range r.Owners() {
		names = append(names, fmt.Sprintf("%s, %d bytes of %v", info.Name, info.Bytes, info.Class))
		bytes += info.Bytes
	}
	require.Equal(t, []string{
		`microbatch 1: entry part "tokens", 100 bytes of entry`,
		`microbatch 1: entry part "labels", 100 bytes of entry`,
		"microbatch (before its forward): stage 0 (bottom): gradient of output 0, 6 bytes of actgrad",
		"microbatch (before its forward): stage 1 (top): input 0, 5 bytes of activation",
		`microbatch 1: stage 1 (top): slot "carry", 7 bytes of saved`,
	}, names)
	require.Equal(t, r.Live(), bytes)
	r.Abort()
	for info := range r.Owners() {
		t.Errorf("%s after Abort", info.Name)
	}
}

// TestEvaluationWithALargerWindow opens more frames than the training step before it, which noted
// the sizes of its inputs.
func TestEvaluationWithALargerWindow(t *testing.T) {
	space := memory.NewGCSpace[*int](func(*int) memory.Class { return memory.Activation }, func(*int) int64 { return 8 })
	c := frames.New(frames.Config[*int]{Space: space, Stages: []*frames.Declaration[*int]{{Name: "only", Inputs: 1, InputGradient: true}}})
	for _, step := range []struct {
		pass   frames.Pass
		window int
	}{{frames.Train, 1}, {frames.Eval, 4}} {
		c.Begin(0, step.pass, frames.Extent{Plan: &schedule.Plan{StageWindows: []int{step.window}}, EntryWindow: 1})
		for m := range step.window {
			require.NoError(t, c.PutAt(effects.Input, 0, m, []*int{new(int)}, 0))
			require.NoError(t, c.Open(0, m, make([]*int, 1)))
		}
		c.Abort()
	}
}

// TestErrorsNameTheIndexInTheBatch requires that errors have the microbatch's index in the batch of all
// replicas, not its number in the plan.
func TestErrorsNameTheIndexInTheBatch(t *testing.T) {
	space := memory.NewGCSpace[*int](func(*int) memory.Class { return memory.Activation }, func(*int) int64 { return 8 })
	c := frames.New(frames.Config[*int]{
		Space: space, Replica: 1, Replicas: 4, Parts: []string{"x"},
		Stages: []*frames.Declaration[*int]{{Name: "only", Inputs: 1, Reads: []frames.Read{{}}}},
	})
	c.Begin(0, frames.Train, frames.Extent{Plan: &schedule.Plan{StageWindows: []int{4}}, EntryWindow: 4, Wanted: []uint64{1}})
	require.ErrorContains(t, c.Open(0, 2, make([]*int, 1)), "microbatch 9") // 2·4 + 1
	require.ErrorContains(t, c.DropParts(2, 1), "microbatch 9")
}
