package fit_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/internal/testing/modeltest"
	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/stages/transformer"
)

// ownLayers returns the layers of this repository's transformer in float32. s is the number of tokens, h the
// width, a the number of heads, y and z the sizes of attention's workspaces, and v the number of words in a
// tile of logits.
func ownLayers() (embedding, block, head fit.Layer) {
	at := func(a fit.Action, step int) fit.Moment { return fit.Moment{Action: a, Step: step} }
	tensor := func(name string, bytes fit.Formula, class memory.Class, born, freed fit.Moment, b int) fit.Tensor {
		return fit.Tensor{Name: name, Bytes: bytes, Class: class, Born: born, Freed: freed, B: b}
	}
	saved := func(name string, bytes fit.Formula, born int, freed fit.Moment, b int) fit.Tensor {
		return tensor(name, bytes, memory.Saved, at(fit.F, born), freed, b)
	}
	scratch := func(name string, bytes fit.Formula, a fit.Action, born, freed int) fit.Tensor {
		return tensor(name, bytes, memory.Workspace, at(a, born), at(a, freed), 0)
	}
	ends := func(input, gradient fit.Moment, b int, back fit.Moment) []fit.Tensor {
		return []fit.Tensor{
			{Name: "input", Role: fit.Input, Freed: input, B: b},
			{Name: "gradient", Role: fit.Gradient, Freed: gradient, B: b},
			{Name: "gradient of input", Role: fit.Back, Bytes: "4*s*h", Class: memory.ActGrad, Born: back},
		}
	}
	embedding = fit.Layer{Name: "embedding", Tensors: []fit.Tensor{
		{Name: "output", Role: fit.Output, Bytes: "4*s*h", Class: memory.Activation, Born: at(fit.F, 1)},
		{Name: "gradient", Role: fit.Gradient, Freed: at(fit.W, 1), B: 1},
	}}
	block = fit.Layer{Name: "block", Tensors: append(ends(at(fit.W, 4), at(fit.W, 1), 6, at(fit.I, 6)),
		saved("qkv", "12*s*h", 1, at(fit.I, 4), 0), scratch("norm", "4*s*h + 8*s", fit.F, 1, 1),
		saved("attention", "4*s*h", 2, at(fit.W, 3), 4), saved("log-sum-exp", "4*s*a", 2, at(fit.I, 4), 0), scratch("attention's", "y", fit.F, 2, 2),
		saved("middle", "4*s*h", 3, at(fit.W, 2), 3), saved("up", "16*s*h", 4, at(fit.W, 1), 1),
		scratch("norm 2", "4*s*h + 8*s", fit.F, 4, 4), scratch("wide", "16*s*h", fit.F, 5, 6),
		fit.Tensor{Name: "output", Role: fit.Output, Bytes: "4*s*h", Class: memory.Activation, Born: at(fit.F, 6)},
		tensor("gradient of up", "16*s*h", memory.Carry, at(fit.I, 1), at(fit.W, 2), 2),
		tensor("gradient of norm 2", "4*s*h", memory.Carry, at(fit.I, 2), at(fit.W, 2), 3), scratch("statistics", "8*s", fit.I, 2, 3),
		tensor("gradient of middle", "4*s*h", memory.Carry, at(fit.I, 3), at(fit.W, 3), 6),
		scratch("gradient of attention", "4*s*h", fit.I, 4, 4), tensor("gradient of qkv", "12*s*h", memory.Carry, at(fit.I, 4), at(fit.W, 4), 5), scratch("attention's backward", "z", fit.I, 4, 4),
		tensor("gradient of norm 1", "4*s*h", memory.Carry, at(fit.I, 5), at(fit.W, 4), 6), scratch("statistics", "8*s", fit.I, 5, 6),
		scratch("norm 2 again", "4*s*h + 8*s", fit.W, 2, 2), scratch("norm 1 again", "4*s*h + 8*s", fit.W, 4, 4))}
	head = fit.Layer{Name: "head", Tensors: append(ends(at(fit.W, 1), fit.Moment{}, 2, at(fit.I, 2))[:3],
		saved("log-sum-exp", "4*s", 1, at(fit.W, 1), 1), scratch("norm", "4*s*h", fit.F, 1, 2), scratch("statistics", "8*s", fit.F, 1, 1), scratch("logits", "v", fit.F, 2, 2),
		scratch("norm, backward", "4*s*h", fit.I, 1, 1), scratch("statistics, backward", "8*s", fit.I, 1, 2), scratch("logits, backward", "v", fit.I, 1, 1),
		tensor("gradient of norm", "4*s*h", memory.Carry, at(fit.I, 1), at(fit.W, 1), 2),
		scratch("norm, W", "4*s*h + 8*s", fit.W, 1, 1), scratch("logits, W", "v", fit.W, 1, 1))}
	return embedding, block, head
}

// TestComposedIsRecorded composes this repository's transformer from its layers, in every cut under several
// schedules and with several shares of saved state in far memory. The near and far peaks must be those of the
// profile that a dry run recorded.
func TestComposedIsRecorded(t *testing.T) {
	embedding, block, head := ownLayers()
	for _, c := range []struct {
		schedule      string
		ranks, stages int
	}{{"1f1b", 1, 1}, {"1f1b", 2, 2}, {"1f1b", 4, 4}, {"gpipe", 3, 3}, {"interleaved", 2, 4}, {"zb-h1", 4, 4}, {"zb-v", 2, 4}, {"zb1p", 3, 6}, {"dualpipev", 2, 4}} {
		for _, cfg := range []transformer.Config{
			{Vocabulary: 1000, Width: 64, Layers: 6, Heads: 4, Context: 100, Seed: 1},
			{Vocabulary: 40, Width: 32, Layers: 5, Heads: 8, Context: 100, Seed: 1},
		} {
			const tokens = 96
			name := fmt.Sprintf("%s, %d stages, width %d", c.schedule, c.stages, cfg.Width)
			profile := modeltest.Record(t, cfg, c.stages, tokens)
			host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
			require.NoError(t, err)
			forward, backward := host.AttentionWorkspace(tokens, cfg.Heads, cfg.Width/cfg.Heads)
			tile := host.HeadWorkspace(tokens, cfg.Width, cfg.Vocabulary)
			require.NoError(t, host.Close())
			stages := make([][]fit.Layer, c.stages)
			for stage := range stages { // cut in the same way as the profile, whose parameters have names
				for _, p := range parts(profile, stage) {
					stages[stage] = append(stages[stage], map[string]fit.Layer{"embedding": embedding, "head": head, "block": block}[p])
				}
			}
			composed, err := fit.Compose(stages, 4*tokens, 8*tokens, fit.Sizes{'s': tokens, 'h': int64(cfg.Width), 'a': int64(cfg.Heads), 'y': int64(4 * forward), 'z': int64(4 * backward), 'v': int64(4 * tile)})
			require.NoError(t, err)
			for _, share := range []float64{0, 0.25, 0.5, 1} {
				require.Equal(t, bounds(t, c.schedule, c.ranks, c.stages, share, profile), bounds(t, c.schedule, c.ranks, c.stages, share, composed), "%s, offloaded %v", name, share)
			}
		}
	}
}

// parts returns the layers of a stage of a recorded profile.
func parts(profile *layout.Profile, stage int) (kinds []string) {
	seen := ""
	for _, p := range profile.Params[stage] {
		kind := "block"
		switch name := p.Name; {
		case name == "embedding.weight" && stage == 0 && seen == "":
			kind = "embedding"
		case name == "positions.weight" || name == "norm.bias" || name == "embedding.weight":
			continue
		case name == "norm.weight":
			kind = "head"
		default:
			var number int
			fmt.Sscanf(name, "block%d.", &number)
			if seen == fmt.Sprint(number) {
				continue
			}
			seen = fmt.Sprint(number)
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// bounds returns the peaks of every rank, near and far, in bytes.
func bounds(t *testing.T, name string, ranks, stages int, share float64, profile *layout.Profile) (peaks []int64) {
	t.Helper()
	p := *profile
	p.Params = nil // tied parameters are sent at step end
	made := laid(t, plantest.Named(t, name, ranks, stages, 12), &p, share)
	for rank := range made.Ranks {
		far := int64(0)
		if made.Ranks[rank].Far != nil {
			far = made.Ranks[rank].Far.Peak.Bytes
		}
		peaks = append(peaks, made.Ranks[rank].Peak.Bytes, far)
	}
	return peaks
}
