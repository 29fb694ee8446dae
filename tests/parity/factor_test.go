package parity_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
)

// weights returns the bits of all weights of the model.
func (r *rig) weights() map[string][]uint32 {
	var n numbers
	for _, p := range r.model.Parameters() {
		n.tensor(r.t, r.dev, p.Name, p.Weight)
	}
	return n.tensors
}

// TestFactorOnce checks L10: the factor of a result is 1 over the total weight, it can be taken only
// once, by Model.Update or by Result.Update, and a step without an update has none.
func TestFactorOnce(t *testing.T) {
	t.Parallel()
	batch := unevenBatch(6, 32, 3, 9, 2)
	r := newRig(t, small(), oneRank(schedule.DepthFirst, 2))
	defer r.close()
	total := 0.0
	for _, s := range batch {
		for _, w := range s.Weights {
			total += float64(w)
		}
	}

	before := r.weights()
	result := r.step(batch)
	factor, err := factorOf(result)
	require.NoError(t, err)
	require.Equal(t, 1/total, factor)
	_, err = factorOf(result)
	require.ErrorIs(t, err, runner.ErrUpdated)
	require.ErrorIs(t, r.model.Update(update, result, maxNorm), runner.ErrUpdated)
	require.Equal(t, before, r.weights(), "nothing was updated")
	require.Zero(t, r.model.Updates)

	result = r.step(batch)
	require.NoError(t, r.model.Update(update, result, maxNorm))
	after := r.weights()
	require.NotEqual(t, before, after)
	require.ErrorIs(t, r.model.Update(update, result, maxNorm), runner.ErrUpdated)
	require.Equal(t, after, r.weights(), "the second update did nothing")
	require.EqualValues(t, 1, r.model.Updates)

	require.ErrorIs(t, r.model.Update(update, r.evaluate(batch), maxNorm), runner.ErrNoUpdate)
	for _, s := range batch {
		clear(s.Weights)
	}
	result = r.step(batch)
	require.Equal(t, loss.Empty, result.Outcome)
	require.ErrorIs(t, r.model.Update(update, result, maxNorm), runner.ErrNoUpdate)
	require.Equal(t, after, r.weights())
}
