package transformer_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/stagetest"
	"github.com/weir-ml/weir/stages/transformer"
)

func TestValidate(t *testing.T) {
	require.NoError(t, tiny.Validate())
	for _, test := range []struct {
		name   string
		change func(*transformer.Config)
		want   []string
	}{
		{"nothing given", func(c *transformer.Config) { *c = transformer.Config{} },
			[]string{"Vocabulary is 0", "Width is 0", "Layers is 0", "Heads is 0", "Context is 0"}},
		{"heads", func(c *transformer.Config) { c.Heads = 3 }, []string{"Heads 3 do not divide Width 8"}},
		{"several", func(c *transformer.Config) { c.Heads, c.Dropout, c.Layers = 5, 1, -1 },
			[]string{"Layers is -1", "Heads 5 do not divide Width 8", "Dropout is 1"}},
		{"no number", func(c *transformer.Config) { c.Dropout = float32(math.NaN()) }, []string{"Dropout is NaN"}},
		{"negative dropout", func(c *transformer.Config) { c.Dropout = -0.1 }, []string{"Dropout is -0.1"}},
		{"too large", func(c *transformer.Config) { c.Width, c.Layers = 1<<28, 1<<12 }, []string{"parameters, too many"}},
		{"too many layers", func(c *transformer.Config) { c.Layers = 1 << 20 }, []string{"Layers is 1048576"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := tiny
			test.change(&cfg)
			err := cfg.Validate()
			require.Error(t, err)
			lines := strings.Split(err.Error(), "\n")
			require.Len(t, lines, len(test.want), err)
			for i, want := range test.want {
				require.Contains(t, lines[i], want)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	dev := newHost(t)
	for _, count := range []int{-1, 0, 1<<14 + 1} {
		_, err := transformer.New(dev, tiny, count)
		require.ErrorContains(t, err, "want 1 to 16384")
	}
	_, err := transformer.New(dev, transformer.Config{}, 1)
	require.ErrorContains(t, err, "Vocabulary is 0")

	large := tiny
	large.Vocabulary = 1 << 20
	_, err = transformer.New(dev, large, 1)
	require.ErrorIs(t, err, memory.ErrOutOfMemory)
	require.ErrorContains(t, err, `parameter "embedding.weight" of 8388608 elements`)
	require.Zero(t, dev.Live(), "buffers allocated before the error")
}

func TestSplit(t *testing.T) {
	cfg := tiny
	cfg.Layers = 5
	want := map[int]string{
		1: "embedding..head",
		2: "embedding..block2 block3..head",
		3: "embedding..block1 block2..block3 block4..head",
		4: "embedding..block0 block1..block2 block3..block4 head",
		5: "embedding..block0 block1..block2 block3 block4 head",
		7: "embedding block0 block1 block2 block3 block4 head",
		// More stages than parts.
		8:  "embedding block0 block1 block2 block3 block4 identity6 head",
		10: "embedding block0 identity2 block1 block2 identity5 block3 block4 identity8 head",
		13: "embedding identity1 block0 identity3 block1 identity5 block2 identity7 block3 identity9 block4 identity11 head",
	}
	for count, names := range want {
		m := newModel(t, newHost(t), cfg, count)
		var have []string
		for _, stage := range m.Stages() {
			spec := stage.Spec()
			require.NoError(t, spec.Validate())
			have = append(have, spec.Name)
		}
		require.Equal(t, names, strings.Join(have, " "))
	}
}

// parameterList is the canonical order of a model with one block.
const parameterList = `embedding.weight [11 8] decay
positions.weight [10 8] decay
block0.norm1.weight [8]
block0.norm1.bias [8]
block0.attention.qkv.weight [8 24] decay
block0.attention.qkv.bias [24]
block0.attention.output.weight [8 8] decay
block0.attention.output.bias [8]
block0.norm2.weight [8]
block0.norm2.bias [8]
block0.mlp.up.weight [8 32] decay
block0.mlp.up.bias [32]
block0.mlp.down.weight [32 8] decay
block0.mlp.down.bias [8]
norm.weight [8]
norm.bias [8]
`

func TestParameters(t *testing.T) {
	cfg := tiny
	cfg.Layers = 1
	for _, test := range []struct {
		untied bool
		want   string
		uses   int // of the embedding's table
	}{
		{false, parameterList, 2},
		{true, parameterList + "head.weight [11 8] decay\n", 1},
	} {
		cfg.Untied = test.untied
		for count := 1; count <= cfg.Layers+2; count++ {
			m := newModel(t, newHost(t), cfg, count)
			var have strings.Builder
			grads := map[kernels.Buffer]bool{}
			for _, p := range m.Parameters() {
				have.WriteString(p.Name + " " + fmt.Sprint(p.Shape))
				if p.Decay {
					have.WriteString(" decay")
				}
				have.WriteString("\n")
				grads[p.Grad] = true
			}
			require.Equal(t, test.want, have.String())

			uses, first := 0, kernels.Buffer{}
			for _, stage := range m.Stages() {
				for _, param := range stages.Params(stage) {
					if param.Name != "embedding.weight" {
						continue
					}
					if uses++; uses == 1 {
						first = param.Grad
						continue
					}
					require.NotEqual(t, first, param.Grad, "each use has its own accumulator")
					require.Equal(t, first.N, param.Grad.N)
				}
			}
			require.Equal(t, test.uses, uses)
			require.Equal(t, m.Parameters()[0].Grad, first)
			require.Len(t, grads, len(m.Parameters()))
		}
	}
}

// TestInitialWeights checks the draws, and that they depend only on the name.
func TestInitialWeights(t *testing.T) {
	cfg := transformer.Config{Vocabulary: 300, Width: 64, Layers: 2, Heads: 4, Context: 50, Seed: 3}
	dev := newHost(t)
	dirty(t, dev, 1<<20)
	m := newModel(t, dev, cfg, 1)
	other := newModel(t, dev, cfg, 4)
	cfg.Seed++
	require.NotEqual(t, read(t, dev, m.Parameters()[0].Weight), read(t, dev, newModel(t, dev, cfg, 1).Parameters()[0].Weight), "another seed")
	cfg.Seed--
	cfg.Layers = 3
	deeper := newModel(t, dev, cfg, 2)
	deep := map[string]kernels.Buffer{}
	for _, p := range deeper.Parameters() {
		deep[p.Name] = p.Weight
	}
	for i, p := range m.Parameters() {
		w := read(t, dev, p.Weight)
		require.Equal(t, w, read(t, dev, other.Parameters()[i].Weight), p.Name)
		for _, b := range []kernels.Buffer{p.Grad, p.M, p.V} {
			require.Equal(t, make([]float32, p.Weight.N), read(t, dev, b), p.Name)
			require.Equal(t, memory.Resident, dev.Class(b))
		}
		var sum, squares float64
		for _, v := range w {
			sum += float64(v)
			squares += float64(v) * float64(v)
		}
		n := float64(len(w))
		mean, deviation := sum/n, math.Sqrt(squares/n)
		switch {
		case strings.HasSuffix(p.Name, ".bias"):
			require.Zero(t, squares, p.Name)
		case strings.Contains(p.Name, "norm"):
			require.Equal(t, 1.0, mean, p.Name)
			require.Equal(t, 1.0, deviation, p.Name)
		default:
			want := 0.02
			if strings.HasSuffix(p.Name, "output.weight") || strings.HasSuffix(p.Name, "down.weight") {
				want /= 2 // two blocks: 1/sqrt(4)
			} else {
				require.Equal(t, w, read(t, dev, deep[p.Name]), "%s in a deeper model", p.Name)
			}
			require.InDelta(t, 0, mean, 5*want/math.Sqrt(n), p.Name)
			require.InEpsilon(t, want, deviation, 5/math.Sqrt(2*n), p.Name)
		}
	}
}

// dirty fills free memory with NaN.
func dirty(t *testing.T, dev kernels.Device, n int) {
	b, err := dev.Alloc(memory.Resident, kernels.Float32, n)
	require.NoError(t, err)
	fill(t, dev, b, float32(math.NaN()))
	_, err = dev.Release(b)
	require.NoError(t, err)
}

func TestTooLong(t *testing.T) {
	dev := newHost(t)
	m := newModel(t, dev, tiny, 2)
	r := newRunner(t, dev, m.Stages(), nil)
	q := zeros(11)
	live := dev.Live()
	_, err := r.Step(context.Background(), 1, &source{dev, []sequence{q}})
	require.ErrorIs(t, err, transformer.ErrTooLong)
	require.ErrorContains(t, err, "11 tokens, Config.Context is 10")
	require.Equal(t, live, dev.Live())
}

// TestNull builds and runs a model on the Null device: nothing is computed, and memory is the
// same as on its target.
func TestNull(t *testing.T) {
	batch := sequences(random(t), tiny, 3)
	var plan schedule.Rule
	peak := func(dev kernels.Compute) (live, peak int64) {
		m, err := transformer.New(dev, tiny, 3)
		require.NoError(t, err)
		r := newRunner(t, dev, m.Stages(), func(c *runner.Config[kernels.Buffer]) { c.Plan.Rule = plan })
		result := runStep(t, r, len(batch), &source{dev, batch})
		require.NoError(t, r.Close())
		require.NoError(t, m.Close())
		require.Zero(t, dev.Live())
		return result.Live, result.Peak
	}
	host := newHost(t)
	null := kernels.NewNull(host)
	for _, plan = range []schedule.Rule{nil, stagetest.SplitRule(schedule.DepthFirst, 1)} {
		live, top := peak(host)
		nullLive, nullTop := peak(null)
		require.Equal(t, live, nullLive)
		require.Equal(t, top, nullTop)
	}
	require.NoError(t, null.Close())
}

// TestNewOnATooSmallDevice runs out of memory at every size of device up to one that is large
// enough: each time New returns an error, and keeps nothing.
func TestNewOnATooSmallDevice(t *testing.T) {
	cfg := transformer.Config{Vocabulary: 8, Width: 4, Layers: 3, Heads: 1, Context: 4}
	refused := 0
	for capacity := int64(64); ; capacity += 512 {
		dev, err := kernels.NewHost(kernels.HostConfig{Capacity: capacity})
		require.NoError(t, err)
		model, err := transformer.New(dev, cfg, 5)
		if err == nil {
			require.NoError(t, model.Close())
			require.NoError(t, dev.Close())
			break
		}
		require.ErrorIs(t, err, memory.ErrOutOfMemory)
		require.Zero(t, dev.Live())
		require.NoError(t, dev.Close())
		refused++
	}
	require.Greater(t, refused, 10)
}

// BenchmarkStep measures a training step of 8 microbatches of 64 tokens without its update, in
// float32 and in every recipe.
func BenchmarkStep(b *testing.B) {
	const tokens, microbatches = 64, 8
	for _, name := range append([]string{"float32"}, fp8.Names...) {
		b.Run(name, func(b *testing.B) {
			cfg := transformer.Config{Vocabulary: 256, Width: 256, Layers: 2, Heads: 4, Context: tokens, Seed: 1}
			if name != "float32" {
				recipe, err := fp8.Named(name)
				require.NoError(b, err)
				cfg.FP8, cfg.FP8Attention = recipe, true
			}
			dev := newHost(b)
			r := newRunner(b, dev, newModel(b, dev, cfg, 2).Stages(), nil)
			q := sequence{tokens: make([]int32, tokens), labels: make([]int32, tokens), weights: make([]float32, tokens)}
			for i := range q.tokens {
				q.tokens[i], q.labels[i], q.weights[i] = int32(i), int32(i+1), 1
			}
			from := &source{dev, []sequence{q}}
			for b.Loop() {
				if _, err := r.Step(context.Background(), microbatches, from); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(tokens*microbatches*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
