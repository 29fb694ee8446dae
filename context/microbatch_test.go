package batchctx_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// rig is a step over an arena with one stage, which declares two of everything. The second
// parameter is frozen.
type rig struct {
	*frames.Frames[memory.Handle]
	t      *testing.T
	arena  *memory.Arena
	ledger *loss.Ledger
	grad   memory.Handle
}

func newRig(t *testing.T) *rig {
	t.Helper()
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, arena.Close()) })
	r := &rig{t: t, arena: arena}
	r.ledger, err = loss.NewLedger([]loss.Def{{Name: "metric", Metric: true}, {Name: "loss", Reduction: loss.Mean, Objective: true}})
	require.NoError(t, err)
	r.grad = r.alloc(memory.Resident)
	r.Frames = frames.New(frames.Config[memory.Handle]{
		Space: arena, Seed: 7, Parts: []string{"tokens", "labels"}, Losses: r.ledger, Seeds: []float32{0, 4},
		Stages: []*frames.Declaration[memory.Handle]{{
			Name: "stage", Slots: []string{"x", "y"}, Reads: []frames.Read{{Part: 0}, {Part: 1}}, Losses: []int{0, 1}, LossNames: []string{"metric", "loss"},
			Params:        []frames.Use[memory.Handle]{{Name: "w", Grad: r.grad}, {Name: "e", Weight: r.grad, Contributes: frames.Frozen}},
			InputGradient: true, WeightCopies: []frames.WeightCopy{{Name: "w", At: frames.AtForward}, {Name: "w", At: frames.AtBackward}},
		}},
	})
	r.Begin(5, frames.Train, frames.Extent{Plan: &schedule.Plan{StageWindows: []int{1}}, EntryWindow: 1, Wanted: []uint64{0b11}})
	require.NoError(t, r.Open(0, 0, nil))
	return r
}

func (r *rig) alloc(class memory.Class) memory.Handle {
	h, err := r.arena.Alloc(class, 64)
	require.NoError(r.t, err)
	return h
}

func (r *rig) call(kind frames.Call) batchctx.Microbatch[memory.Handle] {
	return batchctx.Microbatch[memory.Handle](r.Call(0, 0, kind).View())
}

// failure returns the error with which a stage's call ends the step.
func (r *rig) failure(stage func()) (err error) {
	defer r.Recover(&err)
	stage()
	return nil
}

// TestKeysAreOfTheirOwnStage checks that keys count from 1: the second key of each kind is the
// second declaration, and 0 or a key beyond the declarations ends the step.
func TestKeysAreOfTheirOwnStage(t *testing.T) {
	type view = batchctx.Microbatch[memory.Handle]
	for name, key := range map[string]struct {
		in  frames.Call
		use func(mb view, key int)
	}{
		"Part":       {frames.InForward, func(mb view, key int) { mb.Part(batchctx.Part(key)) }},
		"Save":       {frames.InForward, func(mb view, key int) { mb.Save(batchctx.Slot(key), memory.Handle{}) }},
		"SaveFor":    {frames.InForward, func(mb view, key int) { mb.SaveFor(batchctx.ByWeight, batchctx.Slot(key), memory.Handle{}) }},
		"Take":       {frames.InBackward, func(mb view, key int) { mb.Take(batchctx.Slot(key)) }},
		"End":        {frames.InBackward, func(mb view, key int) { mb.ReleaseSaved(batchctx.Slot(key)) }},
		"Loss":       {frames.InForward, func(mb view, key int) { mb.Loss(batchctx.Loss(key), 1, 1) }},
		"LossSeed":   {frames.InBackward, func(mb view, key int) { mb.LossSeed(batchctx.Loss(key)) }},
		"Grad":       {frames.InBackward, func(mb view, key int) { mb.Grad(batchctx.Param(key)) }},
		"GradFirst":  {frames.InBackward, func(mb view, key int) { mb.GradFirst(batchctx.Param(key)) }},
		"Weight":     {frames.InForward, func(mb view, key int) { mb.Weight(batchctx.Param(key)) }},
		"WeightCopy": {frames.InForward, func(mb view, key int) { mb.WeightCopy(batchctx.Copy(key)) }},
	} {
		for _, other := range []int{0, 3} {
			r := newRig(t)
			require.ErrorIs(t, r.failure(func() { key.use(r.call(key.in), other) }), batchctx.ErrUndeclared, "%s of key %d", name, other)
		}
	}

	r := newRig(t)
	tokens, labels := r.alloc(memory.Entry), r.alloc(memory.Entry)
	require.NoError(t, r.BeginEntry(0))
	require.NoError(t, r.EndEntry(errors.Join(r.Put("tokens", tokens), r.Put("labels", labels))))
	require.NoError(t, r.failure(func() {
		mb := r.call(frames.InForward)
		require.Equal(t, labels, mb.Part(2))
		mb.Loss(1, 3, 1)
		mb.Loss(2, 8, 2)
		mb.Save(1, mb.Retain(tokens))
		mb.SaveFor(batchctx.ByBackward, 2, mb.Retain(labels))
		mb = r.call(frames.InBackward)
		require.Equal(t, []memory.Handle{tokens, labels}, []memory.Handle{mb.Take(1), mb.Take(2)})
		require.EqualValues(t, 4, mb.LossSeed(2))
		require.Equal(t, []bool{false, true}, []bool{mb.Frozen(1), mb.Frozen(2)})
		require.Equal(t, []memory.Handle{{}, r.grad}, []memory.Handle{mb.Weight(1), mb.Weight(2)})
		_, trains := mb.Grad(2)
		require.False(t, trains)
		_, write := mb.GradFirst(2)
		require.Equal(t, batchctx.Skip, write)
		grad, write := mb.GradFirst(1)
		require.Equal(t, r.grad, grad)
		require.Equal(t, batchctx.First, write)
	}))
	require.Equal(t, []float64{1, 2}, []float64{r.ledger.Weight(0), r.ledger.Weight(1)})
}

var errPlanted = errors.New("planted")

// TestAMetricHasNoSeed: a zero seed would silently produce zero gradients (L10).
func TestAMetricHasNoSeed(t *testing.T) {
	r := newRig(t)
	err := r.failure(func() { r.call(frames.InBackward).LossSeed(1) })
	require.ErrorIs(t, err, batchctx.ErrUndeclared)
	require.ErrorContains(t, err, `the seed of "metric", which is a metric`)
}

// TestWhatTrainsIsRecordedOnce: a training loss may be recorded only once per microbatch, and a metric any number of
// times.
func TestWhatTrainsIsRecordedOnce(t *testing.T) { // L10
	r := newRig(t)
	err := r.failure(func() {
		mb := r.call(frames.InForward)
		mb.Loss(1, 1, 1)
		mb.Loss(1, 1, 1)
		mb.Loss(2, 1, 1)
		mb.Loss(2, 1, 1)
	})
	require.ErrorIs(t, err, batchctx.ErrContribution)
	require.ErrorContains(t, err, `a second record of "loss" in a microbatch`)
}

// TestCallsOnAFailedMicrobatch checks that calls fail with the first failure, except calls that release: a
// stage may have recovered from the failure.
func TestCallsOnAFailedMicrobatch(t *testing.T) { // L8
	r := newRig(t)
	own, held := r.alloc(memory.Workspace), r.alloc(memory.Activation)
	mb := r.call(frames.InForward)
	require.NoError(t, r.failure(func() { mb.Hold(held) }))
	require.ErrorIs(t, r.failure(func() { mb.Must(own, errPlanted) }), errPlanted)
	require.ErrorIs(t, r.failure(func() { mb.Retain(own) }), errPlanted)
	mb.ReleaseAfterFailure(own, false)
	mb.ReleaseAfterFailure(held, true)
	mb.Release(own) // already released: the first failure is reported
	require.EqualValues(t, 64, r.arena.Live(), "the gradient")
	require.ErrorIs(t, r.End(nil), errPlanted)
}

func TestAMicrobatchEndsWithItsCall(t *testing.T) {
	r := newRig(t)
	mb := r.call(frames.InForward)
	require.NoError(t, r.End(nil))
	require.ErrorIs(t, r.failure(func() { mb.Retain(r.grad) }), batchctx.ErrEnded)
}

// TestQuantization checks that a Quantization fails like a Microbatch.
func TestQuantization(t *testing.T) {
	r := newRig(t)
	call := batchctx.Quantization[memory.Handle](r.Quantize(0, true).QuantizationView())
	scratch := r.alloc(memory.Workspace)
	require.NoError(t, r.failure(func() {
		require.Equal(t, scratch, call.Must(scratch, nil))
		call.Check(nil)
		call.Release(scratch)
		require.True(t, call.Wants(2))
		child := batchctx.Range{First: 1, Count: 9}
		call.Narrow(batchctx.Access{Copies: child, Params: child}).Put(1, r.alloc(memory.FP8))
		require.Equal(t, r.grad, call.Weight(2))
		require.Equal(t, r.grad, call.Narrow(batchctx.Access{Params: child}).Weight(1))
	}))
	for _, other := range []batchctx.Copy{0, 3} {
		require.False(t, call.Wants(other))
	}
	require.ErrorIs(t, r.EndQuantize(nil), frames.ErrMissing, "the other copy is missing")
	require.ErrorIs(t, r.failure(func() { call.Release(scratch) }), batchctx.ErrEnded)

	for _, refused := range []struct {
		put  func(call batchctx.Quantization[memory.Handle])
		want error
	}{
		{func(call batchctx.Quantization[memory.Handle]) { call.Put(0, r.alloc(memory.FP8)) }, batchctx.ErrUndeclared},
		{func(call batchctx.Quantization[memory.Handle]) { call.Put(3, r.alloc(memory.FP8)) }, batchctx.ErrUndeclared},
		{func(call batchctx.Quantization[memory.Handle]) { call.Weight(3) }, batchctx.ErrUndeclared},
		{func(call batchctx.Quantization[memory.Handle]) {
			call.Narrow(batchctx.Access{Params: batchctx.Range{First: 1, Count: 1}}).Weight(2)
		}, batchctx.ErrUndeclared},
		{func(call batchctx.Quantization[memory.Handle]) {
			call.Narrow(batchctx.Access{Copies: batchctx.Range{Count: 1}}).Put(2, r.alloc(memory.FP8))
		}, batchctx.ErrUndeclared},
		{func(call batchctx.Quantization[memory.Handle]) {
			call.Put(1, r.alloc(memory.FP8))
			call.Put(1, r.alloc(memory.FP8))
		}, batchctx.ErrOccupied},
		{func(call batchctx.Quantization[memory.Handle]) { call.Put(1, memory.Handle{}) }, memory.ErrNone},
	} {
		r = newRig(t)
		call = batchctx.Quantization[memory.Handle](r.Quantize(0, true).QuantizationView())
		require.ErrorIs(t, r.failure(func() { refused.put(call) }), refused.want)
		r.Abort()
		require.EqualValues(t, 64, r.arena.Live(), "a refused copy is released")
	}

	r = newRig(t)
	call = batchctx.Quantization[memory.Handle](r.Quantize(0, true).QuantizationView())
	scratch = r.alloc(memory.Workspace)
	require.NoError(t, r.failure(func() { call.Release(scratch) }))
	require.ErrorIs(t, r.failure(func() { call.Release(scratch) }), memory.ErrStale)
	call.Release(scratch)
	require.ErrorIs(t, r.failure(func() { call.Check(errPlanted) }), memory.ErrStale, "the first failure wins")

	r = newRig(t)
	call = batchctx.Quantization[memory.Handle](r.Quantize(0, true).QuantizationView())
	require.ErrorIs(t, r.failure(func() { call.Must(scratch, errPlanted) }), errPlanted)

	r = newRig(t)
	call = batchctx.Quantization[memory.Handle](r.Quantize(0, true).QuantizationView())
	require.NoError(t, r.End(nil))
	require.ErrorIs(t, r.failure(func() { call.Seed() }), batchctx.ErrEnded)
}
