package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/require"
)

func weights(t *testing.T, s *model.Store) map[string][]float32 {
	all := map[string][]float32{}
	for v := range s.IterVariables() {
		if v.Trainable {
			x, err := tensors.CopyFlatData[float32](v.MustValue())
			require.NoError(t, err)
			all[v.Path()] = x
		}
	}
	return all
}

// TestPlans: every plan gives the losses and the weights of GoMLX's own trainer.
func TestPlans(t *testing.T) {
	const steps, microbatches = 2, 4
	for name := range examples {
		t.Run(name, func(t *testing.T) {
			var first map[string][]float32
			var losses string
			for _, way := range []struct {
				trainer, plan string
				ranks         int
			}{
				{"accumulate", "", 1}, {"weir", "depth-first", 1}, {"weir", "depth-first", 3}, {"weir", "1f1b", 4}, {"weir", "zb-h1", 4}, {"weir", "interleaved", 2},
			} {
				ex, err := prepare(name, way.plan, way.ranks)
				require.NoError(t, err)
				step := ex.weir
				if way.trainer != "weir" {
					step = ex.gomlx
				}
				once, err := step(way.trainer, microbatches)
				require.NoError(t, err)
				var says string
				for range steps {
					line, err := once(t.Context())
					require.NoError(t, err)
					says += strings.Join(strings.Fields(line)[:2], " ") + "; "
				}
				if first == nil {
					first, losses = weights(t, ex.config.Store), says
					require.NotEmpty(t, first)
				}
				require.Equal(t, losses, says, fmt.Sprint(way))
				require.Equal(t, first, weights(t, ex.config.Store), fmt.Sprint(way))
			}
		})
	}
}

// TestBelowByteFrequencies: the GPT's loss is below the entropy of the byte frequencies.
func TestBelowByteFrequencies(t *testing.T) {
	ex, err := prepare("gpt", "depth-first", 1)
	require.NoError(t, err)
	once, err := ex.weir("", 4)
	require.NoError(t, err)
	var last float64
	for i := range 20 {
		line, err := once(t.Context())
		require.NoError(t, err)
		var loss float64
		_, err = fmt.Sscanf(line, "loss %f", &loss)
		require.NoError(t, err)
		if i >= 16 {
			last += loss / 4
		}
	}
	var floor float64
	_, err = fmt.Sscanf(ex.floor, "byte frequencies alone: %f", &floor)
	require.NoError(t, err)
	require.Less(t, last, floor)
}
