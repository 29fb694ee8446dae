package fp8_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
)

var inf, nan = float32(math.Inf(1)), float32(math.NaN())

func TestFormat(t *testing.T) {
	require.Equal(t, []float32{448, 57344, 6}, []float32{fp8.E4M3.Max(), fp8.E5M2.Max(), fp8.E2M1.Max()})
	require.Equal(t, "e4m3 e5m2 e2m1 format(3)", fmt.Sprint(fp8.E4M3, fp8.E5M2, fp8.E2M1, fp8.Format(3)))
	require.Equal(t, byte(0x7e), fp8.E4M3.Encode(inf))
	require.Equal(t, byte(0x7f), fp8.E4M3.EncodeOverflowing(inf))
	require.Equal(t, byte(0x7b), fp8.E5M2.Encode(inf))
	require.Equal(t, byte(0xfc), fp8.E5M2.EncodeOverflowing(-inf))
	require.Equal(t, byte(0x7), fp8.E2M1.Encode(nan))
	require.Equal(t, byte(0x38), fp8.E4M3.EncodeStochastic(1.0624, 0))
	require.Equal(t, byte(0x39), fp8.E4M3.EncodeStochastic(1.0624, math.MaxUint32))
}

// TestScaleOf covers the cases in which implementations disagree, with the choice of this package.
func TestScaleOf(t *testing.T) {
	for _, c := range []struct {
		amax, max, epsilon float32
		powerOf2           bool
		want               float32
	}{
		{448, 448, 0, false, 1}, {1, 448, 0, false, 448}, {3, 448, 0, false, float32(448) / 3},
		{3, 448, 0, true, 128}, {448, 448, 0, true, 1}, {449, 448, 0, true, 0.5},
		{0, 448, 0, false, 1}, {inf, 448, 0, false, 1}, {nan, 448, 0, false, 1}, {nan, 448, 1, true, 1},
		{0, 448, 1e-4, false, float32(448) / float32(1e-4)}, {1e-40, 448, 0, false, math.MaxFloat32}, {1e-40, 448, 0, true, 0x1p127},
	} {
		require.Equal(t, c.want, fp8.ScaleOf(c.amax, c.max, c.epsilon, c.powerOf2), "%+v", c)
	}
}

func TestRecipes(t *testing.T) {
	both := fp8.Pair{Forward: fp8.E4M3, Backward: fp8.E4M3}
	for _, r := range []fp8.Recipe{
		fp8.DelayedScaling{Format: fp8.Hybrid}, fp8.CurrentScaling{Format: fp8.Hybrid}, fp8.BlockScaling{Format: both}, fp8.MXFP8{}, fp8.NVFP4{},
		fp8.DelayedScaling{Format: fp8.Hybrid, History: fp8.MaxHistory, Margin: 64}, fp8.CurrentScaling{Format: fp8.Hybrid, Epsilon: 1e30},
	} {
		require.NoError(t, r.Validate(), r)
		require.True(t, r == r, "comparable")
	}
	for _, c := range []struct {
		recipe fp8.Recipe
		faults []string
	}{
		{fp8.DelayedScaling{Format: fp8.Hybrid, Margin: -1, History: -3}, []string{"a margin of -1 powers", "a history of -3 steps, want 1 to 65536"}},
		{fp8.DelayedScaling{Format: fp8.Pair{Forward: fp8.E2M1, Backward: fp8.Format(9)}}, []string{"forward in e2m1", "gradients in format(9)"}},
		{fp8.CurrentScaling{Format: fp8.Pair{Forward: fp8.E5M2}, Epsilon: nan}, []string{"forward in e5m2, which has too little", "an epsilon of NaN"}},
		{fp8.BlockScaling{Epsilon: -1}, []string{"block: an epsilon of -1"}},
	} {
		err := c.recipe.Validate()
		require.ErrorIs(t, err, fp8.ErrRecipe)
		require.Len(t, strings.Split(err.Error(), "\n"), len(c.faults))
		for _, text := range c.faults {
			require.ErrorContains(t, err, text)
		}
	}
	_, err := fp8.NewState(fp8.DelayedScaling{Margin: 99}, nil)
	require.ErrorIs(t, err, fp8.ErrRecipe)
}

func state(t *testing.T, recipe fp8.Recipe) *fp8.State {
	t.Helper()
	s, err := fp8.NewState(recipe, []fp8.Slot{{"qkv.input", fp8.Input}, {"qkv.weight", fp8.Weight}, {"qkv.grad", fp8.GradOutput}})
	require.NoError(t, err)
	return s
}

// measured returns tallies with the given greatest magnitudes.
func measured(amax ...float32) []fp8.Tally {
	out := make([]fp8.Tally, len(amax))
	for i, a := range amax {
		out[i].Amax = math.Float32bits(a)
	}
	return out
}

func TestStateRollsOncePerStep(t *testing.T) {
	s := state(t, fp8.DelayedScaling{Format: fp8.Hybrid, Margin: 1, History: 2})
	require.Equal(t, []float32{1, 1, 1}, s.Scales())
	require.False(t, s.Known(0))
	for i, step := range []struct {
		amax, scales   []float32
		unused, frozen string // roles, one letter each
	}{
		{[]float32{2, 4, 8}, []float32{112, 56, 3584}, "", ""},
		{[]float32{1, 8, 0}, []float32{112, 28, 3584}, "g", ""},
		{[]float32{1, inf, nan}, []float32{224, 28, 3584}, "", "wg"},
		{[]float32{1, 1, 1e-38}, []float32{224, 28, 3584}, "", ""},
		{[]float32{1, 1, 1e-38}, []float32{224, 224, math.MaxFloat32}, "", ""},
	} {
		report, err := s.End(measured(step.amax...))
		require.NoError(t, err)
		var unused, frozen string
		for role, c := range report.All() {
			require.Equal(t, 1, c.Tensors)
			unused += strings.Repeat(role.String()[:1], c.Unused)
			frozen += strings.Repeat(role.String()[:1], c.Frozen)
		}
		require.Equal(t, step.unused+" "+step.frozen, unused+" "+frozen, "step %d", i)
		require.Equal(t, step.scales, s.Scales(), "step %d", i)
	}
	require.True(t, s.Known(0))
	_, err := s.End(make([]fp8.Tally, 2))
	require.ErrorIs(t, err, fp8.ErrState)

	widest := state(t, fp8.DelayedScaling{Format: fp8.Hybrid, Margin: 64})
	_, err = widest.End(measured(math.MaxFloat32, 1e20, math.MaxFloat32))
	require.NoError(t, err)
	require.Equal(t, float32(0x1p-126), widest.Scales()[0], "its reciprocal is finite")
	saved, err := widest.MarshalBinary()
	require.NoError(t, err)
	require.NoError(t, widest.UnmarshalBinary(saved))

	recent := state(t, fp8.DelayedScaling{Format: fp8.Hybrid, MostRecent: true})
	for _, amax := range []float32{4, 1} {
		_, err := recent.End(measured(amax, amax, amax))
		require.NoError(t, err)
	}
	require.Equal(t, []float32{448, 448, 57344}, recent.Scales())
}

// Without a history no slot is ever known, and nothing rolls.
func TestStateWithoutHistory(t *testing.T) {
	s := state(t, fp8.MXFP8{})
	report, err := s.End([]fp8.Tally{{Amax: math.Float32bits(3), Saturated: 2, Least: 1, Greatest: 4}, {}, {}})
	require.NoError(t, err)
	require.Equal(t, uint64(2), report.Role(fp8.Input).Saturated)
	require.False(t, s.Known(0))
	require.Equal(t, []float32{1, 1, 1}, s.Scales())
}

// Tallies merge to the same result in every order.
func TestTallyMerge(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	parts := []fp8.Tally{{}}
	for range 20 {
		parts = append(parts, fp8.Tally{Amax: r.Uint32(), Least: r.Float32() + 1e-9, Greatest: r.Float32(), NonFinite: uint64(r.IntN(9)), Saturated: r.Uint64N(9), Underflowed: r.Uint64N(9)})
	}
	merge := func() (sum fp8.Tally) {
		for _, p := range parts {
			sum.Merge(p)
		}
		return sum
	}
	want := merge()
	require.NotZero(t, want.Least)
	for _, p := range parts {
		require.GreaterOrEqual(t, want.Greatest, p.Greatest)
	}
	for range 50 {
		r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		require.Equal(t, want, merge())
	}
}

// A resumed run has the scales of an uninterrupted one, and rejects the checkpoint of another
// state.
func TestCheckpoint(t *testing.T) {
	recipe := fp8.DelayedScaling{Format: fp8.Hybrid, History: 5}
	through, stopped := state(t, recipe), state(t, recipe)
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		amax := measured(r.Float32(), r.Float32()*100, r.Float32()*1e-5)
		for _, s := range []*fp8.State{through, stopped} {
			_, err := s.End(amax)
			require.NoError(t, err)
		}
		saved, err := stopped.MarshalBinary()
		require.NoError(t, err)
		stopped = state(t, recipe)
		require.NoError(t, stopped.UnmarshalBinary(saved))
		again, err := stopped.MarshalBinary()
		require.NoError(t, err)
		require.Equal(t, saved, again)
		require.Equal(t, through.Scales(), stopped.Scales())
	}
	saved, err := through.MarshalBinary()
	require.NoError(t, err)
	other := state(t, fp8.DelayedScaling{Format: fp8.Hybrid, History: 6})
	fewer, err := fp8.NewState(recipe, []fp8.Slot{{"qkv.input", fp8.Input}})
	require.NoError(t, err)
	infinite := append([]byte(nil), saved...)
	copy(infinite[len(saved)-4:], "\x00\x00\x80\x7f")
	greatest := append([]byte(nil), saved...)
	for i := len(saved) - 4*(3+3*5); i < len(saved); i += 4 {
		copy(greatest[i:], "\xff\xff\x7f\x7f")
	}
	require.NoError(t, state(t, recipe).UnmarshalBinary(greatest), "the greatest number is one")
	for n := range saved {
		require.ErrorIs(t, through.UnmarshalBinary(saved[:n:n]), fp8.ErrState, "the first %d bytes", n)
	}
	zero := append([]byte(nil), saved...)
	copy(zero[len(saved)-4*(2+3*5):], "\x00\x00\x00\x00") // three slots with histories of five steps
	for _, c := range []struct {
		state *fp8.State
		data  []byte
		text  string
	}{
		{other, saved, `made with the recipe "delayed e4m3/e5m2 margin=0 history=5 recent=false", not "delayed e4m3/e5m2 margin=0 history=6 recent=false"`},
		{state(t, fp8.MXFP8{}), saved, `not "mxfp8 e4m3/e4m3 down=false"`},
		{fewer, saved, `other tensors than these 1, of which the first is "qkv.input"`},
		{through, saved[:len(saved)-1], fmt.Sprintf("%d bytes, expected %d", len(saved)-1, len(saved))},
		{through, saved[:20], "ends within its header"},
		{through, saved[:len("weirfp8")+1+4], "ends within its header"},
		{through, infinite, `an amax of +Inf for "qkv.grad"`},
		{through, zero, `a scale of 0 for "qkv.weight"`},
		{through, nil, "not a checkpoint"},
		{through, append([]byte("weirfp8\x02"), saved[8:]...), "version 2, expected 1"},
	} {
		before := c.state.Scales()[0]
		err := c.state.UnmarshalBinary(c.data)
		require.ErrorIs(t, err, fp8.ErrState)
		require.ErrorContains(t, err, c.text)
		require.Equal(t, before, c.state.Scales()[0])
	}
}

func FuzzUnmarshal(f *testing.F) {
	recipe := fp8.DelayedScaling{Format: fp8.Hybrid, History: 2}
	slots := []fp8.Slot{{"a", fp8.Input}, {"b", fp8.GradOutput}}
	s, err := fp8.NewState(recipe, slots)
	if err != nil {
		f.Fatal(err)
	}
	saved, err := s.MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(saved)
	f.Add(saved[:13])
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := fp8.NewState(recipe, slots)
		require.NoError(t, err)
		if s.UnmarshalBinary(data) == nil {
			again, err := s.MarshalBinary()
			require.NoError(t, err)
			require.Equal(t, data, again)
		}
	})
}

// TestEncoding checks the encoding and the operation for each recipe and role.
func TestEncoding(t *testing.T) {
	both := fp8.Pair{Forward: fp8.E4M3, Backward: fp8.E4M3}
	const e4m3, e5m2, e2m1 = fp8.E4M3, fp8.E5M2, fp8.E2M1
	type encoding struct {
		format  fp8.Format
		scaling kernels.Scaling
	}
	of := func(r fp8.Recipe, role fp8.Role) encoding {
		e := r.Encoding(role)
		return encoding{e.Format, e.Scaling}
	}
	for _, c := range []struct {
		recipe              fp8.Recipe
		input, weight, grad encoding
		stochastic          bool
	}{
		{fp8.DelayedScaling{Format: fp8.Hybrid}, encoding{e4m3, kernels.PerTensor}, encoding{e4m3, kernels.PerTensor}, encoding{e5m2, kernels.PerTensor}, false},
		{fp8.CurrentScaling{Format: both}, encoding{e4m3, kernels.PerTensor}, encoding{e4m3, kernels.PerTensor}, encoding{e4m3, kernels.PerTensor}, false},
		{fp8.BlockScaling{Format: both}, encoding{e4m3, kernels.Rows128}, encoding{e4m3, kernels.Tiles128}, encoding{e4m3, kernels.Rows128}, false},
		{fp8.MXFP8{Format: both}, encoding{e4m3, kernels.MX32}, encoding{e4m3, kernels.MX32}, encoding{e4m3, kernels.MX32}, false},
		{fp8.NVFP4{}, encoding{e2m1, kernels.NV16}, encoding{e2m1, kernels.NV16}, encoding{e2m1, kernels.NV16}, true},
	} {
		require.Equal(t, [...]encoding{c.input, c.weight, c.grad}, [...]encoding{of(c.recipe, fp8.Input), of(c.recipe, fp8.Weight), of(c.recipe, fp8.GradOutput)}, c.recipe)
		require.Equal(t, c.stochastic, c.recipe.Quantize(fp8.GradOutput).Stochastic, c.recipe)
		require.False(t, c.recipe.Quantize(fp8.Input).Stochastic, c.recipe)
	}
	require.False(t, fp8.NVFP4{Nearest: true}.Quantize(fp8.GradOutput).Stochastic)
	require.True(t, fp8.MXFP8{Down: true}.Quantize(fp8.Weight).Down)
}

func TestDivides(t *testing.T) {
	require.ErrorContains(t, fp8.Divides(fp8.BlockScaling{}, "x", math.MaxInt), fmt.Sprint("take ", math.MaxInt&^127))
	require.ErrorContains(t, fp8.Divides(fp8.BlockScaling{}, "x", math.MaxInt-128), fmt.Sprint("take ", math.MaxInt&^255, " or ", math.MaxInt&^127))
	for _, c := range []struct {
		recipe fp8.Recipe
		good   int
		bad    []int
		text   string
	}{
		{fp8.CurrentScaling{}, 48, []int{-5, 0, 8, 17}, "and current wants a multiple of 16: take 16 or 32"},
		{fp8.BlockScaling{}, 384, []int{48, 192}, "blocks of 128: take 128 or 256"},
		{fp8.MXFP8{}, 96, []int{33, 8}, "blocks of 32: take 32"},
		{fp8.NVFP4{}, 48, []int{24}, "take 16 or 32"},
	} {
		require.NoError(t, fp8.Divides(c.recipe, "x", c.good))
		for _, width := range c.bad {
			err := fp8.Divides(c.recipe, "block0.qkv.input", width)
			require.ErrorIs(t, err, fp8.ErrShape)
			require.ErrorContains(t, err, `"block0.qkv.input"`)
		}
		require.ErrorContains(t, fp8.Divides(c.recipe, "x", c.bad[len(c.bad)-1]), c.text)
	}
}

func TestSlots(t *testing.T) {
	for _, slots := range [][]fp8.Slot{{{"", fp8.Input}}, {{"a", fp8.Input}, {"a", fp8.Weight}}, {{"a", fp8.GradInput + 1}}} {
		_, err := fp8.NewState(fp8.DelayedScaling{}, slots)
		require.ErrorIs(t, err, fp8.ErrState)
	}
}

func TestReportMerge(t *testing.T) {
	report := func(amax ...float32) *fp8.Statistics {
		r, err := state(t, fp8.DelayedScaling{Format: fp8.Hybrid}).End(measured(amax...))
		require.NoError(t, err)
		return &r
	}
	sum := report(1, 0, inf)
	sum.Merge(report(2, 0, inf))
	sum.Merge(report(3, 4, 5))
	var counters []fp8.Counters
	for _, c := range sum.All() {
		counters = append(counters, c)
	}
	require.Equal(t, []fp8.Counters{
		{Tensors: 1, Tally: fp8.Tally{Amax: math.Float32bits(3)}},
		{Tensors: 1, Unused: 2, Tally: fp8.Tally{Amax: math.Float32bits(4)}},
		{Tensors: 1, Frozen: 2, Tally: fp8.Tally{Amax: math.Float32bits(inf)}},
	}, counters)
	require.Equal(t, "grad_input role(5)", fmt.Sprint(fp8.GradInput, " ", fp8.GradInput+1))
}

// TestFixtures compares a state in a checkpoint with those that earlier versions wrote.
func TestFixtures(t *testing.T) {
	recipe := fp8.DelayedScaling{Format: fp8.Hybrid, History: 3}
	testkit.Format{
		Name: "state-%d.bin", Mark: "weirfp8%c", Number: 1, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			s := state(t, recipe)
			for _, amax := range []float32{1.5, 448} {
				_, err := s.End(measured(amax, 2*amax, 3*amax))
				require.NoError(t, err)
			}
			b, err := s.MarshalBinary()
			require.NoError(t, err)
			return b
		},
		Read: func(b []byte) error { return state(t, recipe).UnmarshalBinary(b) },
	}.Test(t)
}
