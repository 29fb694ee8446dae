package choose_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/choose"
	"github.com/weir-ml/weir/schedule/simulate"
)

// paper returns a request with the profiled times of the 1.5B model of the zero-bubble paper on eight
// ranks. Each stage saves one byte for a microbatch.
func paper(microbatches int) choose.Request {
	return choose.Request{
		Ranks: 8, Stages: 8, Microbatches: microbatches, Capacity: 1,
		Costs: &simulate.Costs{Latency: 601, Stages: []simulate.StageCosts{{F: 18522, I: 18086, W: 9337, Saved: 1}}},
	}
}

func TestEveryCandidateIsProven(t *testing.T) {
	for _, r := range []choose.Request{
		paper(24),
		{Ranks: 4, Stages: 8, Microbatches: 10, Capacity: 0, Costs: &simulate.Costs{Stages: []simulate.StageCosts{{F: 3, I: 2, W: 1, Saved: 4, FreedByI: 1, Output: 1}}}},
		{Ranks: 1, Stages: 3, Microbatches: 5, Capacity: schedule.Unlimited, Costs: &simulate.Costs{Stages: []simulate.StageCosts{{F: 1, I: 1, W: 1}}}},
		{Ranks: 3, Stages: 7, Microbatches: 2, Capacity: 1, Reordered: true, Costs: &simulate.Costs{Stages: []simulate.StageCosts{{F: 1, I: 1, W: 1}}}},
	} {
		choice, err := choose.Choose(r)
		require.NoError(t, err)
		names := map[string]bool{}
		for _, c := range choice.All {
			require.False(t, names[c.Name()], "%s is listed twice", c.Name())
			names[c.Name()] = true
			if c.Refused != nil {
				require.Nil(t, c.Plan, c.Name())
				require.ErrorIs(t, c.Refused, schedule.ErrParams, c.Name())
				continue
			}
			require.NoError(t, check.Links(c.Plan, r.Capacity), c.Name())
			report, err := simulate.Run(c.Plan, r.Costs, r.Capacity)
			require.NoError(t, err)
			require.Equal(t, report.Makespan, c.Report.Makespan, c.Name())
		}
	}
}

// If copies of weights cost time or memory, every plan makes them, and the reports include their time
// and memory.
func TestQuantizeCosts(t *testing.T) {
	free := choose.Request{Ranks: 2, Stages: 2, Microbatches: 4, Capacity: 1, Reordered: true,
		Costs: &simulate.Costs{Stages: []simulate.StageCosts{{F: 3, I: 2, W: 1, Saved: 4}, {F: 3, I: 2, W: 1, Saved: 4}}}}
	without, err := choose.Choose(free)
	require.NoError(t, err)
	dear := free
	dear.Costs = &simulate.Costs{Stages: slices.Clone(free.Costs.Stages)}
	dear.Costs.Stages[1].Quantize, dear.Costs.Stages[1].ForwardWeights = 100, 50
	with, err := choose.Choose(dear)
	require.NoError(t, err)
	require.GreaterOrEqual(t, with.Best.Report.Makespan, without.Best.Report.Makespan+97)
	copies := false
	for _, c := range with.All {
		if c.Plan == nil {
			continue
		}
		made := 0
		for _, program := range c.Plan.Programs {
			for _, s := range program {
				for _, a := range s.Body {
					if a.Kind() == schedule.Quantize {
						made++
						require.Equal(t, 1, a.Stage()%c.Plan.Placement.Depth(), c.Name())
					}
				}
			}
		}
		require.Equal(t, max(c.Plan.Placement.Copies, 1), made, c.Name())
		require.GreaterOrEqual(t, c.Peak, int64(50), c.Name())
		copies = copies || made > 1
	}
	require.True(t, copies, "no candidate has two copies of the model")
}

func TestBestAndFront(t *testing.T) {
	r := paper(24)
	for _, memory := range []int64{0, 1000, 12, 8} {
		r.Memory = memory
		choice, err := choose.Choose(r)
		require.NoError(t, err)
		require.Same(t, choice.Front[0], choice.Best)
		for _, c := range choice.All {
			if c.Report == nil {
				continue
			}
			require.Equal(t, memory == 0 || c.Peak <= memory, c.Fits, c.Name())
			dominated := false
			for _, other := range choice.All {
				if other.Report != nil && other.Fits && other != c {
					faster, smaller := other.Report.Makespan-c.Report.Makespan, other.Peak-c.Peak
					dominated = dominated || faster <= 0 && smaller <= 0 && (faster < 0 || smaller < 0)
				}
			}
			if c.Front {
				require.True(t, c.Fits && !dominated, c.Name())
			} else if c.Fits && !dominated { // as good as another candidate of the front
				require.Condition(t, func() bool {
					for _, f := range choice.All {
						if f.Report.Makespan == c.Report.Makespan && f.Peak == c.Peak {
							return true
						}
					}
					return false
				}, c.Name())
			}
		}
	}
}

func TestNothingFits(t *testing.T) {
	r := paper(24)
	r.Costs.Stages[0].Saved = 2
	r.Memory = 1
	choice, err := choose.Choose(r)
	require.ErrorIs(t, err, choose.ErrNone)
	require.ErrorContains(t, err, "the smallest, ")
	require.Nil(t, choice.Best)
	require.NotEmpty(t, choice.All)
}

func TestRequestsThatMeanNothing(t *testing.T) {
	good := paper(24)
	for _, change := range []func(*choose.Request){
		func(r *choose.Request) { r.Ranks = 0 },
		func(r *choose.Request) { r.Stages = -1 },
		func(r *choose.Request) { r.Microbatches = 0 },
		func(r *choose.Request) { r.Memory = -1 },
		func(r *choose.Request) { r.Capacity = -2 },
		func(r *choose.Request) { r.Clock = 2 },
		func(r *choose.Request) { r.Ranks, r.Stages = math.MaxInt, math.MaxInt },
		func(r *choose.Request) { r.Ranks, r.Stages = 128, 512 },
		func(r *choose.Request) { r.Microbatches = math.MaxInt },
		func(r *choose.Request) { r.Costs = nil },
		func(r *choose.Request) { r.Costs = &simulate.Costs{} },
		func(r *choose.Request) { r.Costs = &simulate.Costs{Stages: make([]simulate.StageCosts, 3)} },
	} {
		r := good
		change(&r)
		choice, err := choose.Choose(r)
		require.Nil(t, choice)
		require.True(t, errors.Is(err, schedule.ErrParams) || errors.Is(err, simulate.ErrCosts), "%v", err)
	}
}

// A depth-first order that does not repeat is refused for a large number of microbatches.
func TestOrdersThatSeldomRepeat(t *testing.T) {
	r := paper(1 << 14)
	r.Ranks, r.Stages = 16, 64
	r.Costs = &simulate.Costs{Stages: slices.Repeat([]simulate.StageCosts{{F: 1, B: 2, I: 1, W: 1}}, 64)}
	choice, err := choose.Choose(r)
	require.NoError(t, err)
	found := 0
	for _, c := range choice.All {
		if c.Schedule == "depth-first" {
			require.ErrorContains(t, c.Refused, "its order does not repeat within 1024 microbatches, so that 16384 take too long: use fewer")
			found++
		}
	}
	require.Positive(t, found)
}
