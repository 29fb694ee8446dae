package vector_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// Every set drops the same elements and keeps the same bits: at random lengths, in place too, and even if
// the number of a block exceeds 2^32.
func TestDropoutIsTheSameInEverySet(t *testing.T) {
	r := random(t)
	x := draws(r, 300, 1)
	for range 40 {
		draws := vector.Philox{Seed: r.Uint64(), Stream: r.Uint64()}
		limit, keep := r.Uint32(), float32(0.7)
		for _, block := range []uint64{0, 5, 1<<32 - 7, 1<<32 + 1, r.Uint64()} {
			n := r.IntN(len(x) + 1)
			want := make([]float32, n)
			for i, v := range x[:n] {
				a, b, c, d := draws.Draw(block + uint64(i/4))
				if [4]uint32{a, b, c, d}[i%4] >= limit {
					want[i] = v / keep
				}
			}
			for _, s := range sets() {
				y, all := spoiled(make([]float32, n), 3)
				s.Dropout(y, x, draws, block, limit, keep)
				same(t, want, y, "Dropout")
				for i, v := range all {
					require.True(t, v != v || i >= 3 && i < 3+n, "wrote beside")
				}
				copy(y, x)
				s.Dropout(y, y, draws, block, limit, keep)
				same(t, want, y, "Dropout in place")
			}
		}
	}
}

// Every set computes the draws of Draw at random lengths and steps, even if the number of a block exceeds
// 2^32, and writes nothing beyond them.
func TestDrawsAreTheSameInEverySet(t *testing.T) {
	r := random(t)
	for range 60 {
		draws := vector.Philox{Seed: r.Uint64(), Stream: r.Uint64()}
		n := 4 * r.IntN(60)
		block := []uint64{0, 5, 1<<32 - 7, 1<<32 + 1, r.Uint64()}[r.IntN(5)]
		step := []uint64{4, 0, 1, 100, 1 << 31, r.Uint64()}[r.IntN(6)]
		want := make([]uint32, n+1)
		for i := 0; i < n; i += 4 {
			want[i], want[i+1], want[i+2], want[i+3] = draws.Draw(block + uint64(i/16)*step + uint64(i/4%4))
		}
		for _, s := range sets() {
			got := make([]uint32, n+1)
			s.Draws(got[:n], draws, block, step)
			require.Equal(t, want, got, "%v: %d draws from %d, step %d", s, n, block, step)
		}
	}
}
