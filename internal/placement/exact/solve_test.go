package exact_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weir-ml/weir/internal/placement/exact"
	"github.com/weir-ml/weir/internal/placement/instances"
	"github.com/weir-ml/weir/internal/placement/minimalloc"
	"github.com/weir-ml/weir/memory/placement"
)

// plan solves a problem, and checks the promises of Solve.
func plan(t *testing.T, p *placement.Problem, options placement.Options) *placement.Solution {
	t.Helper()
	layout, err := exact.Solve(t.Context(), p, options)
	require.NoError(t, err)
	height, err := placement.Check(p, layout.Offsets)
	require.NoError(t, err)
	require.Equal(t, height, layout.Height)
	require.Equal(t, p.Bound(), layout.Bound)
	require.NotEmpty(t, layout.Proof)
	return layout
}

// The proof states why no layout is lower, or why none fits the capacity.
func TestCertificate(t *testing.T) {
	// Three buffers of 2 bytes of which any two are live together, one of them for half of each
	// of the others.
	p := &placement.Problem{Buffers: []placement.Buffer{
		{Lower: 0, Upper: 2, Size: 2},
		{Lower: 1, Upper: 3, Size: 2},
		{Lower: 0, Upper: 3, Size: 2, Gaps: []placement.Gap{{Lower: 1, Upper: 2}}},
	}}
	layout := plan(t, p, placement.Options{})
	require.EqualValues(t, 4, layout.Bound)
	require.EqualValues(t, 6, layout.Height)
	require.Equal(t, 0.5, layout.Gap())
	require.True(t, layout.Optimal)
	require.Contains(t, layout.Proof, "all layouts were searched")

	layout = plan(t, p, placement.Options{Capacity: 5})
	require.EqualValues(t, 6, layout.Height)
	require.Contains(t, layout.Proof, "none is as low as 5")

	layout = plan(t, p, placement.Options{Capacity: 3})
	require.Contains(t, layout.Proof, "more bytes are alive at once than 3")

	layout = plan(t, p, placement.Options{Capacity: 8})
	require.LessOrEqual(t, layout.Height, int64(8))
}

// Rectangles cut into buffers can be packed without a hole.
func TestPerfectPackings(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 3))
		for name, p := range map[string]*placement.Problem{
			"guillotine": instances.Guillotine(rng, 40, 1<<16, 10+4*int(seed)),
			"pinwheels":  instances.Pinwheels(rng, 1+2*int(seed)),
		} {
			for _, p := range []*placement.Problem{p, instances.Reversed(p), instances.Shuffled(rng, p), instances.Scaled(p, 5, 3)} {
				layout := plan(t, p, placement.Options{})
				require.Equal(t, layout.Bound, layout.Height, "%s, seed %d, %d buffers: %s", name, seed, len(p.Buffers), layout.Method)
			}
		}
	}
}

// Solve finds a layout for each published instance within its capacity.
func TestPlanPublished(t *testing.T) {
	for name, capacity := range map[string]int64{"B.1048576": 1 << 20, "D.1048576": 1 << 20, "F.1048576": 1 << 20, "G.1048576": 1 << 20, "J.1048576": 1 << 20, "G_1": 0} {
		t.Run(name, func(t *testing.T) {
			file, err := os.Open(filepath.Join(instances.Published(), name+".csv"))
			if err != nil {
				t.Skip(err)
			}
			defer file.Close()
			in, err := minimalloc.Read(file)
			require.NoError(t, err)
			layout := plan(t, &in.Problem, placement.Options{Capacity: capacity})
			require.LessOrEqual(t, layout.Height, max(capacity, layout.Bound))
		})
	}
}

// When the time ends, Solve returns the best layout so far, and it rejects invalid options.
func TestPlanEndsInTime(t *testing.T) {
	p := instances.Random(rand.New(rand.NewPCG(6, 6)), 200, true, false)
	layout := plan(t, p, placement.Options{Time: 50 * time.Millisecond, Nodes: 1 << 40})
	require.Greater(t, layout.Height, layout.Bound, "a hard one, which takes all the time")
	_, err := exact.Solve(t.Context(), p, placement.Options{Capacity: -1})
	require.ErrorIs(t, err, placement.ErrProblem)
}
