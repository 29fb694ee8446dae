package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/trainer/checkpoint"
)

// The plan, the ranks and recompute change no bit of a run in FP8 either, and an interrupted run
// resumes to the same bits: with delayed scaling, and under -long with every recipe.
func TestFP8ChangesNothing(t *testing.T) {
	skipShort(t)
	text := sentence(t)
	for i, name := range fp8.Names {
		t.Run(name, func(t *testing.T) {
			if built("-race", "true") && i > 0 {
				t.Skip("recipes share their goroutines: one is enough for the race detector, which makes this ten times as slow")
			}
			flags := []string{"-data", text, "-fp8", name, "-width", widths[name], "-layers", "1"}
			if i%2 == 0 {
				flags = append(flags, "-fp8-attention")
			}
			saved := filepath.Join(t.TempDir(), "checkpoint")
			want := summaryOf(t, append(flags, "-checkpoint", saved)...)
			require.Equal(t, name, want.FP8)
			require.Equal(t, i%2 == 0, want.FP8Attention)
			require.Zero(t, want.Growth)
			require.Positive(t, want.PeakByClass["fp8"])
			require.Len(t, want.FP8Roles, 4)
			require.Equal(t, 4, want.FP8Roles["weight"].Tensors)
			for role, met := range want.FP8Roles {
				require.Zero(t, met.NonFinite, role)
				require.Positive(t, met.LeastScale, role)
			}
			ways := [][]string{
				{"-ranks", "2", "-plan", "1f1b"}, {"-ranks", "4", "-plan", "zb-h1", "-recompute", "-unplanned"}, {"-ranks", "2", "-plan", "zb-v"},
			}
			more := ways[i%3]
			again := filepath.Join(t.TempDir(), "checkpoint")
			got := summaryOf(t, append(append(flags[:len(flags):len(flags)], more...), "-checkpoint", again)...)
			require.Equal(t, want.WeightsSHA256, got.WeightsSHA256, "%v", more)
			require.Equal(t, *want.LossHeldout, *got.LossHeldout, "%v", more)
			require.Equal(t, scalesOf(t, saved), scalesOf(t, again), "%v", more)
			require.Zero(t, got.Growth)
			if name != "delayed" && !*long { // only delayed scaling depends on earlier steps
				return
			}

			stopped := filepath.Join(t.TempDir(), "checkpoint")
			interruptedAt(t, "step 2/3", append(flags, "-checkpoint", stopped)...)
			resumed := summaryOf(t, "-data", text, "-resume", stopped, "-checkpoint", stopped, "-fp8", name, "-width", widths[name], "-layers", "1")
			require.Equal(t, 2, resumed.ResumedAt)
			require.Equal(t, want.FP8Attention, resumed.FP8Attention, "from the checkpoint")
			require.Equal(t, want.WeightsSHA256, resumed.WeightsSHA256)
			require.Equal(t, scalesOf(t, saved), scalesOf(t, stopped))

			status, _, _, stderr := runTiny(t, "-data", text, "-resume", stopped, "-fp8", "none", "-width", widths[name], "-layers", "1", "-steps", "4")
			require.Equal(t, 1, status)
			require.Contains(t, stderr, "was trained with -fp8 "+name+", not none")
		})
	}
}

// widths are the minimum widths of the recipes.
var widths = map[string]string{"delayed": "16", "current": "16", "block": "128", "mxfp8": "32", "nvfp4": "16"}

// scalesOf returns the scaling state in a checkpoint.
func scalesOf(t *testing.T, path string) []byte {
	t.Helper()
	c, err := checkpoint.Open(path)
	require.NoError(t, err)
	defer c.Close()
	for _, info := range c.Tensors() {
		if info.Name == fp8Scales {
			scales := make([]uint8, info.Shape[0])
			require.NoError(t, checkpoint.Read(c, fp8Scales, info.Shape, scales))
			return scales
		}
	}
	require.Fail(t, "no scales")
	return nil
}

// Memory in FP8 has a class of its own at the peak, at which gpipe has all microbatches in
// flight. What they keep takes less than half of the bytes that it takes in float32, where that
// class is empty.
func TestFP8PeakByClass(t *testing.T) {
	skipShort(t)
	flags := []string{"-data", sentence(t), "-plan", "gpipe", "-width", "64", "-layers", "1", "-dropout", "0"}
	full := summaryOf(t, flags...)
	low := summaryOf(t, append(flags, "-fp8", "current", "-fp8-attention")...)
	require.Equal(t, float32s, full.FP8)
	require.Zero(t, full.PeakByClass["fp8"])
	require.Nil(t, full.FP8Roles)
	copies := int64(2 * 12 * 64 * 64) // of the weights, with their scales
	kept := low.PeakByClass["saved"] + low.PeakByClass["fp8"] - copies
	require.Less(t, 2*kept, full.PeakByClass["saved"])
}

// The sizes equal those in the documentation of stages/transformer: 28 bytes for each element
// of a token's hidden state, and between I and W 16 and the sums of eight vectors.
func TestFP8EmitCosts(t *testing.T) {
	const width, heads, tokens = 16, 2, 16
	_, costs, _ := emitted(t, "-dropout", "0", "-fp8", "current", "-width", "16")
	for _, block := range costs.Stages[1:3] {
		const scale = 4
		require.EqualValues(t, tokens*(28*width+4*heads)+scale, block.Saved)
		require.EqualValues(t, tokens*16*width+8*scale+4*13*width, block.Saved-block.FreedByI+block.Carry)
		require.EqualValues(t, 12*width*width+4*scale, block.ForwardWeights)
		require.Equal(t, block.ForwardWeights, block.BackwardWeights)
		require.Positive(t, block.Quantize)
	}
}

// The page has a table with the statistics of tensors in FP8.
func TestFP8OnThePage(t *testing.T) {
	status, folder, _, stderr := runTiny(t, "-data", sentence(t), "-fp8", "nvfp4", "-width", "16", "-layers", "1")
	require.Zero(t, status, stderr)
	page := read(t, filepath.Join(folder, "report.html"))
	for _, words := range []string{"Elements in FP8, by role", "grad_output", "became zero"} {
		require.Contains(t, page, words)
	}
}

// Every recipe can scale the default width.
func TestFP8DefaultWidth(t *testing.T) {
	for _, name := range recipes() {
		o, err := parse([]string{"-fp8", name})
		require.NoError(t, err)
		require.NoError(t, o.validate())
		require.Equal(t, name == float32s, o.model.Width == defaults().model.Width)
	}
}

// A wide model has a different default learning rate.
func TestRateOfAWideModel(t *testing.T) {
	for _, c := range []struct {
		args []string
		want float32
	}{
		{nil, 1e-2},
		{[]string{"-width", "127", "-heads", "1"}, 1e-2},
		{[]string{"-width", "128"}, wideRate},
		{[]string{"-fp8", "block"}, wideRate},
		{[]string{"-width", "256", "-lr", "0.01"}, 1e-2},
	} {
		o, err := parse(c.args)
		require.NoError(t, err)
		require.NoError(t, o.validate())
		require.Equal(t, c.want, o.optimizer.LearningRate, "%v", c.args)
	}
}

// A checkpoint from before -fp8, -products, -tokens or -lengths existed is one in float32 over text
// that is not packed.
func TestFP8OlderCheckpoint(t *testing.T) {
	require.Equal(t, map[string]string{"fp8": float32s, "fp8-attention": "false", "products": "float32", "tokens": "", "vocabulary": "256", "lengths": "false", "pack": "0", "packer": "weir"}, older)
	for name := range older {
		require.Contains(t, deciding, name)
	}
}

// Every step in FP8 has a line for each role in the memory log, which sum to the figures of the
// summary; a step in float32 has none.
func TestFP8InTheLog(t *testing.T) {
	for _, recipe := range []string{"delayed", float32s} {
		folder := filepath.Join(t.TempDir(), "run")
		s := summaryOf(t, "-data", sentence(t), "-fp8", recipe, "-width", "16", "-layers", "1", "-run", folder)
		underflowed, lines := map[string]uint64{}, map[int64]int{}
		for _, record := range records(t, folder) {
			if f := record.FP8; f != nil {
				underflowed[f.Role] += f.Underflowed
				lines[f.Step]++
				require.Positive(t, f.LeastScale)
				require.GreaterOrEqual(t, f.GreatestScale, f.LeastScale)
			}
		}
		if recipe == float32s {
			require.Empty(t, lines)
			continue
		}
		require.Len(t, lines, s.Steps)
		for step, n := range lines {
			require.Equal(t, 4, n, "step %d", step)
		}
		for role, met := range s.FP8Roles {
			require.Equal(t, met.Underflowed, underflowed[role], role)
		}
	}
}
