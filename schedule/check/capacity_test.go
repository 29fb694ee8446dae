package check_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

func TestCheckLinks(t *testing.T) {
	p := plantest.FromText(t, "0 1", 2, firstSends, secondSends)
	require.NoError(t, check.Links(p, schedule.Unlimited))
	require.NoError(t, check.Links(p, 1))
	err := check.Links(p, 0)
	plantest.RequireCodes(t, err, check.Deadlock)
	require.ErrorContains(t, err, "Ranks 0 and 1 wait for each other: rank 0 is at action 3, 0SEND_F1, and waits for 1RECV_F1 of rank 1;"+
		" rank 1 is at action 3, 1SEND_B0, and waits for 0RECV_B0 of rank 0;"+
		" put 0RECV_B0, with the actions that it needs, before 0SEND_F1 on rank 0, or increase the link capacity.")
	least, err := leastCapacity(p)
	require.NoError(t, err)
	require.EqualValues(t, 1, least)

	// A receive without a send waits for nothing; the error reports only the missing send.
	err = check.Links(plantest.FromText(t, "0 1", 2, strings.Replace(firstSends, " 0SEND_F1", "", 1), secondSends), 0)
	plantest.RequireCodes(t, err, check.Missing)
	oneByOne := "0F0 0SEND_F0 0RECV_B0 0B0 0F1 0SEND_F1 0RECV_B1 0B1"
	require.NoError(t, check.Links(plantest.FromText(t, "0 1", 2, oneByOne, secondSends), 0))
	err = check.Links(plantest.FromText(t, "0 1", 2, oneByOne, strings.Replace(secondSends, " 1SEND_B1", "", 1)), 0)
	plantest.RequireCodes(t, err, check.Missing)

	// A send on a full link waits for the receive that frees a slot.
	p = plantest.FromText(t, "0 1", 3, "0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0RECV_B0 0B0 0RECV_B1 0B1 0RECV_B2 0B2",
		"1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1RECV_F2 1F2 1B2 1SEND_B2")
	require.ErrorContains(t, check.Links(p, 0), "rank 0 is at action 3, 0SEND_F1, and waits for 1RECV_F1 of rank 1;")
	p = plantest.FromText(t, "0 1 0", 5, "0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0F3 0SEND_F3 0F4 0SEND_F4 2RECV_F0 2F0 2RECV_F1 2F1 2RECV_F2 2F2 2RECV_F3 2F3 2RECV_F4 2F4",
		"1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1 1RECV_F2 1F2 1SEND_F2 1RECV_F3 1F3 1SEND_F3 1RECV_F4 1F4 1SEND_F4")
	p.Mode = schedule.ForwardOnly
	require.ErrorContains(t, check.Links(p, 1), "rank 0 is at action 7, 0SEND_F3, and waits for 1RECV_F2 of rank 1;"+
		" rank 1 is at action 5, 1SEND_F1, and waits for 2RECV_F0 of rank 0;")
	least, err = leastCapacity(p)
	require.NoError(t, err)
	require.EqualValues(t, 2, least)

	// The two directions between a pair of ranks have separate links; on a shared link, forward
	// messages would come before backward messages.
	p = plantest.FromText(t, "0 1 0", 1, "0F0 0SEND_F0 2RECV_F0 2F0 2B0 2SEND_B0 0RECV_B0 0B0", "1RECV_F0 1F0 1SEND_F0 1RECV_B0 1B0 1SEND_B0")
	require.NoError(t, check.Links(p, 0))
	p = plantest.FromText(t, "0 1 0", 2, "0F0 0SEND_F0 2RECV_F0 2F0 2B0 0F1 0SEND_F1 2SEND_B0 2RECV_F1 2F1 2B1 2SEND_B1 0RECV_B0 0B0 0RECV_B1 0B1",
		"1RECV_F0 1F0 1SEND_F0 1RECV_B0 1B0 1SEND_B0 1RECV_F1 1F1 1SEND_F1 1RECV_B1 1B1 1SEND_B1")
	require.NoError(t, check.Links(p, 1))

	// A wait ends when its message is received.
	waitsFirst := "0F0 0SEND_F0 0WAIT_F0 0F1 0SEND_F1 0WAIT_F1 0RECV_B0 0B0 0RECV_B1 0B1"
	require.NoError(t, check.Plan(plantest.FromText(t, "0 1", 2, waitsFirst, secondSends)))
	p = plantest.FromText(t, "0 1", 2, waitsFirst, strings.Replace(secondSends, "1SEND_B0", "1SEND_B0 1WAIT_B0", 1))
	err = check.Plan(p)
	plantest.RequireCodes(t, err, check.Deadlock)
	require.ErrorContains(t, err, "rank 0 is at action 5, 0WAIT_F1, and waits for 1RECV_F1 of rank 1;"+
		" rank 1 is at action 4, 1WAIT_B0, and waits for 0RECV_B0 of rank 0;"+
		" put 0RECV_B0, with the actions that it needs, before 0WAIT_F1 on rank 0.")
}

// leastCapacity proves a plan for unlimited links and returns its least capacity.
func leastCapacity(p *schedule.Plan) (int64, error) {
	proof, err := check.Prove(p, schedule.Unlimited)
	if err != nil {
		return 0, err
	}
	return proof.LeastCapacity()
}

func TestLinksThatCannotBe(t *testing.T) {
	err := check.Links(plantest.FromText(t, "0 1", 2, first, second), -2)
	plantest.RequireCodes(t, err, check.Malformed)
	require.ErrorContains(t, err, "A link cannot hold -2 messages; use 0 or more, or -1 for no limit.")
}

// A plan without transfers waits for computations, regardless of the link capacity.
func TestLinksOfComputations(t *testing.T) {
	p := plantest.FromText(t, "0 1", 2, first, second)
	require.NoError(t, check.Links(p, 0))
	least, err := leastCapacity(p)
	require.NoError(t, err)
	require.Zero(t, least)
	_, err = leastCapacity(plantest.FromText(t, "0 1", 2, first+" 0B0", second))
	plantest.RequireCodes(t, err, check.Twice)
}

// TestLeastCapacity compares LeastCapacity with the result of checking the plan under increasing
// capacities.
func TestLeastCapacity(t *testing.T) {
	rng := rand.New(rand.NewPCG(plantest.Seed(), 1))
	found := map[int]int{}
	for range 3_000 {
		p, _ := plantest.Grow(rng, plantest.Features{Ranks: 3, Depth: 4, Microbatches: 16, Copies: true, Transfers: true, Collectives: true})
		want := 0
		for plantest.Judge(p, want, rng) != "" {
			want++
		}
		least, err := leastCapacity(p)
		require.NoError(t, err)
		require.EqualValues(t, want, least, "seed %d\n%s", plantest.Seed(), plantest.Text(t, p))
		found[want]++
	}
	require.Greater(t, found[1], 50, "%v", found)
	require.NotZero(t, found[2], "%v", found)
}

// In a plan that runs all microbatches stage by stage, the required link capacity grows with the
// number of microbatches. The time to compute it must not.
func TestLeastCapacityOfManyMicrobatches(t *testing.T) {
	plan := func(microbatches int) *schedule.Plan {
		return plantest.FromText(t, "0 1 0", microbatches, "", "")
	}
	for _, microbatches := range []int{10, 1_000, 1_000_000} {
		p := plan(microbatches)
		p.Mode = schedule.ForwardOnly
		segment := func(stage int, kinds ...schedule.Kind) schedule.Segment {
			s := schedule.Segment{Repeat: microbatches, Stride: 1}
			for _, k := range kinds {
				s.Body = append(s.Body, schedule.NewAction(k, stage, 0))
			}
			return s
		}
		p.Programs = [][]schedule.Segment{
			{segment(0, schedule.F, schedule.SendF), segment(2, schedule.RecvF, schedule.F)},
			{segment(1, schedule.RecvF, schedule.F, schedule.SendF)},
		}
		least, err := leastCapacity(p)
		require.NoError(t, err)
		require.EqualValues(t, microbatches/2, least) // as many before rank 1 as after it, and one on it
		proof, err := check.Prove(p, int(least))
		require.NoError(t, err)
		require.Equal(t, int64(7*microbatches), proof.Actions)
		require.LessOrEqual(t, proof.Visited, int64(5_000))
		plantest.RequireCodes(t, check.Links(p, int(least)-1), check.Deadlock)
		proof, err = check.ProveBytes(p, 3*least, same(3))
		require.NoError(t, err)
		require.LessOrEqual(t, proof.Visited, int64(5_000))
		_, err = check.ProveBytes(p, 3*least-1, same(3))
		plantest.RequireCodes(t, err, check.Deadlock)
	}
}

// Proof counts the visited actions. For a plan in segments that number does not depend on the
// number of microbatches; for a list it is the number of all actions.
func TestProof(t *testing.T) {
	for _, s := range schedule.Schedules() {
		t.Run(s.Name, func(t *testing.T) {
			const ranks = 4
			placement, err := s.Place(ranks, ranks*s.PerRank)
			require.NoError(t, err)
			prove := func(microbatches int, transfers, list bool) check.Proof {
				p, err := s.Rule(schedule.Params{Placement: placement, Microbatches: microbatches})
				require.NoError(t, err)
				if transfers {
					p, err = lower.Transfers(p, 1)
					require.NoError(t, err)
				}
				if list {
					p = plantest.Expand(p)
				}
				proof, err := check.Prove(p, 1)
				require.NoError(t, err)
				var actions int64
				for rank := range p.Programs {
					actions += p.Actions(rank)
				}
				require.Equal(t, actions, proof.Actions)
				return proof
			}
			for _, transfers := range []bool{false, true} {
				few, many := prove(5_000, transfers, false), prove(500_000, transfers, false)
				require.Less(t, many.Visited, few.Actions/2, "%+v", many)
				require.LessOrEqual(t, many.Visited, 2*few.Visited, "%+v %+v", few, many)
				list := prove(500, transfers, true)
				require.Equal(t, list.Actions, list.Visited)
			}
		})
	}
}

// The same holds for proofs of drops and of bounds in flight.
func TestProofOfLifetimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := schedule.DepthFirst
		if rapid.Bool().Draw(t, "breadth-first") {
			rule = schedule.BreadthFirst
		}
		p := plantest.Build(t, rule, rapid.IntRange(1, 4).Draw(t, "stages"), rapid.IntRange(100, 1_000_000).Draw(t, "microbatches"), 0)
		proof, err := check.Prove(p, schedule.Unlimited)
		require.NoError(t, err)
		require.Less(t, proof.Visited, int64(100), fmt.Sprint(proof))
	})
}
