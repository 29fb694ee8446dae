package check_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// drawChaos draws a plan whose parts are mostly inconsistent.
func drawChaos(t *rapid.T) *schedule.Plan {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	some := func(n int) bool { return rng.IntN(n) == 0 }
	ranks, stages := 1+rng.IntN(3), 1+rng.IntN(5)
	p := &schedule.Plan{Name: "chaos", Microbatches: 1 + rng.IntN(6), Placement: schedule.Placement{Ranks: ranks}, Mode: schedule.Mode(rng.IntN(2))}
	for range stages {
		p.Placement.Rank = append(p.Placement.Rank, rng.IntN(ranks))
	}
	if some(3) {
		p.Placement.Copies = rng.IntN(4) - 1
	}
	if some(3) {
		p.Slices = rng.IntN(4)
	}
	flags := func() []bool {
		list := make([]bool, max(0, stages+rng.IntN(9)/8-rng.IntN(9)/8))
		for i := range list {
			list[i] = some(3)
		}
		return list
	}
	numbers := func(n int) []int {
		list := make([]int, max(0, n+rng.IntN(9)/8-rng.IntN(9)/8))
		for i := range list {
			list[i] = rng.IntN(7)
		}
		return list
	}
	if some(4) {
		p.Frozen = flags()
	}
	if some(4) {
		p.StageWindows, p.SendWindows, p.EntryWindows = numbers(stages), numbers(stages), numbers(ranks)
	}
	if some(4) {
		p.StageInfo, p.Parts = make([]schedule.StageInfo, stages), make([][schedule.NumKinds]uint64, stages)
		for s := range stages {
			p.StageInfo[s].Frozen, p.StageInfo[s].Split = s < len(p.Frozen) && p.Frozen[s], some(2)
			for k := range schedule.NumKinds {
				p.StageInfo[s].Reads[k], p.Parts[s][k] = rng.Uint64N(4)<<(62*rng.IntN(2)), rng.Uint64N(4)
			}
		}
	}
	last := 4
	if some(2) {
		last = 32
	}
	for range ranks + rng.IntN(9)/8 {
		var program []schedule.Segment
		for range rng.IntN(4) {
			s := schedule.Segment{Repeat: rng.IntN(12) + 1 - rng.IntN(20)/19, Stride: rng.IntN(5) - 2}
			for range 1 + rng.IntN(6) - rng.IntN(20)/19 {
				a := schedule.NewAction(schedule.Kind(1+rng.IntN(last)), rng.IntN(stages+1), rng.IntN(p.Microbatches+1))
				if some(6) {
					a = a.WithDrop(schedule.Drop(rng.IntN(1 << 8)))
				}
				s.Body = append(s.Body, a.WithJoin(some(10)))
			}
			program = append(program, s)
		}
		p.Programs = append(p.Programs, program)
	}
	return p
}

// TestCheckOfAnything checks plans whose parts are mostly inconsistent. The check returns, describes every
// fault in sentences, and finds the same faults in lists as in segments.
func TestCheckOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawChaos(t)
		before := len(p.Programs)
		capacity := rapid.IntRange(-2, 2).Draw(t, "capacity")
		err := check.Links(p, capacity)
		_, least := leastCapacity(p)
		if err == nil {
			require.NoError(t, least)
			return
		}
		invalid, ok := errors.AsType[*check.Error](err)
		require.True(t, ok)
		for _, f := range invalid.Faults {
			require.NotEmpty(t, f.Text)
			require.Regexp(t, `^[A-Z].*[^.]\.$`, f.Text)
		}
		if codes := plantest.CodesOf(err); slices.Contains(codes, check.Malformed) || before != p.Placement.Ranks {
			return
		}
		compareWithList(t, p, capacity)
	})
}
