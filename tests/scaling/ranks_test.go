package scaling_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// hops returns a runner of empty stages, two on each of three ranks, and their source.
func hops(t testing.TB, rule schedule.Rule, hook func(*memory.Sample)) (*runner.Runner[kernels.Buffer], runner.Source[kernels.Buffer]) {
	t.Helper()
	const ranks, depth = 3, 6
	cfg := runner.Config[kernels.Buffer]{
		Stages:   make([]stages.Stage[kernels.Buffer], depth),
		Hooks:    runner.Hooks{Microbatch: hook},
		Plan:     runner.Plan{Placement: schedule.Looped(ranks, depth), Rule: rule},
		Topology: runner.Topology[kernels.Buffer]{Capacity: 1},
	}
	var sources []runner.Source[kernels.Buffer]
	for rank := range ranks {
		dev, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 24})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, dev.Close()) })
		alloc := func(class memory.Class) (kernels.Buffer, error) { return dev.Alloc(class, kernels.Float32, 16) }
		cfg.Spaces, sources = append(cfg.Spaces, dev), append(sources, emptySource(alloc))
		for _, s := range cfg.Plan.Placement.On(rank) {
			cfg.Stages[s] = &empty[kernels.Buffer]{alloc: alloc, first: s == 0, last: s == depth-1}
		}
	}
	g, err := runner.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g, runner.PerRank(sources...)
}

// TestNothingGrowsOnSeveralRanks checks the memory levels of three ranks, and the allocations of
// whole steps on the Go heap.
func TestNothingGrowsOnSeveralRanks(t *testing.T) { // L6, L7, L11
	testkit.Slow(t)
	for _, plan := range []struct {
		name  string
		rule  schedule.Rule
		large int
	}{{"interleaved", schedule.Interleaved, 65536}, {"depth-first", schedule.DepthFirst, 8192}} {
		t.Run(plan.name, func(t *testing.T) {
			g, sources := hops(t, plan.rule, func(s *memory.Sample) {
				if s.Growth != 0 || s.Excess != 0 {
					t.Errorf("rank %d, microbatch %d grew by %d bytes to an excess of %d", s.Rank, s.Microbatch, s.Growth, s.Excess)
				}
			})
			var peaks []int64
			step := func(m int) func() {
				return func() {
					result, err := g.Step(t.Context(), m, sources)
					if err != nil {
						t.Fatal(err)
					}
					peaks = peaks[:0]
					for _, rank := range result.Ranks {
						peaks = append(peaks, rank.Peak, rank.Live, rank.Excess)
					}
				}
			}
			if testkit.Raced { // with the race detector it takes minutes, and pools drop objects
				plan.large = 1024
			} else if !*testkit.Long {
				plan.large = min(plan.large, 16384)
			}
			step(plan.large)() // see testkit.Allocations
			want := testkit.Allocations(step(128))
			before := slices.Clone(peaks)
			got := testkit.Allocations(step(plan.large), want)
			require.Equal(t, before, peaks)
			if !invariants.Enabled { // with the tag every call allocates a view
				require.Less(t, want, uint64(128))
				if !testkit.Raced {
					require.Equal(t, want, got)
				}
			}
		})
	}
}

// TestPlantedAllocationsAreCounted is the positive control: an allocation on every rank in
// every 1024th microbatch is counted exactly.
func TestPlantedAllocationsAreCounted(t *testing.T) { // L11
	testkit.Slow(t)
	if testkit.Raced || invariants.Enabled {
		t.Skip("pools forget under the race detector, and with -tags invariants every call gets a view of its own")
	}
	for _, planted := range []uint64{0, 1} {
		var kept [3]*[64]byte
		g, sources := hops(t, schedule.Interleaved, func(s *memory.Sample) {
			if planted > 0 && s.Microbatch%1024 == 0 {
				kept[s.Rank] = new([64]byte)
			}
		})
		counts := map[int]uint64{}
		for _, m := range []int{4096, 128} { // see testkit.Allocations
			counts[m] = testkit.Allocations(func() {
				_, err := g.Step(t.Context(), m, sources)
				require.NoError(t, err)
			})
		}
		require.Equal(t, counts[128]+3*3*planted, counts[4096])
		require.Equal(t, planted > 0, kept[2] != nil)
	}
}
