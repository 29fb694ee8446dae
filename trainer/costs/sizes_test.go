package costs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// TestSizes specifies the levels of two stages. The first stage saves 100 bytes, frees 30 of them
// at I, and keeps the gradient of 20 bytes that the second returns until W. The second stage
// keeps its input, which it frees at I.
func TestSizes(t *testing.T) {
	at := func(kind schedule.Kind, stage int, entry, saved, activation, actgrad, carry int64) level {
		a := level{action: schedule.NewAction(kind, stage, 0)}
		a.classes[memory.Entry], a.classes[memory.Saved] = entry, saved
		a.classes[memory.Activation], a.classes[memory.ActGrad], a.classes[memory.Carry] = activation, actgrad, carry
		return a
	}
	stages := []simulate.StageCosts{{Output: 10}, {Gradient: 20}}
	sizes(stages, []level{
		at(schedule.F, 0, 0, 0, 0, 0, 0),
		at(schedule.F, 1, 7, 100, 10, 0, 0),
		at(schedule.I, 1, 5, 140, 10, 0, 0), // 40 more, and the input
		at(schedule.W, 1, 5, 140, 0, 20, 3),
		at(schedule.I, 0, 5, 100, 0, 20, 0),
		at(schedule.W, 0, 5, 70, 0, 20, 0),
		at(schedule.None, 0, 0, 0, 0, 0, 0),
	})
	require.Equal(t, []simulate.StageCosts{
		{Output: 10, Saved: 100, FreedByI: 30, Carry: 20},
		{Gradient: 20, Saved: 50, FreedByI: 10, Carry: 3},
	}, stages)
}
