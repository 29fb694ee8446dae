package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule/simulate"
)

// emitted runs -emit-costs with the tiny flags and reads the file back.
func emitted(t *testing.T, flags ...string) (path string, costs *simulate.Costs, stdout string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "costs.json")
	var out, errs bytes.Buffer
	args := append(append(append([]string{}, tiny...), "-data", sentence(t), "-emit-costs", path), flags...)
	require.Zero(t, run(t.Context(), args, &out, &errs), errs.String())
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	costs, err = simulate.ReadCosts(file)
	require.NoError(t, err)
	return path, costs, out.String()
}

// The sizes equal those in the documentation of stages/transformer, for 16 tokens of width 8
// with 2 heads.
func TestEmitCosts(t *testing.T) {
	const width, heads, tokens = 8, 2, 16 * 4 // bytes of one element for all tokens
	_, costs, stdout := emitted(t, "-dropout", "0")
	require.Equal(t, "ns", costs.Unit)
	require.Len(t, costs.Stages, 4)
	require.Nil(t, costs.Resident)
	var resident int64
	for s := range costs.Stages {
		require.Positive(t, costs.Stages[s].Resident, "stage %d", s)
		resident += costs.Stages[s].Resident
	}
	table := int64(256 * width * 4 * 4) // weights, gradients and two moments
	require.Greater(t, costs.Stages[0].Resident, table)
	require.Greater(t, resident, 2*table, "both tables, and the blocks")
	for s := range costs.Stages {
		c := &costs.Stages[s]
		require.Positive(t, c.F, "stage %d", s)
		require.Positive(t, c.I, "stage %d", s)
		require.Positive(t, c.W, "stage %d", s)
		require.Positive(t, c.B, "stage %d", s)
		require.Equal(t, []int64{0, 10*width + heads, 10*width + heads, width + 1}[s]*tokens, c.Saved, "stage %d", s)
		require.Equal(t, []int64{0, 3*width + heads, 3*width + heads, 0}[s]*tokens, c.FreedByI, "stage %d", s)
		require.Equal(t, []int64{width, 11 * width, 11 * width, width}[s]*tokens, c.Carry, "stage %d", s)
		require.Equal(t, []int64{width, width, width, 0}[s]*tokens, c.Output, "stage %d", s)
		require.Equal(t, []int64{0, width, width, width}[s]*tokens, c.Gradient, "stage %d", s)
	}
	require.Contains(t, stdout, "block1")
	require.Contains(t, stdout, "go run ./cmd/weir choose --costs ")
	require.Contains(t, stdout, " --ranks 2 --microbatches 5 -o best.json\n")
}

// In FP8 the blocks make copies of their weights, which take time and memory; the embedding and
// the head make none.
func TestEmitCostsOfFP8(t *testing.T) {
	_, costs, stdout := emitted(t, "-width", "16", "-fp8", "current")
	for s, makes := range []bool{false, true, true, false} {
		c := &costs.Stages[s]
		require.Equal(t, makes, c.Quantize > 0, "stage %d", s)
		require.Equal(t, makes, c.ForwardWeights > 12*16*16, "stage %d", s)
		require.Equal(t, c.ForwardWeights, c.BackwardWeights, "stage %d", s)
	}
	require.Contains(t, stdout, "QUANTIZE")
}

// A block that recomputes keeps its input until I, and from then on everything that W reads.
func TestEmitCostsOfRecompute(t *testing.T) {
	const width, tokens = 8, 16 * 4
	_, costs, _ := emitted(t, "-dropout", "0", "-recompute")
	require.EqualValues(t, width*tokens, costs.Stages[1].Saved)
	require.EqualValues(t, 17*width*tokens, costs.Stages[1].Carry)
}

// With -ranks there are two stages for each rank, and some are identities. A run simulates its
// steps with the file, and the simulated peak of a rank includes the memory of its model.
func TestEmitCostsOfRanks(t *testing.T) {
	path, costs, stdout := emitted(t, "-ranks", "3")
	require.Len(t, costs.Stages, 6)
	require.Contains(t, stdout, " --ranks 3 ")
	identities := 0
	for _, s := range costs.Stages {
		if s.Saved == 0 && s.Carry == 0 {
			require.Equal(t, s.Output, s.Gradient)
			identities++
		}
	}
	require.Equal(t, 2, identities)

	for _, plan := range []string{"zb-v", "interleaved"} {
		s := summaryOf(t, "-data", sentence(t), "-ranks", "3", "-plan", plan, "-costs", path)
		require.NotNil(t, s.Simulated)
		require.Positive(t, s.Simulated.MakespanSeconds)
		require.Greater(t, s.Simulated.BubbleMakespan, 0.0)
		require.Less(t, s.Simulated.BubbleMakespan, 1.0)
		for _, r := range s.ByRank {
			require.NotNil(t, r.SimulatedPeakBytes)
			require.GreaterOrEqual(t, *r.SimulatedPeakBytes, r.ModelBytes)
		}
	}
	require.Nil(t, summaryOf(t, "-data", sentence(t)).Simulated)
}

// The costs can be written to standard output.
func TestEmitCostsToOutput(t *testing.T) {
	var out, errs bytes.Buffer
	args := append(append([]string{}, tiny...), "-data", sentence(t), "-emit-costs", "-")
	require.Zero(t, run(t.Context(), args, &out, &errs))
	_, err := simulate.ReadCosts(&out)
	require.NoError(t, err)
	require.Contains(t, errs.String(), "choose --costs FILE")
}
