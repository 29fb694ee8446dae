package fit_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/schedule/simulate"
)

// TestCutIsBest compares the cut of dynamic programming with every other cut.
func TestCutIsBest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		layers, stages := 1+random.IntN(8), 1+random.IntN(4)
		if layers+2 < stages {
			continue
		}
		parts := make([]simulate.StageCosts, layers+2)
		for i := range parts {
			parts[i].F = random.Int64N(10)
		}
		longest := func(cut []int) (most int64) {
			next := 1
			for stage, n := range cut {
				var sum int64
				for _, p := range parts[next : next+n] {
					sum += p.F
				}
				if next += n; stage == 0 {
					sum += parts[0].F
				}
				if stage == len(cut)-1 {
					sum += parts[layers+1].F
				}
				most = max(most, sum)
			}
			return most
		}
		least := int64(1 << 40)
		var try func(cut []int, left int)
		try = func(cut []int, left int) {
			if ends := len(cut) == 0 || len(cut) == stages-1; len(cut) == stages-1 {
				least = min(least, longest(append(slices.Clone(cut), left)))
				return
			} else {
				for n := range left + 1 {
					if n > 0 || ends {
						try(append(slices.Clone(cut), n), left-n)
					}
				}
			}
		}
		try(nil, layers)
		cut := fit.CutLayers(parts, layers, stages)
		sum := 0
		for stage, n := range cut {
			require.True(t, n > 0 || stage == 0 || stage == stages-1, "%v", cut)
			sum += n
		}
		require.Equal(t, layers, sum)
		require.Equal(t, least, longest(cut), "%v of %v", cut, parts)
	}
}

// TestBest checks that every option of the front fits and that none beats another; that the cut is uneven,
// because the head costs as much as three layers; and that a search without time left makes one trial.
func TestBest(t *testing.T) {
	c := readConfig(t, strings.NewReader(configs["Llama-3-8B"]), nil)
	search := fit.Search{
		Model: &c.Model, Setup: fit.Setup{Sequence: 4096, Allowance: 1 << 30}, Ranks: 4, Sequences: 8, Memory: 64 << 30, Speed: 4e14, Bandwidth: 5e10, Capacity: 1,
	}
	front, tried, all := best(t, search)
	require.Equal(t, []int{27, 27}, []int{tried, all})
	require.NotEmpty(t, front)
	for i, o := range front {
		require.LessOrEqual(t, o.Peak, search.Memory)
		require.True(t, i == 0 || o.Seconds >= front[i-1].Seconds && o.Peak < front[i-1].Peak)
		require.Less(t, o.Cut[len(o.Cut)-1], slices.Max(o.Cut), "%v", o.Cut)
	}
	far := search
	far.Deadline = time.Unix(0, 0) // only the first trial
	near, _, _ := best(t, far)
	far.FarRate = 5e10
	offloaded, _, _ := best(t, far)
	require.True(t, slices.ContainsFunc(offloaded, func(o fit.Option) bool {
		return slices.ContainsFunc(near, func(n fit.Option) bool { return o.Seconds <= n.Seconds && o.Peak < n.Peak })
	}), "an offload saves memory and costs no time")
	require.LessOrEqual(t, offloaded[0].Seconds, near[0].Seconds)
	for i, o := range offloaded {
		require.LessOrEqual(t, o.Peak, search.Memory)
		require.True(t, i == 0 || o.Seconds >= offloaded[i-1].Seconds && o.Peak < offloaded[i-1].Peak)
		require.Equal(t, []bool{o.Offload > 0, o.Offload > 0}, []bool{o.Far > 0, o.Plan.OffloadSlots != nil}, "%+v", o)
	}
	far.FarRate = 1e6
	slow, _, _ := best(t, far)
	require.Zero(t, slow[0].Offload)
	for _, o := range slow[1:] {
		require.True(t, o.Offload == 0 || o.Seconds > 10*slow[0].Seconds, "%+v", o)
	}
	tight := search
	tight.Memory = front[0].Peak - 1
	less, _, _ := best(t, tight)
	require.GreaterOrEqual(t, less[0].Seconds, front[0].Seconds)
	tight.Memory = 30 << 30
	none, _, _ := best(t, tight)
	require.Empty(t, none, "weights, gradients and optimizer alone take more")

	search.Deadline = time.Unix(0, 0)
	_, tried, _ = best(t, search)
	require.Equal(t, 1, tried)

	search.Only = []string{"1f1b", "interleaved"}
	only, _, _ := best(t, search)
	for _, o := range only {
		name, _, _ := strings.Cut(o.Name, " ")
		require.Contains(t, search.Only, name)
	}
}

// TestBestKeepsTheFront checks that a search without a limit finds the options of a search with a limit, or
// better ones.
func TestBestKeepsTheFront(t *testing.T) {
	c := readConfig(t, strings.NewReader(configs["Llama-3-8B"]), nil)
	search := fit.Search{Model: &c.Model, Setup: fit.Setup{Sequence: 4096, Allowance: 1 << 30}, Ranks: 2, Sequences: 8, Speed: 4e14, Bandwidth: 5e10, Capacity: 1}
	wide, _, _ := best(t, search)
	search.Memory = 81 << 30
	tight, _, _ := best(t, search)
	require.NotEmpty(t, tight)
	for _, o := range tight {
		require.True(t, slices.ContainsFunc(wide, func(w fit.Option) bool { return w.Seconds <= o.Seconds && w.Peak <= o.Peak }), "%s", o.Name)
	}
}

// TestBestFixed checks that the search keeps to a given recompute and microbatch size.
func TestBestFixed(t *testing.T) {
	c := readConfig(t, strings.NewReader(configs["Llama-3-8B"]), nil)
	full := fit.Recompute{All: true}
	front, tried, all := best(t, fit.Search{
		Model: &c.Model, Setup: fit.Setup{Sequence: 4096, Microbatch: 3, Recompute: full}, Ranks: 2, Sequences: 6, Speed: 4e14, Bandwidth: 5e10, Capacity: 1,
		FixedMicrobatch: true, FixedRecompute: true,
	})
	require.Equal(t, []int{3, 3}, []int{tried, all}, "one, two and four stages for each rank")
	for _, o := range front {
		require.Equal(t, []any{3, full}, []any{o.Microbatch, o.Recompute})
	}
}

func TestMegatronLayout(t *testing.T) {
	require.Equal(t, "Et*4|t*3|t|t*2L", fit.MegatronLayout([]int{4, 3, 1, 2}, 0, 0))
	require.Equal(t, "E|t*3|mL", fit.MegatronLayout([]int{0, 3, 0}, 1, 0))
	require.Equal(t, "EtL", fit.MegatronLayout([]int{1}, 0, 0))
}

// best returns the options of a search that must succeed.
func best(t *testing.T, s fit.Search) (front []fit.Option, tried, all int) {
	t.Helper()
	front, tried, all, err := fit.Best(t.Context(), s)
	require.NoError(t, err)
	return front, tried, all
}
