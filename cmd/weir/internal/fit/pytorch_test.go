package fit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/memory"
)

// TestSavedByPyTorch compares the tables of plain PyTorch with counts of hooks in PyTorch 2.6, one
// process for each rank: the peak of the bytes that autograd has saved. docs/fit/saved.py counts
// them for plans of weir plan with 8 microbatches, in the form of weir convert --to compute.
func TestSavedByPyTorch(t *testing.T) {
	gpt := fit.Model{Layers: 8, Hidden: 64, Heads: 4, KVHeads: 4, HeadDim: 16, FFN: 160, Vocabulary: 300, LayerNorm: true}
	llama := gpt
	llama.LayerNorm, llama.Gated = false, true
	for _, c := range []struct {
		schedule      string
		ranks, stages int
		gpt, llama    []int64
	}{
		{"1f1b", 1, 1, []int64{2745604}, []int64{4139908}},
		{"1f1b", 2, 2, []int64{2580480, 1455364}, []int64{3950592, 2164612}},
		{"1f1b", 4, 4, []int64{2580480, 1935360, 1290240, 810244}, []int64{3950592, 2962944, 1975296, 1176964}},
		{"interleaved", 2, 4, []int64{3225600, 2100484}, []int64{4938240, 3152260}},
		{"gpipe", 2, 2, []int64{10321920, 11642912}, []int64{15802368, 17316896}},
	} {
		require.Equal(t, c.gpt, saved(t, &gpt, c.schedule, c.ranks, c.stages), "gpt, %s on %d ranks", c.schedule, c.ranks)
		require.Equal(t, c.llama, saved(t, &llama, c.schedule, c.ranks, c.stages), "llama, %s on %d ranks", c.schedule, c.ranks)
	}
}

// saved returns the peak on each rank of the bytes that autograd saves: buffers of class Saved,
// and the inputs that layers keep, which hooks count as saved too.
func saved(t *testing.T, m *fit.Model, name string, ranks, stages int) (peaks []int64) {
	cut := make([]int, stages)
	for i := range cut {
		cut[i] = m.Layers / stages
	}
	layers, sizes := fit.Composed(m, fit.Setup{Sequence: 48, Microbatch: 2, Precision: fit.FP32, Tables: fit.PyTorch}, cut)
	for _, stage := range layers {
		for i := range stage {
			for k, tensor := range stage[i].Tensors {
				if tensor.Role == fit.Input {
					stage[i].Tensors[k].Freed = fit.Moment{Action: fit.F, Step: 9}
					tensor.Role, tensor.Bytes, tensor.Class = fit.Own, "e*s*b*h/q", memory.Saved
					stage[i].Tensors = append(stage[i].Tensors, tensor)
				}
			}
		}
	}
	profile, err := fit.Compose(layers, 8, 8, sizes)
	require.NoError(t, err)
	made := laid(t, planOf(t, name, ranks, stages, 8), profile, 0)
	for rank := range ranks {
		var live, peak int64
		for change := range made.All(rank) {
			if change.Class == memory.Saved {
				if !change.Alloc {
					change.Bytes = -change.Bytes
				}
				live += change.Bytes
				peak = max(peak, live)
			}
		}
		peaks = append(peaks, peak)
	}
	return peaks
}
