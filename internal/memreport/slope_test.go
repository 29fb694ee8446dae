package memreport

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/trainer/report"
)

func line(n int, at func(i int) float64) (x, y []float64) {
	for i := range n {
		x, y = append(x, float64(i)), append(y, at(i))
	}
	return x, y
}

func TestFit(t *testing.T) {
	x, y := line(100, func(i int) float64 { return 7 + 240*float64(i) })
	require.Equal(t, slope{240, 240, 240, 240}, fit(x, y))

	// Outliers, a third of the points, change neither the slope nor the verdict.
	for i := 0; i < 100; i += 3 {
		y[i] += 1e6 * float64(1-2*(i%2))
	}
	s := fit(x, y)
	require.InDelta(t, 240, s.Median, 1e-9)
	require.True(t, s.rises(100))

	require.Equal(t, slope{}, fit(nil, nil))
	require.Equal(t, slope{3, 3, 3, 3}, fit([]float64{1, 2}, []float64{0, 3}))
	require.False(t, slope{3, 3, 3, 3}.rises(2))
}

// Random points do not rise: neither independent points, nor sums of the last few draws, which
// resemble the level of microbatches in flight.
func TestChanceDoesNotRise(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, window := range []int{1, 4, 8} {
		found := 0
		for range 300 {
			draws := make([]float64, 100+window)
			for i := range draws {
				draws[i] = random.Float64()
			}
			x, y := line(100, func(i int) (sum float64) {
				for _, d := range draws[i : i+window] {
					sum += d
				}
				return sum
			})
			if fit(x, y).rises(100) {
				found++
			}
		}
		require.LessOrEqual(t, found, 1, "of 300, windows of %d", window)
	}
}

func TestCorner(t *testing.T) {
	for _, start := range []int{0, 1, 17, 98} {
		x, y := line(100, func(i int) float64 { return 5 + 2*float64(max(i-start, 0)) })
		require.Equal(t, start, corner(x, y, 2))
	}
}

// A profile has every value, for any number of positions.
func TestProfile(t *testing.T) {
	for _, n := range []int{1, maxCells, maxCells + 1, 3*maxCells + 7} {
		var p profile
		for pass := range 2 {
			for i := range n {
				p.add(int64(i), maxCells, float64(pass))
			}
		}
		require.LessOrEqual(t, len(p.list), maxCells)
		next := 0
		for _, c := range p.list {
			positions := int(c.Last-c.First) + 1
			require.Equal(t, report.Bucket{First: float64(next), Last: c.Last, Max: 1, Sum: float64(positions), Count: 2 * positions}, c)
			next += positions
		}
		require.Equal(t, n, next)
	}
}

// A profile's rise begins at the right position, whatever values precede it.
func TestRise(t *testing.T) {
	for _, n := range []int{20, 300, 2000, 10_000} {
		var p profile
		start := int64(n / 3)
		for i := range int64(n) {
			p.add(i, maxCells, 1000*float64(max(i-start, 0)))
		}
		r, ok := riseOf(p.list, 1)
		require.True(t, ok)
		require.InDelta(t, 1000, r.Median, 1e-6, n)
		require.LessOrEqual(t, r.from, start+1)
		require.GreaterOrEqual(t, r.to, start+1)
		require.Less(t, r.to-r.from, 2*p.stride)
	}
}

// Columns preserve all extremes, sums and records.
func TestColumns(t *testing.T) {
	for _, n := range []int{1, maxColumns, maxColumns + 1, 5*maxColumns + 3} {
		var c columns
		random := rand.New(rand.NewPCG(3, uint64(n)))
		values := make([]int64, n)
		for i := range values {
			values[i] = random.Int64N(1000)
			c.add(recordOf(values[i], i%3 == 0), recordKey{Record: int64(i)})
		}
		require.LessOrEqual(t, len(c.list), maxColumns)
		next := 0
		for _, one := range c.list {
			require.Equal(t, int64(next), one.First.Record)
			part := values[next : next+one.count()]
			want, planned := report.Bucket{Min: float64(slices.Min(part)), Max: float64(slices.Max(part)), Count: one.count()}, 0
			want.First, want.Last = float64(next), float64(next+one.count()-1)
			for i, v := range part {
				want.Sum += float64(v)
				if (next+i)%3 == 0 {
					planned++
				}
			}
			require.Equal(t, want, one.spans[live])
			require.Equal(t, planned, one.spans[livePlanned].Count)
			require.Equal(t, want.Sum, one.Classes[0])
			if planned > 0 {
				got := one.spans[livePlanned]
				require.Equal(t, []float64{7, 7, 7 * float64(planned)}, []float64{got.Min, got.Max, got.Sum})
			}
			next += one.count()
			require.Equal(t, int64(next-1), one.Last.Record)
		}
		require.Equal(t, n, next)
	}
}

// recordOf is a record of schema 1 with a level, all of it resident.
func recordOf(level int64, planned bool) *memlog.Record {
	r := &memlog.Record{Schema: 1}
	r.Live, r.Peak, r.Reserved = level, level, level
	r.Classes[memory.Resident] = level
	if planned {
		r.Planned, r.LivePlanned, r.PeakPlanned = true, 7, 7
	}
	return r
}
