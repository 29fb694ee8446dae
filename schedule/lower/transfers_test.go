package lower_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/waitgraph"
)

// capacities are the link capacities of these tests.
var capacities = []int{schedule.Unlimited, 0, 1, 2}

// lowered lowers a plan and checks the properties that hold for every capacity.
func lowered(t require.TestingT, p *schedule.Plan, capacity int) *schedule.Plan {
	before := plantest.Text(t, p)
	lowered := transferred(t, p, capacity)
	require.Equal(t, before, plantest.Text(t, p), "the plan was changed")
	require.NoError(t, check.Links(lowered, capacity))
	for _, c := range capacities {
		if c >= capacity && capacity >= 0 || c == schedule.Unlimited {
			_, err := carry(lowered, c, plantest.Ticks)
			require.NoError(t, err, "%s for capacity %d at %d", p.Name, capacity, c)
		}
	}
	for rank := range p.Programs {
		var computed []schedule.Action
		ends := map[message]int{} // 1 after the send of a message, 2 after the wait
		for a := range lowered.All(rank) {
			switch a.Kind() {
			case schedule.SendF, schedule.SendB:
				ends[messageOf(p, a)]++
			case schedule.WaitF, schedule.WaitB:
				require.Equal(t, 1, ends[messageOf(p, a)], "%v", a)
				ends[messageOf(p, a)]++
			case schedule.RecvF, schedule.RecvB:
			default:
				computed = append(computed, a)
			}
		}
		require.Equal(t, slices.Collect(p.All(rank)), computed)
		for m, n := range ends {
			require.Equal(t, 2, n, "%v is sent, and nothing waits for it", m)
		}
	}
	if capacity == schedule.Unlimited {
		requireTight(t, lowered)
	}
	return lowered
}

// requireTight fails if a send does not immediately follow the computation that produces its
// message, or if anything but waits and receives comes between a receive and the next computation.
func requireTight(t require.TestingT, p *schedule.Plan) {
	for rank := range p.Programs {
		received, computed := false, []schedule.Action{}
		for a := range p.All(rank) {
			switch kind := a.Kind(); {
			case kind == schedule.RecvF || kind == schedule.RecvB:
				received = true
			case kind == schedule.SendF || kind == schedule.SendB:
				require.False(t, received, "%v stands between a receive and a computation", a)
				made := slices.ContainsFunc(computed, func(c schedule.Action) bool {
					return c.Stage() == a.Stage() && c.Microbatch() == a.Microbatch() && (kind == schedule.SendF) == (c.Kind() == schedule.F)
				})
				require.True(t, made, "%v stands behind %v", a, computed)
			case kind.Compute():
				if n := len(computed); n == 0 || !computed[n-1].Joined() {
					computed = computed[:0]
				}
				computed = append(computed, a)
				received = false
			}
		}
	}
}

// everySchedule calls do with plans of every schedule in which all ranks have equal work.
func everySchedule(t *testing.T, ranks, depths []int, microbatches func(ranks int) []int, do func(t *testing.T, p *schedule.Plan)) {
	for _, s := range schedule.Schedules() {
		t.Run(s.Name, func(t *testing.T) {
			made := 0
			for _, n := range ranks {
				for _, depth := range depths {
					placement, err := s.Place(n, n*depth)
					if err != nil {
						continue
					}
					for _, m := range microbatches(n) {
						params := schedule.Params{Placement: placement, Microbatches: m}
						if s.Name == "seq1f1b" {
							params.Slices = 3
						}
						p, err := s.Rule(params)
						if err != nil {
							require.ErrorIs(t, err, schedule.ErrParams)
							continue
						}
						p.Name = fmt.Sprintf("%s P=%d V=%d M=%d", s.Name, n, depth, m)
						do(t, p)
						made++
					}
				}
			}
			require.NotZero(t, made)
		})
	}
}

func TestComms(t *testing.T) {
	for _, test := range []struct {
		name          string
		placement     []int
		microbatches  int
		capacity      int
		compute, want []string
	}{
		{"1F1B", []int{0, 1}, 3, schedule.Unlimited,
			[]string{"0F0 0F1 0B0 0F2 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"},
			[]string{
				"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0WAIT_F0 0F2 0SEND_F2 0WAIT_F1 0RECV_B1 0B1 0RECV_B2 0B2 0WAIT_F2",
				"1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1RECV_F2 1F2 1WAIT_B0 1B2 1SEND_B2 1WAIT_B1 1WAIT_B2"}},
		{"1F1B at rendezvous: rank 1 receives 0SEND_F1 as it is sent", []int{0, 1}, 3, 0,
			[]string{"0F0 0F1 0B0 0F2 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"},
			[]string{
				"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0WAIT_F0 0WAIT_F1 0F2 0RECV_B1 0SEND_F2 0B1 0RECV_B2 0B2 0WAIT_F2",
				"1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1 1RECV_F2 1F2 1WAIT_B0 1B2 1SEND_B2 1WAIT_B1 1WAIT_B2"}},
		{"joined pairs", []int{0, 1}, 2, schedule.Unlimited,
			[]string{"0F0 0F1 0I0 (0W0;0I1) 0W1", "1F0 (1F1;1I0) 1W0 1I1 1W1"},
			[]string{
				"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0I0 0WAIT_F0 0WAIT_F1 0RECV_B1 (0W0;0I1) 0W1",
				"1RECV_F0 1F0 1RECV_F1 (1F1;1I0) 1SEND_B0 1W0 1I1 1SEND_B1 1WAIT_B0 1W1 1WAIT_B1"}},
		{"a full link: rank 1 receives 1SEND_F1 before 2B0, so that 1SEND_F2 finds room", []int{0, 0, 1, 1}, 3, 1,
			[]string{"0F0 1F0 0F1 1F1 0F2 1F2 1B0 0B0 1B1 0B1 1B2 0B2", "2F0 3F0 3B0 2B0 2F1 3F1 3B1 2B1 2F2 3F2 3B2 2B2"},
			[]string{
				"0F0 1F0 1SEND_F0 0F1 1F1 1SEND_F1 1WAIT_F0 0F2 1F2 1SEND_F2 1RECV_B0 1B0 1WAIT_F1 0B0 1RECV_B1 1B1 0B1 1WAIT_F2 1RECV_B2 1B2 0B2",
				"2RECV_F0 2F0 3F0 3B0 2RECV_F1 2B0 2SEND_B0 2F1 3F1 3B1 2WAIT_B0 2B1 2SEND_B1 2RECV_F2 2F2 3F2 3B2 2WAIT_B1 2B2 2SEND_B2 2WAIT_B2"}},
		{"a full link again: rank 1 receives two more before its current pair", []int{0, 1}, 7, 2,
			[]string{"0F0 0F1 0F2 0F3 0F4 0F5 0F6 0B0 0B1 0B2 0B3 0B4 0B5 0B6", "1F0 1F1 1B0 (1F2;1B1) 1F3 1B2 1F4 1B3 1F5 1B4 1F6 1B5 1B6"},
			[]string{
				"0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0WAIT_F0 0F3 0SEND_F3 0WAIT_F1 0F4 0SEND_F4 0F5 0SEND_F5 0F6 0SEND_F6 " +
					"0RECV_B0 0B0 0RECV_B1 0B1 0WAIT_F2 0WAIT_F3 0WAIT_F4 0RECV_B2 0B2 0RECV_B3 0B3 0RECV_B4 0B4 0WAIT_F5 0RECV_B5 0B5 0WAIT_F6 0RECV_B6 0B6",
				"1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1RECV_F2 1RECV_F3 1RECV_F4 (1F2;1B1) 1SEND_B1 1F3 1B2 1SEND_B2 1WAIT_B0 1F4 1WAIT_B1 1B3 1SEND_B3 " +
					"1RECV_F5 1F5 1WAIT_B2 1B4 1SEND_B4 1RECV_F6 1F6 1WAIT_B3 1B5 1SEND_B5 1B6 1SEND_B6 1WAIT_B4 1WAIT_B5 1WAIT_B6"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := planOf(t, test.placement, test.microbatches, test.compute...)
			require.Equal(t, plantest.Lists(planOf(t, test.placement, test.microbatches, test.want...)), plantest.Lists(lowered(t, p, test.capacity)))
		})
	}
}

// Transfers returns the error of check.Plan for a plan whose only fault is a deadlock or a drop.
func TestCommsTellsWhatCheckFinds(t *testing.T) {
	circle := plantest.FromText(t, "0 1", 2, "0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1")
	require.ErrorIs(t, check.Plan(circle), waitgraph.ErrDeadlock)
	_, err := lower.Transfers(circle, schedule.Unlimited)
	require.Equal(t, check.Plan(circle), err)

	undropped := plantest.Build(t, schedule.DepthFirst, 2, 1, 1)
	body := undropped.Programs[0][0].Body
	body[0] = body[0].WithDrop(0)
	_, err = lower.Transfers(undropped, schedule.Unlimited)
	require.ErrorIs(t, err, check.ErrInvalidPlan)
	require.Equal(t, check.Plan(undropped), err)
}

func TestCommsRefuses(t *testing.T) {
	p := planOf(t, []int{0, 1}, 1, "0F0 0B0", "1F0 1B0")
	lowered := lowered(t, p, 1)
	_, err := lower.Transfers(lowered, 1)
	require.ErrorIs(t, err, schedule.ErrParams)
	require.ErrorContains(t, err, "already has transfers")
	_, err = lower.Transfers(p, -2)
	require.ErrorIs(t, err, schedule.ErrParams)

	p = planOf(t, []int{0, 1}, 1, "0B0 0F0", "1F0 1B0")
	_, err = lower.Transfers(p, schedule.Unlimited)
	require.ErrorIs(t, err, waitgraph.ErrDeadlock)
}

// If F, I and W take equally long, transfers do not extend the makespan, except with rendezvous,
// where a rank may have to wait for a computation of another rank.
func TestCommsOfSchedules(t *testing.T) {
	testkit.Slow(t)
	microbatches := func(ranks int) []int { return []int{1, ranks - 1, ranks, 2*ranks + 1} }
	everySchedule(t, []int{1, 2, 3, 8}, []int{1, 2, 3}, microbatches, func(t *testing.T, p *schedule.Plan) {
		want, _ := plantest.Clocks(t, p, plantest.Ticks)
		for _, capacity := range capacities {
			lowered := lowered(t, p, capacity)
			got, err := carry(lowered, capacity, plantest.Ticks)
			require.NoError(t, err)
			if capacity != 0 {
				require.Equal(t, want, got, "%s, capacity %d", p.Name, capacity)
				continue
			}
			require.LessOrEqual(t, float64(got), 1.09*float64(want), p.Name)
		}
	})
}

func TestCommsOfDisorder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawDisorder(t)
		capacity := rapid.SampledFrom(capacities).Draw(t, "capacity")
		lowered := lowered(t, p, capacity)
		if capacity == schedule.Unlimited && even(p) {
			want, _ := plantest.Clocks(t, p, plantest.Ticks)
			got, err := carry(lowered, schedule.Unlimited, plantest.Ticks)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})
}

// even reports whether the clock slows down no rank: either every rank has a backward, or none has
// and all have the same number of stages.
func even(p *schedule.Plan) bool {
	stages, backward := make([]int, len(p.Programs)), make([]bool, len(p.Programs))
	for s, rank := range p.Placement.Rank {
		stages[rank]++
		backward[rank] = backward[rank] || p.HasBackward(s)
	}
	return !slices.Contains(backward, false) || !slices.Contains(backward, true) && slices.Min(stages) == slices.Max(stages)
}

// Lowering a plan in segments and lowering the same plan written out give equal results.
func TestCommsOfSegments(t *testing.T) {
	microbatches := func(int) []int { return []int{23, 90} }
	everySchedule(t, []int{2, 3, 8}, []int{1, 2}, microbatches, func(t *testing.T, p *schedule.Plan) {
		for _, capacity := range capacities {
			lowered := transferred(t, p, capacity)
			flat := transferred(t, plantest.Expand(p), capacity)
			require.Equal(t, plantest.Lists(flat), plantest.Lists(lowered), "%s, capacity %d", p.Name, capacity)
		}
	})
}

// variants returns plans of a schedule: training of all stages, training of some stages, and
// evaluation.
func variants(t require.TestingT, s schedule.Schedule, ranks, depth, microbatches int) (plans []*schedule.Plan) {
	placement, err := s.Place(ranks, ranks*depth)
	if err != nil {
		require.ErrorIs(t, err, schedule.ErrParams)
		return nil
	}
	frozen := func(first, n int) []bool {
		of := make([]bool, placement.Depth())
		for i := range of {
			of[i] = i >= first && i < first+n
		}
		return slices.Repeat(of, max(placement.Copies, 1))
	}
	for _, params := range []schedule.Params{
		{}, {Mode: schedule.ForwardOnly}, {Frozen: frozen(0, 1)}, {Frozen: frozen(0, ranks*depth/2)}, {Frozen: frozen(1, ranks*depth/2)},
	} {
		params.Placement, params.Microbatches = placement, microbatches
		p, err := s.Rule(params)
		if err != nil {
			require.ErrorIs(t, err, schedule.ErrParams)
			continue
		}
		p.Name = fmt.Sprintf("%s P=%d V=%d M=%d %v frozen %v", s.Name, ranks, depth, microbatches, p.Mode, p.Frozen)
		plans = append(plans, p)
	}
	return plans
}

func TestCommsOfVariants(t *testing.T) {
	testkit.Slow(t)
	for _, s := range schedule.Schedules() {
		t.Run(s.Name, func(t *testing.T) {
			for _, depth := range []int{1, 2} {
				for _, p := range variants(t, s, 4, depth, 40) {
					for _, capacity := range capacities {
						lowered := lowered(t, p, capacity)
						flat := transferred(t, plantest.Expand(p), capacity)
						require.Equal(t, plantest.Lists(flat), plantest.Lists(lowered), "%s, capacity %d", p.Name, capacity)
					}
				}
			}
		})
	}
}

// The size of a lowered plan does not grow with the number of microbatches: it consists of a period
// and the actions before and after the steady state. If ranks with unequal backwards run all microbatches of a stage in
// a row, they drift apart.
func TestCommsSize(t *testing.T) {
	size := func(p *schedule.Plan, capacity int) (actions int) {
		lowered := transferred(t, p, capacity)
		for _, program := range lowered.Programs {
			for _, segment := range program {
				actions += len(segment.Body)
			}
		}
		return actions
	}
	for _, s := range schedule.Schedules() {
		t.Run(s.Name, func(t *testing.T) {
			for _, depth := range []int{1, 2} {
				few, many := variants(t, s, 4, depth, 2_400), variants(t, s, 4, depth, 960_000)
				require.Len(t, many, len(few))
				for i, p := range few {
					for _, capacity := range []int{schedule.Unlimited, 0} {
						if p.Frozen != nil && !p.Frozen[0] && (s.Name == "gpipe" || s.Name == "breadth-first") {
							continue
						}
						require.LessOrEqual(t, size(many[i], capacity), 2*size(p, capacity), "%s, capacity %d", p.Name, capacity)
					}
				}
			}
		})
	}
}

// transferred returns a plan with transfers.
func transferred(t require.TestingT, plan *schedule.Plan, capacity int) *schedule.Plan {
	plan, err := lower.Transfers(plan, capacity)
	require.NoError(t, err)
	return plan
}
