package transformer_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/stagetest"
	"github.com/weir-ml/weir/stages/transformer"
)

// inFP8 returns the smallest model that a recipe can scale.
func inFP8(t testing.TB, name string) transformer.Config {
	t.Helper()
	cfg := tiny
	recipe, err := fp8.Named(name)
	require.NoError(t, err)
	cfg.FP8 = recipe
	for cfg.Width = 16; fp8.Divides(recipe, "", cfg.Width) != nil; {
		cfg.Width *= 2
	}
	return cfg
}

// eachRecipe runs a test for every recipe, without and with attention in FP8.
func eachRecipe(t *testing.T, test func(t *testing.T, cfg transformer.Config)) {
	for _, name := range fp8.Names {
		for _, attention := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s attention %v", name, attention), func(t *testing.T) {
				cfg := inFP8(t, name)
				cfg.FP8Attention = attention
				test(t, cfg)
			})
		}
	}
}

// TestFP8Validate requires errors that name the tensor.
func TestFP8Validate(t *testing.T) {
	cfg := tiny
	cfg.FP8Attention = true
	require.ErrorContains(t, cfg.Validate(), "FP8Attention without a recipe")
	cfg.FP8 = fp8.DelayedScaling{Margin: -1}
	require.ErrorIs(t, cfg.Validate(), fp8.ErrRecipe)
	cfg.FP8, cfg.Width = fp8.BlockScaling{}, 48
	err := cfg.Validate()
	require.ErrorIs(t, err, fp8.ErrShape)
	require.ErrorContains(t, err, `"block0.attention.qkv.input" has a width of 48`)
	cfg.Width = 256
	require.NoError(t, cfg.Validate())
}

// TestFP8SameNumbers requires the same bits for every split, with recompute and without, in
// both orders, with I and W apart: losses, gradients, weights, scales and histories (L9, L13,
// L14).
func TestFP8SameNumbers(t *testing.T) {
	testkit.Slow(t)
	eachRecipe(t, func(t *testing.T, cfg transformer.Config) {
		cfg.Dropout = 0.1
		batch := sequences(random(t), cfg, 4)
		want := train(t, cfg, 1, 2, nil, batch)
		require.NotEmpty(t, want.scales)
		for stageCount, way := range []struct {
			name string
			plan schedule.Rule
		}{
			{"I and W apart", stagetest.SplitRule(schedule.DepthFirst, 2)}, {"breadth first", schedule.BreadthFirst}, {"W at the end", stagetest.SplitRule(schedule.BreadthFirst, atTheEnd)},
			{"depth first", schedule.DepthFirst}, {"W at the end", stagetest.SplitRule(schedule.DepthFirst, atTheEnd)},
		} {
			cfg.Recompute = stageCount%2 == 0
			have := train(t, cfg, stageCount+1, 2, way.plan, batch)
			require.Equal(t, want.losses, have.losses, "%d stages, recompute %v, %s", stageCount+1, cfg.Recompute, way.name)
			require.Equal(t, want.scales, have.scales, "%d stages, recompute %v, %s", stageCount+1, cfg.Recompute, way.name)
			require.Equal(t, want, have, "%d stages, recompute %v, %s", stageCount+1, cfg.Recompute, way.name)
		}
		full := cfg
		full.FP8, full.FP8Attention = nil, false
		require.NotEqual(t, want.losses, train(t, full, 1, 2, nil, batch).losses, "float32")
	})
}

// keptBytes returns the bytes that a block keeps for a number of tokens, in addition to its input,
// according to the documentation's table: saved in class Saved, and low in class FP8.
func keptBytes(cfg transformer.Config, tokens int) (saved, low int64) {
	half := func(rows, cols int) int64 {
		return int64(cfg.FP8.Encoding(fp8.Input).Bytes(rows, cols))
	}
	w := cfg.Width
	saved = int64(4 * tokens * (w + cfg.Heads)) // the middle, and the logarithms of attention
	low = half(tokens, 4*w)                     // the input of GELU
	if cfg.FP8Attention {
		return saved, low + half(tokens, 3*w) + half(w, tokens) // queries, keys and values; its output
	}
	return saved + int64(4*tokens*4*w), low
}

// TestFP8Kept measures the bytes that a microbatch keeps between forward and backward, by
// class.
func TestFP8Kept(t *testing.T) {
	eachRecipe(t, func(t *testing.T, cfg transformer.Config) {
		for _, recompute := range []bool{false, true} {
			cfg.Recompute = recompute
			const tokens = 7
			copies := liveBefore(t, schedule.F, nil, cfg, 1, tokens, nil)[memory.FP8]
			live := liveBefore(t, schedule.B, nil, cfg, 1, tokens, nil)
			var saved, low int64
			if !recompute {
				saved, low = keptBytes(cfg, tokens)
			}
			layers := int64(cfg.Layers)
			require.Equal(t, layers*saved+4*tokens, live[memory.Saved], "saved; 4 bytes a token are the head's")
			if !recompute { // otherwise tensors that only the forward reads are released
				copies /= 2
			}
			require.Equal(t, layers*low+copies, live[memory.FP8], "in low precision")
			require.Zero(t, live[memory.Workspace])
		}
	})
}

// TestFP8Bytes compares the widths of the table with its round numbers: 28 bytes for each
// element of a token's hidden state, 16 with attention in FP8, and 40 in float32.
func TestFP8Bytes(t *testing.T) {
	for _, name := range []string{"delayed", "current"} {
		cfg := inFP8(t, name)
		cfg.Width = 64
		for attention, want := range map[bool]int64{false: 28, true: 16} {
			cfg.FP8Attention = attention
			const tokens = 32
			saved, low := keptBytes(cfg, tokens)
			input := int64(4 * tokens * cfg.Width)
			logarithms := int64(4 * tokens * cfg.Heads)
			scales := int64(4)
			if attention {
				scales *= 3
			}
			require.Equal(t, want*int64(tokens*cfg.Width), input+saved-logarithms+low-scales)
		}
	}
}

// TestFP8KeptForW requires that only FP8 tensors and sums over tokens are live between I and W
// of a block: 16 bytes for each element of the hidden state.
func TestFP8KeptForW(t *testing.T) {
	eachRecipe(t, func(t *testing.T, cfg transformer.Config) {
		const tokens = 7
		w := int64(cfg.Width)
		half := func(role fp8.Role, width int64) int64 {
			return int64(cfg.FP8.Encoding(role).Bytes(int(width), tokens))
		}
		var low int64
		for _, widths := range [][2]int64{{w, 3 * w}, {w, w}, {w, 4 * w}, {4 * w, w}} {
			low += half(fp8.Input, widths[0]) + half(fp8.GradOutput, widths[1])
		}
		sums := 4 * (3*w + w + 4*w + w + 4*w) // biases, and gains and biases of two norms
		for _, recompute := range []bool{false, true} {
			cfg.Recompute = recompute
			live := between(t, cfg, cfg.Layers+2, tokens, nil)
			layers := int64(cfg.Layers)
			require.Equal(t, layers*low, live[memory.FP8])
			require.Equal(t, layers*sums+4*tokens*w, live[memory.Carry], "with the gradient of the head's norm")
			require.Equal(t, int64(4*tokens), live[memory.Saved], "the head's")
		}
	})
}

// TestFP8Flat runs a step of many microbatches: the level after each is the same, and the
// number of allocations is the same as for few (L7, L11).
func TestFP8Flat(t *testing.T) {
	testkit.Slow(t)
	if invariants.Enabled || testkit.Raced {
		t.Skip("every call has a separate view if invariants are checked, and pools forget under the race detector")
	}
	for _, name := range fp8.Names {
		t.Run(name, func(t *testing.T) {
			cfg := inFP8(t, name)
			cfg.Layers, cfg.FP8Attention = 1, true
			dev := newHost(t)
			m := newModel(t, dev, cfg, 2)
			one := sequence{tokens: []int32{1, 2}, labels: []int32{2, 3}, weights: []float32{1, 1}}
			from := &source{dev, []sequence{one}}
			r := newRunner(t, dev, m.Stages(), nil)
			step := func(microbatches int) func() {
				return func() {
					live := dev.Live()
					result := runStep(t, r, microbatches, from)
					rollScales(t, m, nil)
					require.NoError(t, m.Update(transformer.AdamW{LearningRate: 0.01}, result, 1))
					require.Zero(t, result.Growth.Bytes)
					require.Zero(t, result.Excess)
					require.Equal(t, live, dev.Live())
				}
			}
			want := testkit.Allocations(step(128))
			require.Equal(t, want, testkit.Allocations(step(1024), want))
			require.NoError(t, m.Close())
			require.Zero(t, dev.Live())
			require.NoError(t, dev.ReleasePages(io.Discard, memory.Scopes()...))
			var stats memory.Stats
			dev.Stats(&stats)
			require.Zero(t, stats.Live)
			require.Zero(t, stats.Reserved)
		})
	}
}

// TestFP8FailedStep: the measurements of a failed step do not count.
func TestFP8FailedStep(t *testing.T) {
	cfg := inFP8(t, "delayed")
	batch := sequences(random(t), cfg, 3)
	scales := func(fails bool) []byte {
		dev := &failing{Compute: newHost(t)}
		m := newModel(t, dev, cfg, 2)
		r := newRunner(t, dev, m.Stages(), nil)
		if fails {
			for _, p := range m.Parameters() { // the measurements have another magnitude
				w := read(t, dev, p.Weight)
				for i := range w {
					w[i] *= 8
				}
				require.NoError(t, dev.WriteFloat32(p.Weight, w))
			}
			dev.at = 300
			_, err := r.Step(context.Background(), len(batch), &source{dev, batch})
			require.ErrorIs(t, err, errPlanned)
			for _, p := range m.Parameters() {
				w := read(t, dev, p.Weight)
				for i := range w {
					w[i] /= 8
				}
				require.NoError(t, dev.WriteFloat32(p.Weight, w))
			}
		}
		runStep(t, r, len(batch), &source{dev, batch})
		rollScales(t, m, nil)
		out, err := m.MarshalScales()
		require.NoError(t, err)
		return out
	}
	require.Equal(t, scales(false), scales(true))
}

// counting is a device that counts quantizations by kind.
type counting struct {
	*kernels.Host
	counts
	keys map[kernels.Key]bool // of random draws
}

type counts struct{ quantized, frozen, measured, drawn, rowwise, columnwise int }

func (c *counting) Quantize(op kernels.Quantize) error {
	one := func(yes bool) int {
		if yes {
			return 1
		}
		return 0
	}
	c.quantized++
	if op.Stochastic {
		c.keys[op.Key] = true
	}
	c.frozen += one(op.Scale != kernels.Cell{})
	c.measured += one(op.Tally != kernels.Cell{})
	c.drawn += one(op.Stochastic)
	c.rowwise += one(op.Rowwise != kernels.Quantized{})
	c.columnwise += one(op.Columnwise != kernels.Quantized{})
	return c.Host.Quantize(op)
}

// TestFP8Scales: in the first step delayed scaling has no history, and from the second on every
// tensor has the scale of its history; other recipes have none. A recompute and an evaluation
// measure nothing (L13), nor does the backward measure tensors again that the forward has
// measured; only gradients in NVFP4 are rounded stochastically.
func TestFP8Scales(t *testing.T) {
	for _, name := range fp8.Names {
		t.Run(name, func(t *testing.T) {
			cfg := inFP8(t, name)
			cfg.Layers, cfg.Recompute = 1, true
			dev := &counting{Host: newHost(t)}
			m := newModel(t, dev, cfg, 2)
			r := newRunner(t, dev, m.Stages(), nil)
			batch := sequences(random(t), cfg, 3)
			const weights, forward, backward = 4, 5, 8 // per QUANTIZE, and per microbatch
			want := counts{
				quantized: weights + 3*(2*forward+backward), measured: weights + 3*(forward+backward/2),
				rowwise: weights + 3*(2*forward+4), columnwise: weights + 3*backward,
			}
			if name == "nvfp4" {
				want.drawn = 3 * 4
			}
			for step := range 2 {
				if step > 0 && name == "delayed" {
					want.frozen = want.quantized
				}
				dev.counts, dev.keys = counts{}, map[kernels.Key]bool{}
				runStep(t, r, 3, &source{dev, batch})
				require.Equal(t, want, dev.counts, "step %d", step)
				require.Len(t, dev.keys, want.drawn, "each tensor of each microbatch has draws of its own")
				rollScales(t, m, nil)
			}
			dev.counts = counts{}
			_, err := r.Evaluate(context.Background(), 3, &source{dev, batch})
			require.NoError(t, err)
			require.Zero(t, dev.measured)
			require.Equal(t, weights+3*(forward-1), dev.quantized, "all except kept tensors")
			require.Equal(t, weights, dev.columnwise, "copies of weights for the forward")
		})
	}
}

// TestFP8Counts: every element is measured once, whatever is kept and wherever it runs, and a
// weight in only one copy of the model.
func TestFP8Counts(t *testing.T) {
	cfg := inFP8(t, "nvfp4")
	cfg.Dropout, cfg.FP8 = 0.1, fp8.NVFP4{Nearest: true} // draws depend on the number of the microbatch
	batch := sequences(random(t), cfg, 4)
	report := func(recompute bool, devices ...[]kernels.Compute) (out fp8.Statistics) {
		cfg.Recompute = recompute
		m := newModelOn(t, cfg, devices...)
		list := m.Stages()
		for step := range 2 {
			for i, dev := range devices { // each copy trains on its part of the batch
				part := batch[i*len(batch)/len(devices):][:len(batch)/len(devices)]
				r := newRunner(t, dev[0], list[i*len(dev):][:len(dev)], func(c *runner.Config[kernels.Buffer]) { c.FirstStep = int64(step) })
				runStep(t, r, len(part), &source{dev[0], part})
			}
			out = rollScales(t, m, nil)
		}
		return out
	}
	a, b := newHost(t), newHost(t)
	want := report(false, []kernels.Compute{a, a})
	require.NotZero(t, want.Role(fp8.Input).Underflowed)
	require.Equal(t, want, report(true, []kernels.Compute{a, a, a}))
	cfg.Dropout = 0
	want = report(false, []kernels.Compute{a})
	require.Equal(t, want, report(false, []kernels.Compute{a}, []kernels.Compute{b}), "two copies")
	cfg.FP8Attention = true
	attention := report(false, []kernels.Compute{a})
	require.InEpsilon(t, want.Role(fp8.Input).Underflowed, attention.Role(fp8.Input).Underflowed, 0.05)
}

// TestFP8Unrolled: an update without rolling would never use a history.
func TestFP8Unrolled(t *testing.T) {
	cfg := inFP8(t, "delayed")
	dev := newHost(t)
	m := newModel(t, dev, cfg, 2)
	batch := sequences(random(t), cfg, 2)
	r := newRunner(t, dev, m.Stages(), nil)
	result := runStep(t, r, 2, &source{dev, batch})
	adam := transformer.AdamW{LearningRate: 0.01}
	require.ErrorIs(t, m.Update(adam, result, 0), transformer.ErrUnrolled)
	report := rollScales(t, m, nil)
	require.NoError(t, m.Update(adam, result, 0))
	require.Equal(t, int64(1), m.Updates)
	for role, c := range report.All() {
		require.Zero(t, c.NonFinite, role)
		require.Zero(t, c.Unused, role)
		require.Positive(t, c.Least, role)
		require.GreaterOrEqual(t, c.Greatest, c.Least, role)
	}
	require.Equal(t, 8, report.Role(fp8.Weight).Tensors)

	_, err := r.Evaluate(context.Background(), 2, &source{dev, batch})
	require.NoError(t, err)
	result = runStep(t, r, 2, &source{dev, batch})
	_, err = m.RollScales(context.Background(), reducer(func([]fp8.Tally) error { return errPlanned }))
	require.ErrorIs(t, err, errPlanned)
	rollScales(t, m, reducer(func(tallies []fp8.Tally) error {
		tallies[0].Merge(fp8.Tally{Amax: math.Float32bits(1e6), Saturated: 77})
		return nil
	}))
	require.NoError(t, m.Update(adam, result, 0))
}

type reducer func([]fp8.Tally) error

func (r reducer) ReduceTallies(_ context.Context, tallies []fp8.Tally) error { return r(tallies) }

// TestFP8Resume: a model with the weights and scales of another one continues like that one.
func TestFP8Resume(t *testing.T) {
	cfg := inFP8(t, "delayed")
	batch := sequences(random(t), cfg, 3)
	dev := newHost(t)
	step := func(m *transformer.Model, r *runner.Runner[kernels.Buffer]) (losses []loss.Value) {
		result := runStep(t, r, len(batch), &source{dev, batch})
		rollScales(t, m, nil)
		require.NoError(t, m.Update(transformer.AdamW{LearningRate: 0.01}, result, 0))
		return result.Losses
	}
	through := newModel(t, dev, cfg, 2)
	run := newRunner(t, dev, through.Stages(), nil)
	for range 2 {
		step(through, run)
	}
	resumed := newModel(t, dev, cfg, 3)
	scales, err := through.MarshalScales()
	require.NoError(t, err)
	require.NoError(t, resumed.UnmarshalScales(scales))
	for i, p := range resumed.Parameters() {
		from := through.Parameters()[i]
		for _, pair := range [][2]kernels.Buffer{{p.Weight, from.Weight}, {p.M, from.M}, {p.V, from.V}} {
			require.NoError(t, dev.Copy(pair[0], pair[1]))
		}
	}
	resumed.Updates = through.Updates
	again := newRunner(t, dev, resumed.Stages(), nil)
	for range 2 {
		require.Equal(t, step(through, run), step(resumed, again))
	}
	require.ErrorIs(t, resumed.UnmarshalScales(scales[:20]), fp8.ErrState)
	other := cfg
	other.FP8 = fp8.DelayedScaling{Format: fp8.Hybrid, History: 3}
	require.ErrorContains(t, newModel(t, dev, other, 2).UnmarshalScales(scales), "with the recipe")
	other.FP8 = nil
	require.ErrorIs(t, newModel(t, dev, other, 2).UnmarshalScales(scales), fp8.ErrState)
	require.NoError(t, newModel(t, dev, other, 2).UnmarshalScales(nil))
}

// TestFP8Frozen: a frozen block makes no columnwise halves and leaves nothing for W.
func TestFP8Frozen(t *testing.T) {
	cfg := inFP8(t, "block")
	cfg.Layers, cfg.Untied = 1, true
	whole := between(t, cfg, 3, 5, nil)
	less := between(t, cfg, 3, 5, func(list []stages.Stage[kernels.Buffer]) { list[1] = stages.Freeze(list[1]) })
	require.NotZero(t, whole[memory.FP8])
	require.Zero(t, less[memory.FP8])
	require.Equal(t, int64(4*5*cfg.Width), less[memory.Carry], "the head's")
}
