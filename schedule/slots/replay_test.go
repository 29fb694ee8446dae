package slots_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/slots"
)

// The replayer of this file was written from docs/slots.md alone: it reads the JSON of a table, runs the
// actions of a plan one by one, and fails if a slot is written while its tensor is alive. It shares no code
// with package slots.

// file holds the fields of the JSON that the replayer reads.
type file struct {
	Hold, Pooling string
	Pools         []struct {
		Rank   int
		Tensor string
		Slots  int
	}
	Variants []struct {
		Assignments []struct {
			Pool, Slots int
			Runs        []struct {
				Stage, Microbatch, Stride, Count int
				Direction                        string
				Slots                            []int
			}
		}
	}
}

// held is a tensor. Only received tensors have a direction here.
type held struct {
	rank              int
	tensor, direction string
	stage, mb         int
}

// computed is a stage's work on a microbatch.
type computed struct{ stage, mb int }

// replay runs the plan and returns the first fault of the slots of a variant of it.
func replay(plan *schedule.Plan, text []byte, variant int) error {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	type slot struct{ pool, number int }
	home := map[held]slot{}
	for _, a := range f.Variants[variant].Assignments {
		for _, r := range a.Runs {
			pool := f.Pools[a.Pool]
			for k := range r.Count {
				of := held{pool.Rank, pool.Tensor, "", r.Stage, r.Microbatch + k*r.Stride}
				if pool.Tensor == "received" {
					of.direction = r.Direction
				}
				at := slot{a.Pool, r.Slots[k%len(r.Slots)]}
				if _, twice := home[of]; twice || at.number < 0 || at.number >= min(a.Slots, pool.Slots) {
					return fmt.Errorf("%+v has slot %+v, of %d, twice %v", of, at, a.Slots, twice)
				}
				home[of] = at
			}
		}
	}

	backward := map[int]bool{} // the stages with one
	var programs [][]schedule.Action
	for _, actions := range plantest.Lists(plan) {
		programs = append(programs, actions)
		for _, a := range actions {
			if k := a.Kind(); k == schedule.B || k == schedule.I || k == schedule.W {
				backward[a.Stage()] = true
			}
		}
	}
	const forwards, backwards = 0, 1
	for rank, actions := range programs {
		var taken, waited [2]map[computed]int
		for i := range taken {
			taken[i], waited[i] = map[computed]int{}, map[computed]int{}
		}
		last, moments, moment := map[computed]int{}, make([]int, len(actions)), 0
		for i, a := range actions {
			moments[i] = moment
			of := computed{a.Stage(), a.Microbatch()}
			switch a.Kind() {
			case schedule.F:
				taken[forwards][of], last[of] = moment, moment
			case schedule.B, schedule.I:
				taken[backwards][of], last[of] = moment, moment
			case schedule.W:
				last[of] = moment
			case schedule.WaitF:
				waited[forwards][of] = moment
			case schedule.WaitB:
				waited[backwards][of] = moment
			}
			if !a.Joined() {
				moment++
			}
		}
		death := func(of computed, direction int) int { // of an input or gradient of a stage
			if f.Hold == "last" {
				return last[of]
			}
			return taken[direction][of]
		}
		sent := func(of computed, direction, next int) int { // of a result for the next stage
			if plan.Placement.Rank[next] == rank {
				return death(computed{next, of.mb}, direction)
			}
			if at, waits := waited[direction][of]; waits {
				return at
			}
			return moment
		}
		until := map[slot]int{} // the last moment at which the slot's tensor is alive
		write := func(of held, i, dies int) error {
			at, has := home[of]
			delete(home, of)
			if ends, used := until[at]; !has || used && ends >= moments[i] {
				return fmt.Errorf("rank %d, action %d, %v, writes %+v to slot %+v, which is alive until moment %d", rank, i, actions[i], of, at, ends)
			}
			until[at] = dies
			return nil
		}
		for i, a := range actions {
			of := computed{a.Stage(), a.Microbatch()}
			var faults []error
			switch a.Kind() {
			case schedule.RecvF:
				faults = append(faults, write(held{rank, "received", "forward", of.stage, of.mb}, i, death(of, forwards)))
			case schedule.RecvB:
				faults = append(faults, write(held{rank, "received", "backward", of.stage, of.mb}, i, death(of, backwards)))
			case schedule.F:
				dies := moments[i]
				if !plan.Placement.Last(of.stage) {
					dies = sent(of, forwards, of.stage+1)
				}
				faults = append(faults, write(held{rank, "outputs", "", of.stage, of.mb}, i, dies))
				if backward[of.stage] {
					faults = append(faults, write(held{rank, "saved", "", of.stage, of.mb}, i, last[of]))
				}
			case schedule.B, schedule.I:
				if !plan.Placement.First(of.stage) && backward[of.stage-1] {
					faults = append(faults, write(held{rank, "gradients", "", of.stage, of.mb}, i, sent(of, backwards, of.stage-1)))
				}
			}
			for _, fault := range faults {
				if fault != nil {
					return fault
				}
			}
		}
	}
	for of := range home {
		return fmt.Errorf("%+v is in no action of the plan", of)
	}
	return nil
}

// TestForeignReplay replays random plans, and schedules with random numbers of microbatches, and requires that the
// replay finds a fault if all tensors of a pool have one slot. -long replays 100,000.
func TestForeignReplay(t *testing.T) {
	rng := rand.New(rand.NewPCG(plantest.Seed(), 47))
	count, planted := 600, 0
	if *testkit.Long {
		count = 100_000
	}
	for i := range count {
		plan, _ := plantest.Grow(rng, plantest.DrawFeatures(rng))
		if i%4 == 0 {
			plan = named(t, rng)
		}
		if plan.Placement.Ranks > 1 && !plan.HasTransfers() {
			var err error
			plan, err = lower.Transfers(plan, schedule.Unlimited)
			require.NoError(t, err)
		}
		table := tableOf(t, slots.Config{
			Pooling: []slots.Pooling{slots.ByStage, slots.ByDirection, slots.ByRank}[rng.IntN(3)], Hold: []slots.Hold{slots.Taken, slots.Last}[rng.IntN(2)],
		}, plan)
		var text bytes.Buffer
		require.NoError(t, slots.Write(&text, table))
		require.NoError(t, replay(plan, text.Bytes(), 0), "seed %d, plan %d: %s", plantest.Seed(), i, plan.Name)
		if overlap(rng, table) {
			planted++
			text.Reset()
			require.NoError(t, slots.Write(&text, table))
			require.Error(t, replay(plan, text.Bytes(), 0), "seed %d, plan %d: %s", plantest.Seed(), i, plan.Name)
		}
	}
	require.Greater(t, planted, count/10)
}

// named returns the plan of a random schedule for 1 to 4 ranks and up to 200 microbatches.
func named(t *testing.T, rng *rand.Rand) *schedule.Plan {
	for {
		s := schedule.Schedules()[rng.IntN(len(schedule.Schedules()))]
		ranks := 1 + rng.IntN(4)
		place, err := s.Place(ranks, ranks*s.PerRank)
		if err != nil {
			continue
		}
		plan, err := s.Rule(schedule.Params{Placement: place, Microbatches: 1 + rng.IntN(200)})
		if err != nil {
			continue
		}
		plan.Runtime = []schedule.Runtime{schedule.Weir, schedule.PyTorch}[rng.IntN(2)]
		if ranks > 1 {
			plan, err = lower.Transfers(plan, 0)
			require.NoError(t, err)
		}
		return plan
	}
}

// overlap gives all tensors of a pool that needs several slots a single one, and reports whether there is such a pool.
func overlap(rng *rand.Rand, table *slots.Table) bool {
	all := table.Variants[0].Assignments
	for _, i := range rng.Perm(len(all)) {
		if all[i].Slots < 2 {
			continue
		}
		for j := range all[i].Runs {
			clear(all[i].Runs[j].Slots)
		}
		return true
	}
	return false
}
