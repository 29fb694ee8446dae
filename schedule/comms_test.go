package schedule_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/schedule"
)

// capacities are those for which plans are lowered here.
var capacities = []int{schedule.Unlimited, 0, 1, 2}

// lower lowers a plan and demands of the result what every capacity promises.
func lower(t require.TestingT, p *schedule.Plan, capacity int) *schedule.Plan {
	before := text(t, p)
	lowered, err := schedule.Comms(p, capacity)
	require.NoError(t, err, "%s", p.Name)
	require.Equal(t, before, text(t, p), "the plan was changed")
	require.NoError(t, schedule.CheckLinks(lowered, capacity))
	for _, c := range capacities {
		if c >= capacity && capacity >= 0 || c == schedule.Unlimited {
			_, err := carry(lowered, c, ticks)
			require.NoError(t, err, "%s for capacity %d at %d", p.Name, capacity, c)
		}
	}
	for rank := range p.Programs {
		var computed []schedule.Action
		ends := map[message]int{} // what was sent: 1, and waited for: 2
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

// requireTight fails where a send does not stand right behind what makes its message, or
// something else than waits and receives between a receive and what is computed next.
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

// everySchedule calls do with plans of every schedule, in which all ranks have as much
// work.
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

// By a clock for which F, I and W take equally long, transfers cost nothing, unless
// links are rendezvous: then what is computed in another rank's time must wait for it.
func TestCommsOfSchedules(t *testing.T) {
	microbatches := func(ranks int) []int { return []int{1, 2, ranks - 1, ranks, 2*ranks + 1, 24} }
	everySchedule(t, []int{1, 2, 3, 4, 8}, []int{1, 2, 3}, microbatches, func(t *testing.T, p *schedule.Plan) {
		want, _ := clocks(t, p, ticks)
		for _, capacity := range capacities {
			lowered := lower(t, p, capacity)
			got, err := carry(lowered, capacity, ticks)
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
		lowered := lower(t, p, capacity)
		if capacity == schedule.Unlimited && even(p) {
			want, _ := clocks(t, p, ticks)
			got, err := carry(lowered, schedule.Unlimited, ticks)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})
}

// even reports whether all ranks have as much work for a microbatch.
func even(p *schedule.Plan) bool {
	work := make([]int, len(p.Programs))
	for rank := range work {
		for _, s := range p.Placement.On(rank) {
			work[rank]++
			if p.HasBackward(s) {
				work[rank] += 2
			}
			if p.HasBackward(s) && p.Frozen != nil && p.Frozen[s] {
				work[rank]--
			}
		}
	}
	return slices.Min(work) == slices.Max(work)
}

// A plan of segments comes out as what the same plan written out comes out as.
func TestCommsOfSegments(t *testing.T) {
	microbatches := func(int) []int { return []int{23, 90} }
	everySchedule(t, []int{2, 3, 8}, []int{1, 2}, microbatches, func(t *testing.T, p *schedule.Plan) {
		for _, capacity := range capacities {
			lowered, err := schedule.Comms(p, capacity)
			require.NoError(t, err)
			flat, err := schedule.Comms(expand(p), capacity)
			require.NoError(t, err)
			require.Equal(t, lists(flat), lists(lowered), "%s, capacity %d", p.Name, capacity)
		}
	})
}
