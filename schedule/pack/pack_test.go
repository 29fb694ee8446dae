package pack_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/pack"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Six sequences become three microbatches of at most 4,096 tokens on two ranks, the smallest first.
func Example() {
	packer, err := pack.New(pack.Config{
		Rule: schedule.OneFOneB, Params: schedule.Params{Placement: schedule.Looped(2, 2)}, Capacity: 1,
		Costs: &simulate.Costs{Unit: "ns", Stages: []simulate.StageCosts{{
			F: 50_000, B: 100_000, PerToken: simulate.Rates{F: 200, B: 400}, PerSquare: simulate.Rates{F: 0.005, B: 0.01},
		}}},
		Limits: pack.Limits{Tokens: 4096},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	packing, err := packer.Pack([]int64{4000, 300, 2000, 100, 1500, 700})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(packing.Replicas[0].Packs)
	_, err = packer.Pack([]int64{300, 5000})
	fmt.Println(err)
	// Output:
	// [[1 4] [0] [2 3 5]]
	// pack: sequence too long: sequence 1, counted from 0, has 5000 tokens, which is 904 tokens over the limit: the longest that fits has 4096
}

// memoryCosts are costs whose bytes depend on lengths.
func memoryCosts() *simulate.Costs {
	return &simulate.Costs{Latency: 1000, PerMiB: 20_000, Stages: []simulate.StageCosts{{
		F: 50_000, I: 50_000, W: 40_000, Saved: 1 << 20, Resident: 1 << 30,
		PerToken:  simulate.Rates{F: 200, I: 200, W: 200, Output: 8192, Gradient: 8192, Saved: 100_000, FreedByI: 40_000, Carry: 10_000},
		PerSquare: simulate.Rates{F: 0.005, I: 0.01},
	}}}
}

// requirePacking fails the test if a packing breaks an invariant of the package.
func requirePacking(t require.TestingT, cfg *pack.Config, sequences []int64, p *pack.Packing) {
	var all []int
	slowest := int64(0)
	require.Len(t, p.Replicas, max(cfg.Replicas, 1))
	packs, order := p.Microbatches()
	for replica, r := range p.Replicas {
		if slowest = max(slowest, r.Makespan); r.Plan == nil {
			require.Empty(t, r.Packs)
			continue
		}
		require.Len(t, r.Packs, r.Plan.Microbatches)
		costs := *cfg.Costs
		costs.Lengths = make([]lengths.Size, len(r.Packs))
		for mb, packed := range r.Packs {
			require.True(t, slices.IsSorted(packed))
			all = append(all, packed...)
			var size lengths.Size
			for _, i := range packed {
				size = size.Add(lengths.Of(sequences[i]))
			}
			require.Equal(t, size, r.Sizes[mb])
			if cfg.Limits.Tokens > 0 {
				require.LessOrEqual(t, size.Tokens, cfg.Limits.Tokens)
			}
			costs.Lengths[r.Plan.BatchIndex(mb)] = size
			require.Equal(t, packed, packs[order[replica][r.Plan.BatchIndex(mb)]])
		}
		_, err := check.Prove(r.Plan, cfg.Capacity)
		require.NoError(t, err)
		report, err := simulate.Run(r.Plan, &costs, cfg.Capacity)
		require.NoError(t, err)
		require.Equal(t, report.Makespan, r.Makespan)
		require.Equal(t, report.Ideal, r.Ideal)
		for rank := range report.Ranks {
			require.Equal(t, report.Ranks[rank].Peak, r.Peaks[rank])
			if cfg.Limits.Memory > 0 {
				require.LessOrEqual(t, r.Peaks[rank], cfg.Limits.Memory)
			}
		}
	}
	require.Equal(t, slowest, p.Makespan)
	require.LessOrEqual(t, p.Bound, p.Makespan)
	slices.Sort(all)
	require.Len(t, all, len(sequences))
	require.Len(t, slices.Compact(all), len(sequences))
	numbers := slices.Sorted(slices.Values(slices.Concat(order...)))
	require.Len(t, slices.Compact(numbers), len(packs))
}

// For random batches, schedules and limits, every packing keeps the invariants of the package, and a second packer, or
// the same packer later, finds the same packing.
func TestPromises(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, s := range schedule.Schedules() {
		place, err := s.Place(4, 4*s.PerRank)
		require.NoError(t, err)
		cfg := pack.Config{
			Rule: s.Rule, Params: schedule.Params{Placement: place}, Costs: memoryCosts(), Capacity: 1 + random.IntN(2), Replicas: 1 + random.IntN(3), Effort: 50,
		}
		if random.IntN(2) == 0 {
			cfg.Limits.Tokens = 8192
		}
		if random.IntN(2) == 0 {
			cfg.Limits.Memory = 24 << 30
		}
		p, err := pack.New(cfg)
		if err != nil { // joined pairs
			require.ErrorIs(t, err, schedule.ErrParams, s.Name)
			require.ErrorContains(t, err, "joined pairs")
			continue
		}
		for range 3 {
			sequences := make([]int64, 8*cfg.Replicas+random.IntN(60))
			for i := range sequences {
				sequences[i] = 1 + random.Int64N(1+random.Int64N(8000))
			}
			got, err := p.Pack(sequences)
			if errors.Is(err, pack.ErrMemory) || errors.Is(err, pack.ErrConfig) {
				continue
			}
			require.NoError(t, err, s.Name)
			requirePacking(t, &cfg, sequences, got)
			again := newPacker(t, cfg)
			same, err := again.Pack(sequences)
			require.NoError(t, err)
			require.Equal(t, got, same)
		}
	}
}

// A sequence that is too long for the memory of a rank is refused with its index, and one that is a token shorter is
// not. The other batches fit.
func TestTooLongForTheMemory(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	cfg := pack.Config{
		Rule: schedule.OneFOneB, Params: schedule.Params{Placement: schedule.Looped(4, 4)}, Costs: memoryCosts(), Capacity: 1, Replicas: 2, Effort: 1,
		Limits: pack.Limits{Memory: 8 << 30},
	}
	p := newPacker(t, cfg)
	_, err := p.Pack([]int64{1 << 20})
	var long *pack.TooLongError
	require.ErrorAs(t, err, &long)
	longest := long.Longest
	require.Positive(t, longest)
	for batch := range 1000 {
		sequences := make([]int64, 16+random.IntN(48))
		for i := range sequences {
			sequences[i] = 1 + random.Int64N(longest/8)
		}
		packing, err := p.Pack(sequences)
		require.NoError(t, err)
		if batch%100 == 0 {
			requirePacking(t, &cfg, sequences, packing)
		}
		planted := random.IntN(len(sequences))
		sequences[planted] = longest + 1 + random.Int64N(longest)
		_, err = p.Pack(sequences)
		require.ErrorIs(t, err, pack.ErrTooLong)
		require.ErrorAs(t, err, &long)
		require.Equal(t, planted, long.Sequence)
		require.Equal(t, sequences[planted], long.Length)
		require.Equal(t, longest, long.Longest)
		require.Equal(t, 1, long.TooMany)
		// The excess is that of a step of this sequence alone.
		costs := *cfg.Costs
		costs.Lengths = []lengths.Size{lengths.Of(long.Length)}
		plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(4, 4), Microbatches: 1})
		require.NoError(t, err)
		report, err := simulate.Run(transfers(t, plan), &costs, 1)
		require.NoError(t, err)
		require.Equal(t, report.Ranks[long.Rank].Peak-cfg.Limits.Memory, long.Excess)
	}
	packing, err := p.Pack([]int64{longest})
	require.NoError(t, err)
	requirePacking(t, &cfg, []int64{longest}, packing)
	_, err = p.Pack([]int64{longest + 1})
	require.ErrorIs(t, err, pack.ErrTooLong)
}

// The packer keeps long sequences apart if some orders of them exceed the memory.
func TestLongSequencesAreApart(t *testing.T) {
	cfg := pack.Config{
		Rule: schedule.OneFOneB, Params: schedule.Params{Placement: schedule.Looped(4, 4)}, Costs: memoryCosts(), Capacity: 1,
		Limits: pack.Limits{Memory: 4 << 30},
	}
	p := newPacker(t, cfg)
	sequences := slices.Repeat([]int64{500, 18000, 300, 400, 500, 600, 300, 200}, 3)
	packing, err := p.Pack(sequences)
	require.NoError(t, err)
	requirePacking(t, &cfg, sequences, packing)
	_, err = p.Pack(slices.Repeat([]int64{18000}, 8))
	require.ErrorIs(t, err, pack.ErrMemory)
}

// The memory binds: most packings use more than 80 % of it, and none exceeds it.
func TestMemoryBinds(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	cfg := pack.Config{
		Rule: schedule.OneFOneB, Params: schedule.Params{Placement: schedule.Looped(4, 4)}, Costs: memoryCosts(), Capacity: 1, Effort: 100,
		Limits: pack.Limits{Memory: 4 << 30},
	}
	p := newPacker(t, cfg)
	full, packed := 0, 0
	for range 40 {
		sequences := make([]int64, 60)
		for i := range sequences {
			sequences[i] = 1 + random.Int64N(1+random.Int64N(p.Longest()/2))
		}
		packing, err := p.Pack(sequences)
		if errors.Is(err, pack.ErrMemory) {
			continue
		}
		require.NoError(t, err)
		requirePacking(t, &cfg, sequences, packing)
		packed++
		if slices.Max(packing.Replicas[0].Peaks) > cfg.Limits.Memory*8/10 {
			full++
		}
	}
	require.Greater(t, packed, 20)
	require.Greater(t, full, packed/2)
}

func TestConfigFaults(t *testing.T) {
	good := pack.Config{Rule: schedule.OneFOneB, Params: schedule.Params{Placement: schedule.Looped(4, 4)}, Costs: memoryCosts(), Capacity: 1}
	for want, change := range map[string]func(*pack.Config){
		"there is no rule":          func(c *pack.Config) { c.Rule = nil },
		"-1 replicas":               func(c *pack.Config) { c.Replicas = -1 },
		"an effort of -1":           func(c *pack.Config) { c.Effort = -1 },
		"limits of -1 tokens":       func(c *pack.Config) { c.Limits.Tokens = -1 },
		"links for 0 messages":      func(c *pack.Config) { c.Capacity = 0 },
		"there are costs of 3 stag": func(c *pack.Config) { c.Costs.Stages = slices.Repeat(c.Costs.Stages, 3) },
	} {
		cfg := good
		cfg.Costs = memoryCosts()
		change(&cfg)
		_, err := pack.New(cfg)
		require.ErrorContains(t, err, want)
	}
	p := newPacker(t, good)
	for _, sequences := range [][]int64{nil, {5, 0}, {5, 1 << 40}} {
		_, err := p.Pack(sequences)
		require.ErrorIs(t, err, pack.ErrConfig)
	}
}

// BenchmarkPack plans a step of 512 rollouts on 4 replicas of 8 ranks, with a packer that has planned it before and
// with a new packer.
func BenchmarkPack(b *testing.B) {
	cfg := pack.Config{
		Rule: schedule.OneFOneB, Params: schedule.Params{Placement: schedule.Looped(8, 8)}, Costs: model(0), Capacity: 1, Replicas: 4,
		Limits: pack.Limits{Tokens: 32768},
	}
	for _, name := range []string{"warm", "cold"} {
		b.Run(name, func(b *testing.B) {
			random := rand.New(rand.NewPCG(1, 1))
			p := newPacker(b, cfg)
			for range b.N {
				if name == "cold" {
					p = newPacker(b, cfg)
				}
				_, err := p.Pack(distributions[0].draw(random, 512))
				require.NoError(b, err)
			}
		})
	}
}

// newPacker returns a packer with a configuration that must be correct.
func newPacker(t require.TestingT, cfg pack.Config) *pack.Packer {
	p, err := pack.New(cfg)
	require.NoError(t, err)
	return p
}
