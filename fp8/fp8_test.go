package fp8_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/fp8"
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

// The cases in which implementations disagree, with what this package has decided.
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

func state(t *testing.T, recipe fp8.DelayedScaling) *fp8.State {
	t.Helper()
	s, err := fp8.NewState(recipe, []fp8.Slot{{"qkv.input", fp8.Input}, {"qkv.weight", fp8.Weight}, {"qkv.grad", fp8.GradOutput}})
	require.NoError(t, err)
	return s
}

func TestStateRollsOncePerStep(t *testing.T) {
	s := state(t, fp8.DelayedScaling{Format: fp8.Hybrid, Margin: 1, History: 2})
	require.Equal(t, []float32{1, 1, 1}, s.Scales())
	require.False(t, s.Known(0))
	for i, step := range []struct {
		amax, scales []float32
		report       fp8.Report
	}{
		{[]float32{2, 4, 8}, []float32{112, 56, 3584}, fp8.Report{}},
		{[]float32{1, 8, 0}, []float32{112, 28, 3584}, fp8.Report{Unused: 1}},
		{[]float32{1, inf, nan}, []float32{224, 28, 3584}, fp8.Report{NonFinite: 2}},
		{[]float32{1, 1, 1e-38}, []float32{224, 28, 3584}, fp8.Report{}},
		{[]float32{1, 1, 1e-38}, []float32{224, 224, math.MaxFloat32}, fp8.Report{}},
	} {
		report, err := s.End(step.amax)
		require.NoError(t, err)
		require.Equal(t, step.report, report, "step %d", i)
		require.Equal(t, step.scales, s.Scales(), "step %d", i)
	}
	require.True(t, s.Known(0))
	_, err := s.End(make([]float32, 2))
	require.ErrorIs(t, err, fp8.ErrState)

	recent := state(t, fp8.DelayedScaling{Format: fp8.Hybrid, MostRecent: true})
	for _, amax := range []float32{4, 1} {
		_, err := recent.End([]float32{amax, amax, amax})
		require.NoError(t, err)
	}
	require.Equal(t, []float32{448, 448, 57344}, recent.Scales())
}

// A resumed run has the scales of one that was never stopped, and refuses what is not
// its own.
func TestCheckpoint(t *testing.T) {
	recipe := fp8.DelayedScaling{Format: fp8.Hybrid, History: 5}
	through, stopped := state(t, recipe), state(t, recipe)
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		amax := []float32{r.Float32(), r.Float32() * 100, r.Float32() * 1e-5}
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
	for _, c := range []struct {
		state *fp8.State
		data  []byte
		text  string
	}{
		{other, saved, "of another recipe or other slots"},
		{through, saved[:len(saved)-1], "87 bytes, expected 88"},
		{through, nil, "no checkpoint"},
		{through, append([]byte("weirfp8\x02"), saved[8:]...), "version 2, expected 1"},
	} {
		before := c.state.Scales()[0]
		err := c.state.UnmarshalBinary(c.data)
		require.ErrorIs(t, err, fp8.ErrState)
		require.ErrorContains(t, err, c.text)
		require.Equal(t, before, c.state.Scales()[0])
	}
}

func TestSlots(t *testing.T) {
	for _, slots := range [][]fp8.Slot{{{"", fp8.Input}}, {{"a", fp8.Input}, {"a", fp8.Weight}}, {{"a", fp8.Role(7)}}} {
		_, err := fp8.NewState(fp8.DelayedScaling{}, slots)
		require.ErrorIs(t, err, fp8.ErrState)
	}
}
