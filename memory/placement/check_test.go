package placement_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weir-ml/weir/internal/placement/instances"
	"github.com/weir-ml/weir/memory/placement"
)

func TestValidate(t *testing.T) {
	gap := func(lower, upper int64) placement.Gap { return placement.Gap{Lower: lower, Upper: upper} }
	for _, test := range []struct {
		buffer placement.Buffer
		want   string
	}{
		{placement.Buffer{Lower: 3, Upper: 3, Size: 1}, "buffer 1: lower 3 is not before upper 3"},
		{placement.Buffer{Lower: 4, Upper: 3, Size: 1}, "buffer 1: lower 4 is not before upper 3"},
		{placement.Buffer{Upper: 3}, "buffer 1: size 0 is not positive"},
		{placement.Buffer{Upper: 3, Size: -1}, "buffer 1: size -1 is not positive"},
		{placement.Buffer{Upper: 3, Size: 1, Align: -8}, "buffer 1: alignment -8 is not a power of two"},
		{placement.Buffer{Upper: 3, Size: 1, Align: 12}, "buffer 1: alignment 12 is not a power of two"},
		{placement.Buffer{Upper: 3, Size: math.MaxInt64 - 4}, "buffer 1: the sizes up to here sum to more than"},
		{placement.Buffer{Upper: 3, Size: math.MaxInt64 - 8, Align: 8}, "buffer 1: the sizes up to here sum to more than"},
		{placement.Buffer{Upper: 9, Size: 1, Gaps: []placement.Gap{gap(5, 5)}}, "buffer 1: gap 0: lower 5 is not before upper 5"},
		{placement.Buffer{Upper: 9, Size: 1, Gaps: []placement.Gap{gap(0, 5)}}, "buffer 1: gap 0: lower 0 is not after 0"},
		{placement.Buffer{Upper: 9, Size: 1, Gaps: []placement.Gap{gap(3, 9)}}, "buffer 1: gap 0: upper 9 is not before 9"},
		{placement.Buffer{Upper: 9, Size: 1, Gaps: []placement.Gap{gap(3, 5), gap(5, 6)}}, "buffer 1: gap 1: lower 5 is not after 5"},
	} {
		p := placement.Problem{Buffers: []placement.Buffer{{Upper: 1, Size: 5}, test.buffer}}
		err := p.Validate()
		require.ErrorIs(t, err, placement.ErrProblem)
		require.ErrorContains(t, err, test.want)
	}
}

func TestValidateTellsEverything(t *testing.T) {
	p := &placement.Problem{Buffers: make([]placement.Buffer, 1000)}
	err := p.Validate()
	require.ErrorContains(t, err, "buffer 0: lower 0 is not before upper 0")
	require.ErrorContains(t, err, "buffer 7: size 0 is not positive")
	require.ErrorContains(t, err, "and 1984 more faults")
}

// A buffer may live for the whole range of times, and end at the greatest offset.
func TestExtremes(t *testing.T) {
	p := &placement.Problem{Buffers: []placement.Buffer{
		{Lower: math.MinInt64, Upper: math.MaxInt64, Size: math.MaxInt64 - 9},
		{Lower: math.MinInt64, Upper: math.MaxInt64, Size: 1, Align: 8},
	}}
	require.NoError(t, p.Validate())
	layout, err := placement.Solve(t.Context(), p, placement.Options{})
	require.NoError(t, err)
	require.Equal(t, p.Bound(), int64(math.MaxInt64-8))
	require.GreaterOrEqual(t, layout.Height, layout.Bound)
}

// valid implements the definition of a layout.
func valid(p *placement.Problem, offsets []int64) bool {
	for i := range p.Buffers {
		a := &p.Buffers[i]
		if offsets[i] < 0 || a.Align > 0 && offsets[i]%a.Align != 0 {
			return false
		}
		for k := range i {
			b := &p.Buffers[k]
			if offsets[i] < offsets[k]+b.Size && offsets[k] < offsets[i]+a.Size && instances.Meet(a, b) {
				return false
			}
		}
	}
	return true
}

func TestBoundIsTheMostAlive(t *testing.T) {
	for seed := range uint64(50) {
		p := instances.Random(rand.New(rand.NewPCG(seed, 0)), 60, true, false)
		most := int64(0)
		for time := range int64(200) {
			live := int64(0)
			for i := range p.Buffers {
				if instances.Alive(&p.Buffers[i], time) {
					live += p.Buffers[i].Size
				}
			}
			most = max(most, live)
		}
		require.Equal(t, most, p.Bound(), "seed %d", seed)
	}
}

// Check agrees with the definition on random layouts, both valid and invalid.
func TestCheckIsItsDefinition(t *testing.T) {
	right := 0
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p := instances.Random(rng, 8, true, true)
		offsets := make([]int64, len(p.Buffers))
		height := int64(0)
		for i := range offsets {
			b := &p.Buffers[i]
			offsets[i] = rng.Int64N(30000) - 5
			if b.Align > 1 && rng.IntN(20) > 0 {
				offsets[i] &^= b.Align - 1
			}
			height = max(height, offsets[i]+b.Size)
		}
		got, err := placement.Check(p, offsets)
		if !valid(p, offsets) {
			require.ErrorIs(t, err, placement.ErrOverlap, "seed %d", seed)
			continue
		}
		right++
		require.NoError(t, err, "seed %d", seed)
		require.Equal(t, height, got, "seed %d", seed)
	}
	require.Greater(t, right, 200)
	require.Less(t, right, 1800)
}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	p := &placement.Problem{Buffers: []placement.Buffer{
		{Lower: 0, Upper: 10, Size: 8},
		{Lower: 5, Upper: 15, Size: 8, Align: 4},
		{Lower: 10, Upper: 20, Size: 8, Gaps: []placement.Gap{{Lower: 12, Upper: 16}}},
	}}
	for _, test := range []struct {
		offsets []int64
		want    string
	}{
		{[]int64{0, 8}, "2 offsets for 3 buffers"},
		{[]int64{0, -4, 0}, "buffer 1 is at -4, which is below 0"},
		{[]int64{0, 10, 0}, "buffer 1 is at 10, which is not a multiple of 4"},
		{[]int64{0, math.MaxInt64 - 7, 0}, "ends above"},
		{[]int64{0, 4, 12}, "at time 5 buffer 1 at [4, 12) overlaps buffer 0 at [0, 8)"},
		{[]int64{12, 8, 0}, "at time 5 buffer 1 at [8, 16) overlaps buffer 0 at [12, 20)"},
		{[]int64{0, 8, 15}, "at time 10 buffer 2 at [15, 23) overlaps buffer 1 at [8, 16)"},
	} {
		_, err := placement.Check(p, test.offsets)
		require.ErrorIs(t, err, placement.ErrOverlap)
		require.ErrorContains(t, err, test.want)
	}
	height, err := placement.Check(p, []int64{0, 8, 0})
	require.NoError(t, err)
	require.EqualValues(t, 16, height)

	_, err = placement.Check(&placement.Problem{Buffers: make([]placement.Buffer, 1)}, []int64{0})
	require.ErrorIs(t, err, placement.ErrProblem)
}

// Moving a buffer down by one byte makes it overlap another one.
func TestOneByteWrong(t *testing.T) {
	p := instances.Training(nil, 12, 1024)
	layout, err := placement.Solve(t.Context(), p, placement.Options{})
	require.NoError(t, err)
	require.Equal(t, layout.Bound, layout.Height, "a layout without holes, where any byte matters")
	for i := range p.Buffers {
		layout.Offsets[i]--
		_, err := placement.Check(p, layout.Offsets)
		if layout.Offsets[i] < 0 {
			require.ErrorContains(t, err, "below 0")
		}
		require.Equal(t, valid(p, layout.Offsets), err == nil, "buffer %d", i)
		layout.Offsets[i]++
	}
}

// rows returns n buffers in the given number of columns, one after the other at each offset.
func rows(n, columns int) (p *placement.Problem, offsets []int64) {
	rng := rand.New(rand.NewPCG(1, 1))
	p, offsets = &placement.Problem{Buffers: make([]placement.Buffer, n)}, make([]int64, n)
	for i := range p.Buffers {
		lower := int64(i/columns) * 1000
		p.Buffers[i] = placement.Buffer{Lower: lower + rng.Int64N(300), Upper: lower + 301 + rng.Int64N(700), Size: 64}
		offsets[i] = int64(i%columns) * 64
	}
	return p, offsets
}

// Check finds a neighbor at any distance, among few live buffers and among many.
func TestCheckOfMany(t *testing.T) {
	for _, columns := range []int{3, 300, 5000} {
		p, offsets := rows(5000, columns)
		rng := rand.New(rand.NewPCG(uint64(columns), 3))
		_, err := placement.Check(p, offsets)
		require.NoError(t, err)
		for range 20 {
			i := rng.IntN(len(offsets))
			was := offsets[i]
			offsets[i] += rng.Int64N(3*64) - 64
			_, err := placement.Check(p, offsets)
			require.Equal(t, valid(p, offsets), err == nil, "%d columns, buffer %d at %d", columns, i, offsets[i])
			offsets[i] = was
		}
	}
}
