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
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/lower"
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
		choice := chosen(t, r)
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
	without := chosen(t, free)
	dear := free
	dear.Costs = &simulate.Costs{Stages: slices.Clone(free.Costs.Stages)}
	dear.Costs.Stages[1].Quantize, dear.Costs.Stages[1].ForwardWeights = 100, 50
	with := chosen(t, dear)
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
		choice := chosen(t, r)
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
		func(r *choose.Request) { r.Costs, r.Gathered = nil, -1 },
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
	choice := chosen(t, r)
	found := 0
	for _, c := range choice.All {
		if c.Schedule == "depth-first" {
			require.ErrorContains(t, c.Refused, "its order does not repeat within 1024 microbatches, so that 16384 take too long: use fewer")
			found++
		}
	}
	require.Positive(t, found)
}

// The candidates for microbatches of different lengths are simulated with these lengths, and nothing is
// searched. If the lengths are equal, the choice is the same as for costs without lengths.
func TestLengths(t *testing.T) {
	costs := &simulate.Costs{Latency: 5, Stages: []simulate.StageCosts{{
		F: 7, Saved: 1, PerToken: simulate.Rates{F: 2, I: 2, W: 1.5, Output: 4, Saved: 8}, PerSquare: simulate.Rates{F: 0.25, I: 0.5},
	}}}
	r := choose.Request{Ranks: 4, Stages: 8, Microbatches: 8, Costs: costs, Capacity: 1}
	_, err := choose.Choose(r)
	require.ErrorIs(t, err, simulate.ErrCosts)
	require.ErrorContains(t, err, "give the lengths of all 8 microbatches")
	for mb := range 8 {
		costs.Lengths = append(costs.Lengths, lengths.Of(10+mb*mb, 3))
	}
	choice := chosen(t, r)
	planned := 0
	for _, c := range choice.All {
		if c.Schedule == "searched chain" {
			require.ErrorContains(t, c.Refused, "only schedules with names are tried")
			continue
		}
		require.NotContains(t, c.Schedule, "searched")
		if c.Report != nil {
			planned++
			again, err := simulate.Run(c.Plan, costs, 1)
			require.NoError(t, err)
			require.Equal(t, again, c.Report)
		}
	}
	require.Greater(t, planned, 10)

	for mb := range costs.Lengths {
		costs.Lengths[mb] = lengths.Of(20)
	}
	choice = chosen(t, r)
	r.Costs = costs.AtSize(lengths.Of(20))
	want := chosen(t, r)
	require.Equal(t, want, choice)

	r.Costs = &simulate.Costs{Stages: []simulate.StageCosts{{PerToken: simulate.Rates{F: 2, B: 4}}}, Lengths: costs.Lengths}
	choice = chosen(t, r)
	for _, c := range choice.All {
		if c.Schedule == "zb-h1" {
			require.ErrorContains(t, c.Refused, "it runs I and W, but the costs only have times of B")
		}
	}
}

// With far memory a faster plan fits into the same near memory, unless the link to far memory is slow.
func TestFarMemoryFitsMore(t *testing.T) {
	const mib = 1 << 20
	request := func(far, farPerMiB int64) choose.Request {
		return choose.Request{Ranks: 4, Stages: 4, Microbatches: 16, Capacity: 1, Memory: 35 * mib, Far: far,
			Costs: &simulate.Costs{FarPerMiB: farPerMiB, Stages: []simulate.StageCosts{{F: 1000, I: 1000, W: 1000, Saved: 10 * mib}}}}
	}
	near := chosen(t, request(0, 100))
	far := chosen(t, request(100*mib, 100))
	require.Less(t, far.Best.Report.Makespan, near.Best.Report.Makespan)
	require.NotNil(t, far.Best.Plan.OffloadSlots)
	require.NoError(t, check.Links(far.Best.Plan, 1))
	require.LessOrEqual(t, far.Best.Peak, int64(35*mib))
	require.Positive(t, far.Best.FarPeak)
	for _, c := range far.All {
		if c.Plan != nil && c.Plan.OffloadSlots == nil {
			require.NotContains(t, c.Name(), "offload")
		}
	}

	little := chosen(t, request(10*mib, 100))
	require.LessOrEqual(t, little.Best.FarPeak, int64(10*mib))
	slow, err := choose.Choose(request(100*mib, 2000)) // a copy takes as long as seven backwards
	require.NoError(t, err)
	require.Equal(t, near.Best.Report.Makespan, slow.Best.Report.Makespan)
	require.Nil(t, slow.Best.Plan.OffloadSlots, "%s offloads over a slow link", slow.Best.Name())
	bad := request(-1, 0)
	_, err = choose.Choose(bad)
	require.ErrorIs(t, err, schedule.ErrParams)
	bad = request(1, 0)
	bad.Runtime = schedule.PyTorch
	_, err = choose.Choose(bad)
	require.ErrorIs(t, err, schedule.ErrParams)
}

// Choose tries several numbers of gathered stages, including different numbers on different ranks. More memory allows
// more of them.
func TestGathered(t *testing.T) {
	const gib = 1 << 30
	request := choose.Request{Ranks: 4, Stages: 16, Microbatches: 16, Capacity: 1, Costs: &simulate.Costs{
		Stages:   []simulate.StageCosts{{F: 11_000, I: 11_000, W: 11_000, Saved: gib / 2, Weights: gib, Gradients: 2 * gib, Optimizer: 6 * gib}},
		Replicas: 8, Shard: schedule.ShardWeights, ReplicaPerMiB: 21,
	}}
	choice := chosen(t, request)
	find := func(name string) *choose.Candidate {
		i := slices.IndexFunc(choice.All, func(c *choose.Candidate) bool { return c.Name() == name })
		require.GreaterOrEqual(t, i, 0, name)
		return choice.All[i]
	}
	gathered1, gathered2, gathered3 := find("breadth-first gathered 1"), find("interleaved group 4"), find("interleaved group 4 gathered 3")
	require.Equal(t, []int{1, 2, 3}, []int{gathered1.Gathered, gathered2.Gathered, gathered3.Gathered})
	require.Greater(t, gathered2.Report.Step, gathered3.Report.Step)
	require.Less(t, gathered2.Peak, gathered3.Peak)
	require.Greater(t, choice.Best.Report.Step, choice.Best.Report.Makespan, "a step includes the exchanges of replicas")

	by := find("interleaved group 4 gathered 2-4") // the first rank has the most microbatches in flight
	require.Equal(t, 2, by.GatheredBy[0])
	require.Equal(t, 4, by.GatheredBy[3])
	require.Equal(t, gathered2.Peak, by.Peak)
	require.Less(t, by.Report.Step, gathered2.Report.Step)

	request.Memory = choice.Best.Peak * 4 / 5
	least := chosen(t, request)
	require.LessOrEqual(t, least.Best.Peak, request.Memory)
	require.Greater(t, least.Best.Report.Step, choice.Best.Report.Step)

	request.Gathered, request.Far = 1, 64*gib
	fixed := chosen(t, request)
	require.True(t, slices.ContainsFunc(fixed.All, (*choose.Candidate).Offloads))
	require.False(t, slices.ContainsFunc(fixed.All, func(c *choose.Candidate) bool { return c.Report != nil && c.Gathered != 1 }))
	request.Costs.Shard = schedule.ShardGradients
	_, err := choose.Choose(request)
	require.ErrorContains(t, err, "1 gathered stages at shard level 2: give 1 or more at level 3, or 0")
}

// chosen returns the choice of a request that must succeed.
func chosen(t require.TestingT, r choose.Request) *choose.Choice {
	choice, err := choose.Choose(r)
	require.NoError(t, err)
	return choice
}

// The receives of a plan for PyTorch are posted early enough: the plan takes at most 1 % longer than
// its computations with transfers that need no posting. It also does not deadlock if ranks wait at a
// rendezvous.
func TestPyTorchPostsInTime(t *testing.T) {
	costs := &simulate.Costs{Latency: 7, PerMiB: 300, Stages: []simulate.StageCosts{{F: 10, I: 12, W: 7, Saved: 1, Output: 10240, Gradient: 20480}}}
	choice := chosen(t, choose.Request{Ranks: 4, Stages: 8, Microbatches: 12, Costs: costs, Capacity: 1, Runtime: schedule.PyTorch})
	proven := 0
	for _, c := range choice.All {
		if c.Report == nil {
			continue
		}
		proven++
		require.Equal(t, schedule.PyTorch, c.Plan.Runtime)
		require.NoError(t, check.Links(c.Plan, 0), c.Name())
		ideal, err := simulate.Run(lower.Computations(c.Plan), costs, 0)
		require.NoError(t, err)
		require.LessOrEqual(t, c.Report.Makespan, ideal.Makespan+ideal.Makespan/100, c.Name())
		again, err := simulate.Run(c.Plan, costs, 5)
		require.NoError(t, err)
		require.Equal(t, c.Report, again, "the report depends on the capacity")
	}
	require.Greater(t, proven, 10)
}

// TestPyTorchWaitsInTime requires that a rank waits for its sends soon after their messages were read: the
// number of sends that are not waited for does not depend on the number of microbatches.
func TestPyTorchWaitsInTime(t *testing.T) {
	costs := &simulate.Costs{Latency: 7, Stages: []simulate.StageCosts{{F: 10, I: 12, W: 7, Saved: 1, Output: 1, Gradient: 1}}}
	pending := map[int]map[string]int{}
	for _, microbatches := range []int{16, 32} {
		choice := chosen(t, choose.Request{Ranks: 4, Stages: 4, Microbatches: microbatches, Costs: costs, Capacity: 1, Runtime: schedule.PyTorch})
		pending[microbatches] = map[string]int{}
		for _, c := range choice.All {
			if name := c.Name(); c.Report != nil && (name == "1f1b" || name == "zb-h1") {
				pending[microbatches][name] = maxPending(c.Plan)
			}
		}
	}
	require.Len(t, pending[16], 2)
	require.Equal(t, pending[16], pending[32])
}

// maxPending returns the largest number of sends on a rank whose waits are still to come.
func maxPending(plan *schedule.Plan) (most int) {
	for rank := range plan.Programs {
		pending := 0
		for a := range plan.All(rank) {
			switch a.Kind() {
			case schedule.SendF, schedule.SendB:
				pending++
			case schedule.WaitF, schedule.WaitB:
				pending--
			}
			most = max(most, pending)
		}
	}
	return most
}
