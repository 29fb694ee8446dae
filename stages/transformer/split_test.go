package transformer_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/stagetest"
	"github.com/weir-ml/weir/stages/transformer"
)

const atTheEnd = 1 << 20

// TestEveryStageSplits includes joined and recomputed stages, and identities.
func TestEveryStageSplits(t *testing.T) {
	for _, recompute := range []bool{false, true} {
		cfg := tiny
		cfg.Recompute = recompute
		for count := 1; count <= cfg.Layers+5; count++ {
			for _, stage := range newModel(t, newHost(t), cfg, count).Stages() {
				_, splits := stage.(stages.SplitBackward[kernels.Buffer])
				require.True(t, splits, "%s, recompute %v", stage.Spec().Name, recompute)
			}
		}
	}
}

// between returns the live bytes between all I's and all W's of a step of one microbatch.
func between(t *testing.T, cfg transformer.Config, stageCount, tokens int, change func([]stages.Stage[kernels.Buffer])) memory.ByClass {
	t.Helper()
	return liveBefore(t, schedule.W, stagetest.SplitRule(schedule.DepthFirst, atTheEnd), cfg, stageCount, tokens, change)
}

// TestKeptForW compares the live bytes between I and W with the table in the package's
// documentation: the inputs of linear layers and gradients of outputs.
func TestKeptForW(t *testing.T) {
	const tokens = 7
	width, layers := int64(tiny.Width), int64(tiny.Layers)
	var want memory.ByClass
	want[memory.Entry] = 3
	want[memory.Activation] = layers*width + width // the inputs of the blocks and of the head
	want[memory.Saved] = layers*6*width + 1
	want[memory.Carry] = layers*10*width + width
	want[memory.ActGrad] = layers*width + width // of the outputs of the blocks and of the embedding
	for i := range want {
		want[i] *= 4 * tokens
	}
	for _, recompute := range []bool{false, true} {
		for _, dropout := range []float32{0, 0.5} {
			for _, count := range []int{1, 2, tiny.Layers + 2, tiny.Layers + 6} {
				cfg := tiny
				cfg.Recompute, cfg.Dropout = recompute, dropout
				require.Equal(t, want, between(t, cfg, count, tokens, nil), "%d stages, recompute %v, dropout %v", count, recompute, dropout)
			}
		}
	}
}

// TestFrozenKeepsNothingForW freezes parameters one layer at a time: I releases the tensors
// that only its W would take.
func TestFrozenKeepsNothingForW(t *testing.T) {
	const tokens = 5
	cfg := tiny
	cfg.Layers, cfg.Untied = 1, true
	width := int64(cfg.Width)
	whole := between(t, cfg, 3, tokens, nil)
	for _, test := range []struct {
		frozen []string
		class  memory.Class
		less   int64 // elements per token
	}{
		{[]string{"block0.mlp.down.weight", "block0.mlp.down.bias"}, memory.Saved, 4 * width},
		{[]string{"block0.mlp.down.weight", "block0.mlp.down.bias"}, memory.ActGrad, width},
		{[]string{"block0.mlp.down.weight"}, memory.Saved, 0}, // the bias needs the gradient
		{[]string{"block0.mlp.up.weight", "block0.mlp.up.bias"}, memory.Carry, 4 * width},
		{[]string{"block0.mlp.up.weight", "block0.mlp.up.bias"}, memory.Saved, 0}, // norm2 needs the middle
		{[]string{"block0.norm2.weight", "block0.norm2.bias"}, memory.Carry, width},
		{[]string{"block0.norm2.weight", "block0.norm2.bias", "block0.mlp.up.weight", "block0.mlp.up.bias"}, memory.Saved, width},
		{[]string{"block0.attention.output.weight", "block0.attention.output.bias"}, memory.Saved, width},
		{[]string{"block0.attention.output.weight", "block0.attention.output.bias"}, memory.Carry, width},
		{[]string{"block0.attention.qkv.weight", "block0.attention.qkv.bias"}, memory.Carry, 3 * width},
		{[]string{"block0.norm1.weight", "block0.norm1.bias"}, memory.Carry, width},
		{[]string{"block0.norm1.weight", "block0.norm1.bias", "block0.attention.qkv.weight", "block0.attention.qkv.bias"}, memory.Activation, width},
		{[]string{"head.weight"}, memory.Saved, 1},
		{[]string{"norm.weight", "norm.bias"}, memory.Carry, width},
		{[]string{"norm.weight", "norm.bias", "head.weight"}, memory.Activation, width},
		{[]string{"embedding.weight", "positions.weight"}, memory.ActGrad, width},
	} {
		less := between(t, cfg, 3, tokens, func(list []stages.Stage[kernels.Buffer]) {
			for i := range list {
				list[i] = freezing(list[i], test.frozen...)
			}
		})
		require.Equal(t, 4*tokens*test.less, whole[test.class]-less[test.class], "%v without %v", test.class, test.frozen)
	}
}

// splitWithout is a stage with some frozen parameters that can still split.
type splitWithout struct {
	without
	stages.SplitBackward[kernels.Buffer]
}

// freezing returns the stage with some parameters frozen.
func freezing(stage stages.Stage[kernels.Buffer], names ...string) stages.Stage[kernels.Buffer] {
	params := append([]batchctx.Use[kernels.Buffer](nil), stages.Params(stage)...)
	for i := range params {
		for _, name := range names {
			if params[i].Name == name {
				params[i].Contributes = batchctx.Frozen
			}
		}
	}
	return &splitWithout{without{stage, params}, stage.(stages.SplitBackward[kernels.Buffer])}
}

// TestFrozenAlone freezes every parameter in turn, with B and with I and W apart: its gradient is
// not touched, and all others keep their bits.
func TestFrozenAlone(t *testing.T) {
	cfg := tiny
	cfg.Untied, cfg.Layers, cfg.Dropout = true, 1, 0.1
	batch := sequences(random(t), cfg, 3)
	whole := train(t, cfg, 3, 1, nil, batch)
	dev := newHost(t)
	m := newModel(t, dev, cfg, 3)
	for _, rule := range []schedule.Rule{schedule.DepthFirst, stagetest.SplitRule(schedule.DepthFirst, 1)} {
		for _, fixed := range m.Parameters() {
			fill(t, dev, fixed.Grad, 42)
			list := m.Stages()
			for i := range list {
				list[i] = freezing(list[i], fixed.Name)
			}
			r := newRunner(t, dev, list, func(c *runner.Config[kernels.Buffer]) { c.Plan.Rule = rule })
			runStep(t, r, len(batch), &source{dev, batch})
			for _, p := range m.Parameters() {
				grad := read(t, dev, p.Grad)
				if p != fixed {
					require.Equal(t, whole.gradients[p.Name], bits(grad), "%s with %s frozen", p.Name, fixed.Name)
					continue
				}
				for _, g := range grad {
					require.Equal(t, float32(42), g, fixed.Name)
				}
			}
		}
	}
}

// TestSplitPeak measures how far each I and each W rises above the level at its beginning.
func TestSplitPeak(t *testing.T) {
	for _, dropout := range []float32{0, 0.5} {
		cfg := tiny
		cfg.Dropout = dropout
		const tokens = 7
		dev, above := rises(t, stagetest.SplitRule(schedule.DepthFirst, atTheEnd), cfg, tokens)
		width := int64(4 * tokens * cfg.Width)
		statistics := int64(4 * tokens * 2)
		_, attention := dev.AttentionWorkspace(tokens, cfg.Heads, cfg.Width/cfg.Heads)
		head := int64(4 * dev.HeadWorkspace(tokens, cfg.Width, cfg.Vocabulary))
		dropped := int64(0) // the gradient before a dropout
		if dropout > 0 {
			dropped = width
		}
		// The peak in I consists of its carries and the workspace of attention. W releases the 5·W
		// of the first layer before it allocates as much.
		require.Equal(t, 10*width+int64(4*attention), above["1 I"], "block0's I, dropout %v", dropout)
		require.Equal(t, dropped, above["1 W"], "block0's W, dropout %v", dropout)
		require.Equal(t, 2*width+statistics+head, above["3 I"], "head's I, dropout %v", dropout)
		require.Equal(t, width+statistics+head, above["3 W"], "head's W, dropout %v", dropout)
		require.Zero(t, above["0 I"], "embedding's I")
		require.Equal(t, dropped, above["0 W"], "embedding's W")
	}
}

// TestOneBook: a tensor that a call takes out of a slot, and keeps for itself or leaves for W,
// is not reported as a leak by a step whose space has no book (L6).
func TestOneBook(t *testing.T) {
	quantized := tiny
	quantized.Width, quantized.FP8 = 32, fp8.CurrentScaling{}
	for _, cfg := range []transformer.Config{tiny, quantized} {
		for _, rule := range []schedule.Rule{schedule.DepthFirst, stagetest.SplitRule(schedule.DepthFirst, 1)} {
			dev := newHost(t)
			m := newModel(t, dev, cfg, 2)
			r := newRunner(t, dev, m.Stages(), func(c *runner.Config[kernels.Buffer]) {
				c.Plan.Rule = rule
				c.Spaces = []memory.Space[kernels.Buffer]{struct{ memory.Space[kernels.Buffer] }{dev}}
			})
			result := runStep(t, r, 3, &source{dev, sequences(rand.New(rand.NewPCG(1, 0)), cfg, 3)})
			require.Equal(t, 1, result.Books)
		}
	}
}
