package frames_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// newSender returns a rig whose stage 1 sends, with two microbatches in flight: it has two
// outputs and an input.
func newSender(t *testing.T) *rig { return newSenderOf(t, 1) }

// newSenderOf is newSender with the given number of inputs.
func newSenderOf(t *testing.T, inputs int) *rig {
	t.Helper()
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, arena.Close()) })
	r := &rig{t: t, arena: arena}
	r.Frames = frames.New(frames.Config[memory.Handle]{
		Space: arena, Rank: 3, Parts: []string{"tokens", "labels"},
		Stages: []*frames.Declaration[memory.Handle]{nil, {Name: "sender", Inputs: inputs, Outputs: 2, Params: make([]frames.Use[memory.Handle], 1)}},
	})
	r.Begin(0, frames.Train, frames.Extent{
		Plan: &schedule.Plan{
			Placement: schedule.Placement{Ranks: 1, Copies: 2, Rank: []int{0, 0}}, Microbatches: 6, StageWindows: []int{0, 2}, SendWindows: []int{0, 2},
		},
		EntryWindow: 1, Wanted: []uint64{0b01, 0b10},
	})
	return r
}

func TestTheOutboxHoldsWhatIsSent(t *testing.T) { // L4
	r := newSender(t)
	for m := range 5 {
		out := []memory.Handle{r.alloc(memory.Activation, 10), r.alloc(memory.Activation, 20)}
		grad := []memory.Handle{r.alloc(memory.ActGrad, 4)}
		sent := append(slices.Clone(out), grad...)
		require.NoError(t, r.PutAt(effects.SentOutput, 1, m, out, 0))
		require.NoError(t, r.PutAt(effects.SentGradient, 1, m, grad, 0))
		require.Equal(t, make([]memory.Handle, 2), out, "handles that were taken over")
		require.Equal(t, 2, r.Counts()[effects.SentOutput]+r.Counts()[effects.SentGradient])

		got, err := r.Outgoing(1, m, effects.SentOutput, nil, 0)
		require.NoError(t, err)
		require.Equal(t, sent[:2], got)
		got, err = r.Outgoing(1, m, effects.SentOutput, nil, 0b01)
		require.NoError(t, err)
		require.Equal(t, sent[1:2], got, "a port without a gradient is left out")
		got, err = r.Outgoing(1, m, effects.SentGradient, got[:1], 0)
		require.NoError(t, err)
		require.Equal(t, sent[1:], got)

		require.NoError(t, r.DropAt(effects.SentOutput, 1, m))
		require.EqualValues(t, 4, r.arena.Live())
		require.NoError(t, r.DropAt(effects.SentGradient, 1, m))
		require.NoError(t, r.Audit(frames.Counts{}))
		_, err = r.Outgoing(1, m, effects.SentOutput, nil, 0)
		require.ErrorIs(t, err, frames.ErrMissing)
	}
}

func TestTheOutboxRefuses(t *testing.T) {
	r := newSender(t)
	pair := func() []memory.Handle {
		return []memory.Handle{r.alloc(memory.Activation, 8), r.alloc(memory.Activation, 8)}
	}
	require.NoError(t, r.PutAt(effects.SentOutput, 1, 0, pair(), 0))
	require.ErrorIs(t, r.PutAt(effects.SentOutput, 1, 2, pair(), 0), frames.ErrOccupied, "a microbatch too many in flight")
	require.ErrorIs(t, r.PutAt(effects.SentOutput, 1, 1, make([]memory.Handle, 2), 0), frames.ErrMissing)
	r.Abort()
	require.Zero(t, r.arena.Live())

	r.Begin(1, frames.Train, frames.Extent{Plan: &schedule.Plan{StageWindows: []int{0, 1}, SendWindows: []int{0, 0}}})
	require.ErrorIs(t, r.PutAt(effects.SentOutput, 1, 0, pair(), 0), frames.ErrUndeclared, "nothing crosses a rank")
	_, err := r.Outgoing(1, 0, effects.SentOutput, nil, 0)
	require.NoError(t, err)
	r.Abort()
	require.Zero(t, r.arena.Live())
}

func TestWhatIsSentHasAnOwner(t *testing.T) {
	r := newSender(t)
	require.NoError(t, r.PutAt(effects.SentGradient, 1, 5, []memory.Handle{r.alloc(memory.ActGrad, 4)}, 0))
	require.NoError(t, r.PutAt(effects.SentOutput, 1, 4, []memory.Handle{r.alloc(memory.Activation, 1), r.alloc(memory.Activation, 2)}, 0))
	require.NoError(t, r.PutAt(effects.Gathered, 1, 0, []memory.Handle{r.alloc(memory.Unsharded, 7)}, 0))
	var owners []string
	for info := range r.Owners() {
		owners = append(owners, info.Name)
	}
	require.Equal(t, []string{
		"microbatch 4: stage 1 (sender): output 0 in flight",
		"microbatch 4: stage 1 (sender): output 1 in flight",
		"microbatch 5: stage 1 (sender): gradient of input 0 in flight",
		`stage 1 (sender): gathered weight of ""`,
	}, owners)
	r.Abort()
	require.Zero(t, r.arena.Live())
}

func TestGradientsOnTheirWayAreNumbered(t *testing.T) {
	r := newSenderOf(t, 2)
	require.NoError(t, r.PutAt(effects.SentGradient, 1, 0, []memory.Handle{r.alloc(memory.ActGrad, 4), r.alloc(memory.ActGrad, 4)}, 0))
	var owners []string
	for info := range r.Owners() {
		owners = append(owners, info.Name)
	}
	require.Equal(t, []string{
		"microbatch 0: stage 1 (sender): gradient of input 0 in flight", "microbatch 0: stage 1 (sender): gradient of input 1 in flight",
	}, owners)
	r.Abort()
}

// TestLeaksAreOfTheBatch checks that errors use the number of a microbatch in the batch, not in the
// plan. The second of two copies of a model takes every second microbatch of the batch.
func TestLeaksAreOfTheBatch(t *testing.T) {
	r := newSender(t)
	r.Act(1, 4) // the second microbatch of the second copy
	_ = r.alloc(memory.Workspace, 3)
	var leak *frames.LeakError
	require.ErrorAs(t, r.Audit(frames.Counts{}), &leak)
	require.Equal(t, 3, leak.Microbatch)
}

// TestKeptTransfersAreBlamed keeps a reference to a tensor that ends with the wait for its
// transfer.
func TestKeptTransfersAreBlamed(t *testing.T) { // L6
	r := newSender(t)
	h := r.alloc(memory.ActGrad, 40)
	require.NoError(t, r.arena.Retain(h))
	require.NoError(t, r.PutAt(effects.SentGradient, 1, 0, []memory.Handle{h}, 0))
	r.Act(1, 0)
	var leak *frames.LeakError
	require.ErrorAs(t, r.Audit(frames.Counts{}), &leak)
	require.Equal(t, "1 transfers are alive, but the plan has 0", leak.What)
	require.NoError(t, r.DropAt(effects.SentGradient, 1, 0))
	require.ErrorAs(t, r.Audit(frames.Counts{}), &leak)
	require.Equal(t, frames.LeakError{
		Rank: 3, Stage: 1, Name: "sender", Class: memory.ActGrad, Bytes: 40,
		What: "a tensor it sent was released with this action and is still referenced, by this stage, which returned it, or by the transport",
	}, *leak)

	_ = r.alloc(memory.Workspace, 3)
	r.Act(-1, -1)
	require.ErrorContains(t, r.Audit(frames.Counts{}), "rank 3 at step end: 43 bytes")
}

// The whole weights and gradients of a stage are held once for each parameter. The calls of the stage see them
// instead of its own.
func TestWholeParametersEndOnce(t *testing.T) {
	r := newSender(t)
	for _, place := range []effects.BufferKind{effects.Gathered, effects.Accumulator} {
		made := func(int) (memory.Handle, bool, error) { return r.alloc(memory.Unsharded, 7), true, nil }
		for range 2 {
			require.NoError(t, r.PutParams(place, 1, made))
			require.Equal(t, 1, r.Counts()[place])
			require.NotEqual(t, r.Grad(1, 0), r.Weight(1, 0))
			h := r.alloc(memory.Unsharded, 1)
			require.ErrorIs(t, r.PutParams(place, 1, func(int) (memory.Handle, bool, error) { return h, true, nil }), frames.ErrOccupied)
			_, err := r.arena.Release(h)
			require.NoError(t, err)
			require.NoError(t, r.DropAt(place, 1, 0))
			require.NoError(t, r.Audit(frames.Counts{}))
			require.Equal(t, r.Grad(1, 0), r.Weight(1, 0), "neither is set")
		}
		require.ErrorIs(t, r.PutParams(place, 1, func(int) (memory.Handle, bool, error) { return memory.Handle{}, true, nil }), frames.ErrMissing)
	}
}

// TestCopiesTakeTurns pulls entries for two copies of a model that read different parts on the
// rank: alternately one for the first copy and one for the second.
func TestCopiesTakeTurns(t *testing.T) {
	r := newSender(t)
	for item := range 6 {
		require.NoError(t, r.pullWith(item, func() error {
			require.Equal(t, item, r.EntryIndex())
			for i, part := range []string{"tokens", "labels"} {
				wants, number := r.Wants(part)
				require.Equal(t, item%2 == i, wants, "number %d of the batch", item)
				require.Equal(t, i, number)
				require.NoError(t, r.Put(part, r.alloc(memory.Entry, int64(i+1))))
			}
			return nil
		}))
	}
	var owners []string
	for info := range r.Owners() {
		owners = append(owners, info.Name)
	}
	require.Equal(t, []string{
		`microbatch 0: entry part "tokens"`, `microbatch 1: entry part "labels"`, `microbatch 2: entry part "tokens"`,
		`microbatch 3: entry part "labels"`, `microbatch 4: entry part "tokens"`, `microbatch 5: entry part "labels"`,
	}, owners)
	require.EqualValues(t, 3*1+3*2, r.arena.Live())
	for m := range 6 {
		require.NoError(t, r.DropParts(m, 0b11), "the parts that the microbatch has")
	}
	require.Zero(t, r.arena.Live())
	require.NoError(t, r.Audit(frames.Counts{}))
}

// Stages see the number of a microbatch in the batch.
func TestStagesAreToldTheNumberOfTheBatch(t *testing.T) {
	r := newSender(t)
	var told []int
	for _, m := range []int{0, 3, 1, 4, 2, 5} { // in the order of the plan's numbers
		view := r.Call(1, m, frames.InForward)
		told = append(told, view.Index())
		_ = r.End(nil)
	}
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, told)
}

func TestAuditNamesTheTransport(t *testing.T) { // L6: stage 0 is on another rank
	r := newSender(t)
	h := r.alloc(memory.Activation, 60)
	require.NoError(t, r.arena.Retain(h))
	require.NoError(t, r.PutAt(effects.Input, 1, 0, []memory.Handle{h}, 0))
	r.in = make([]memory.Handle, 1)
	r.open(1, 0)
	require.NoError(t, r.End(nil))
	require.NoError(t, r.DropAt(effects.Input, 1, 0))
	r.UpdateExcess()
	require.ErrorContains(t, r.Audit(frames.Counts{effects.Saved: 1}), "is still referenced, by its maker or the transport")
}
