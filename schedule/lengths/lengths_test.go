package lengths_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule/lengths"
)

// A forward of a block takes 1 ms, 2 µs for each token, and a little for each square.
func Example() {
	forward := lengths.Amount{Constant: 1_000_000, Token: 2_000, Square: 0.05}
	fmt.Println(forward.Whole(lengths.Of(4096)))
	fmt.Println(forward.Whole(lengths.Of(2048, 1024, 1024)))
	// Output:
	// 10030861
	// 9506573
}

func TestFit(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	sizes := []lengths.Size{lengths.Of(512), lengths.Of(1024, 1024), lengths.Of(8192), lengths.Of(100, 9000), lengths.Of(77)}
	for range 200 {
		want := lengths.Amount{Constant: float64(r.IntN(3) * r.IntN(1e6)), Token: float64(r.IntN(3)) * r.Float64(), Square: float64(r.IntN(3)) * r.Float64()}
		var points []lengths.Point
		for _, s := range sizes {
			points = append(points, lengths.Point{Size: s, Value: want.At(s)})
		}
		got, misfit := lengths.Fit(points)
		require.Less(t, misfit, 1e-6, "%+v: %+v", want, got)
		for _, s := range sizes {
			require.InEpsilon(t, 1+want.At(s), 1+got.At(s), 1e-6, "%+v: %+v", want, got)
		}
	}
	// A cubic does not fit, and values that fall with the length have no slope.
	_, misfit := lengths.Fit([]lengths.Point{{lengths.Of(1), 1}, {lengths.Of(10), 1e3}, {lengths.Of(100), 1e6}, {lengths.Of(1000), 1e9}})
	require.Greater(t, misfit, 0.5)
	falling, misfit := lengths.Fit([]lengths.Point{{lengths.Of(10), 110}, {lengths.Of(20), 90}})
	require.True(t, falling.IsConstant())
	require.Greater(t, misfit, 0.05)
	none, misfit := lengths.Fit([]lengths.Point{{lengths.Of(10), 0}})
	require.Zero(t, none)
	require.Zero(t, misfit)
	// Lengths that are all equal determine one coefficient.
	one, misfit := lengths.Fit([]lengths.Point{{lengths.Of(10), 50}, {lengths.Of(10), 50}})
	require.Zero(t, misfit)
	require.EqualValues(t, 50, one.At(lengths.Of(10)))
}

func TestInvalid(t *testing.T) {
	for _, s := range []lengths.Size{{}, {Tokens: -1, Squares: 1}, {Tokens: 4, Squares: 3}, {Tokens: 4, Squares: 17}, {Tokens: lengths.MaxTokens + 1, Squares: 1 << 40}} {
		require.ErrorIs(t, s.Validate(), lengths.ErrSize)
	}
	require.NoError(t, lengths.Of(3, 4).Validate())
	for _, a := range []lengths.Amount{{Constant: -1}, {Token: math.NaN()}, {Square: math.Inf(1)}} {
		require.ErrorContains(t, a.Validate(), "use finite numbers of at least 0")
	}
	require.NoError(t, lengths.Amount{}.Validate())
}
