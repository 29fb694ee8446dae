package scaling_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/invariants"
	"github.com/weir-ml/weir/internal/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// hop is an empty stage over the buffers of a device: only the size of its results matters.
type hop struct {
	dev         kernels.Device
	first, last bool
}

type hopView = batchctx.Microbatch[kernels.Buffer]

func (h *hop) Spec() stages.Spec {
	spec := stages.Spec{Name: "hop", Slots: []string{"x"}}
	if h.first {
		spec.Reads = []stages.Read{{Part: "tokens"}}
	} else {
		spec.Inputs = []stages.Port{{Name: "x"}}
	}
	if !h.last {
		spec.Outputs = []stages.Port{{Name: "x"}}
	}
	return spec
}

func (h *hop) Forward(_ context.Context, mb hopView, in, out []kernels.Buffer) error {
	if !h.first {
		mb.Save(1, mb.Retain(in[0]))
	}
	if h.last {
		return nil
	}
	var err error
	out[0], err = h.dev.Alloc(memory.Activation, kernels.Float32, 16)
	return err
}

func (h *hop) Backward(_ context.Context, mb hopView, _, gradIn []kernels.Buffer) error {
	if h.first {
		return nil
	}
	_ = mb.Take(1)
	var err error
	gradIn[0], err = h.dev.Alloc(memory.ActGrad, kernels.Float32, 16)
	return err
}

// hops is a group of empty stages, two on each of three ranks, with their sources.
func hops(t testing.TB, rule schedule.Rule, hook func(*memory.Sample)) (*runner.Runner[kernels.Buffer], runner.Source[kernels.Buffer]) {
	t.Helper()
	const ranks, depth = 3, 6
	placement := schedule.Looped(ranks, depth)
	var devices []kernels.Device
	var sources []runner.Source[kernels.Buffer]
	for range ranks {
		dev, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 24})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, dev.Close()) })
		devices = append(devices, dev)
		sources = append(sources, runner.Indexed(func(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
			if !entry.Wants("tokens") {
				return nil
			}
			b, err := dev.Alloc(memory.Entry, kernels.Int32, 16)
			if err != nil {
				return err
			}
			entry.Put("tokens", b)
			return nil
		}))
	}
	var chain []stages.Stage[kernels.Buffer]
	for s, rank := range placement.Rank {
		chain = append(chain, &hop{dev: devices[rank], first: s == 0, last: s == depth-1})
	}
	cfg := runner.Config[kernels.Buffer]{
		Stages: chain,
		Hooks:  runner.Hooks{Microbatch: hook},
		Plan:   runner.Plan{Placement: placement, Rule: rule},
		World: runner.World[kernels.Buffer]{
			Capacity: 1,
		},
	}
	for _, dev := range devices {
		cfg.Spaces = append(cfg.Spaces, dev)
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
