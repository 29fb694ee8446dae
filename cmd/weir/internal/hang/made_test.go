package hang_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/flightrec"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
)

// made is a job that is simulated until no rank continues: pipelines side by side, which run the plan
// and then sum their gradients, step after step.
type made struct {
	plan      *schedule.Plan
	pipelines int
	posts     bool // transfers are posted, as PyTorch's runtime does; otherwise each one is waited for
	faults    []*planted
	ranks     []*madeRank
	queues    map[[3]int][]*dumpOp // transfers that are not matched yet, by from, to and direction
	joined    map[*dumpGroup]map[int64][]*dumpOp
	now       int64
}

// planted is a fault of a rank at an item of its program.
type planted struct {
	kind string // stopped, killed, swapped
	rank int
	item int
	with int // the item that a swap exchanges it with
}

// item is an action of the plan, or a collective after a step.
type item struct {
	action schedule.Action
	group  *dumpGroup
	step   int
}

type madeRank struct {
	*dumpRank
	pipeline, place int
	items           []item
	at              int
	busy            int64 // when its computation ends
	posted          map[item]*dumpOp
	waits           *dumpOp // the operation that the rank waits in
	sends           []*dumpOp
	dead            bool
}

// makeJob builds a job of some steps.
func makeJob(plan *schedule.Plan, pipelines, steps int, posts bool) *made {
	m := &made{plan: plan, pipelines: pipelines, posts: posts, queues: map[[3]int][]*dumpOp{}, joined: map[*dumpGroup]map[int64][]*dumpOp{}}
	places := plan.Placement.Ranks
	world := &dumpGroup{Name: "0", Description: "default_pg"}
	var rows, columns []*dumpGroup
	for rank := range places * pipelines {
		world.Ranks = append(world.Ranks, rank)
	}
	for p := range pipelines {
		rows = append(rows, &dumpGroup{Name: fmt.Sprint(10 + p), Description: "PIPELINE"})
		for place := range places {
			rows[p].Ranks = append(rows[p].Ranks, place*pipelines+p)
		}
	}
	for place := range places {
		columns = append(columns, &dumpGroup{Name: fmt.Sprint(100 + place), Description: "DATA"})
		for p := range pipelines {
			columns[place].Ranks = append(columns[place].Ranks, place*pipelines+p)
		}
	}
	for rank := range places * pipelines {
		place, p := rank/pipelines, rank%pipelines
		r := &madeRank{dumpRank: &dumpRank{Rank: rank, Groups: []*dumpGroup{world, rows[p], columns[place]}}, pipeline: p, place: place, posted: map[item]*dumpOp{}}
		for step := range steps {
			for a := range plan.All(place) {
				if a = a.WithDrop(0).WithJoin(false); a.Kind().Compute() || a.Kind() >= schedule.SendF && a.Kind() <= schedule.RecvB {
					r.items = append(r.items, item{action: a, step: step})
				}
			}
			r.items = append(r.items, item{group: columns[place], step: step}, item{group: world, step: step})
		}
		m.ranks = append(m.ranks, r)
	}
	return m
}

// plant puts a fault at a random place, and returns false if no place is suitable.
func (m *made) plant(rng *rand.Rand, kind string) bool {
	r := m.ranks[rng.IntN(len(m.ranks))]
	per := len(r.items) / (1 + r.items[len(r.items)-1].step)
	f := &planted{kind: kind, rank: r.Rank, item: per + rng.IntN(len(r.items)-per)}
	if kind == "swapped" {
		for f.item < len(r.items) && !transfers(r.items[f.item]) {
			f.item++
		}
		f.with = f.item + 1
		for f.with < len(r.items) && !transfers(r.items[f.with]) {
			f.with++
		}
		if f.with >= len(r.items) || r.items[f.with].step != r.items[f.item].step {
			return false
		}
		r.items[f.item], r.items[f.with] = r.items[f.with], r.items[f.item]
	}
	m.faults = append(m.faults, f)
	return true
}

func transfers(i item) bool {
	return i.action.Kind() >= schedule.SendF && i.action.Kind() <= schedule.RecvB
}

// run runs all ranks until none can continue, and reports whether all finished.
func (m *made) run() (done bool) {
	for idle := 0; idle < 64; idle++ {
		m.now++
		done = true
		for _, r := range m.ranks {
			for m.step(r) {
				idle = 0
			}
			done = done && r.at == len(r.items)
			if r.busy > m.now {
				idle = 0
			}
		}
		if done {
			return true
		}
	}
	return false
}

// step runs an item of a rank, and returns false if the rank cannot continue.
func (m *made) step(r *madeRank) bool {
	if r.at == len(r.items) || r.busy > m.now || r.dead || r.waits != nil && !m.over(r.waits) {
		return false
	}
	if r.waits != nil {
		r.waits = nil
		r.at++
		return true
	}
	for _, f := range m.faults {
		if f.kind != "swapped" && f.rank == r.Rank && f.item == r.at {
			r.dead = true
			return false
		}
	}
	i := r.items[r.at]
	switch {
	case i.group != nil:
		for _, op := range r.sends {
			if !m.over(op) {
				return false
			}
		}
		r.sends, r.waits = nil, r.Collective(i.group, "all_reduce", m.time(), 1024)
		m.join(r.waits)
		return true
	case transfers(i):
		op := m.post(r, i)
		if !m.posts {
			r.waits = op
			return true
		}
	default:
		for _, need := range m.needs(i) {
			if op := r.posted[need]; op != nil && !m.over(op) {
				return false
			}
		}
		r.busy = m.now + int64(costOf(i.action))
	}
	r.at++
	return true
}

// costOf returns the time that an action takes, which is 1 longer in odd stages.
func costOf(a schedule.Action) int {
	if a.Kind() == schedule.B {
		return 6 + a.Stage()%2
	}
	return 3 + a.Stage()%2
}

func (m *made) time() int64 { return 1e15 + m.now*1e6 }

// over reports whether an operation has completed.
func (m *made) over(op *dumpOp) bool { return op.Completed > 0 && op.Completed <= m.time() }

// needs returns the receives that a computation waits for.
func (m *made) needs(i item) []item {
	a := i.action
	switch a.Kind() {
	case schedule.F:
		return []item{{action: schedule.NewAction(schedule.RecvF, a.Stage(), a.Microbatch()), step: i.step}}
	case schedule.B, schedule.I:
		return []item{{action: schedule.NewAction(schedule.RecvB, a.Stage(), a.Microbatch()), step: i.step}}
	}
	return nil
}

// post issues a transfer, and completes it and its other end if that was issued.
func (m *made) post(r *madeRank, i item) *dumpOp {
	a, rank := i.action, m.plan.Placement.Rank
	send, other := a.Kind() == schedule.SendF || a.Kind() == schedule.SendB, a.Stage()-1
	if a.Kind() == schedule.SendF || a.Kind() == schedule.RecvB {
		other = a.Stage() + 1
	}
	peer := rank[other]*m.pipelines + r.pipeline
	op := r.Transfer(r.Groups[1], send, peer, m.time(), 4096, 1, 5120)
	r.Close()
	r.posted[i] = op
	own, theirs := [3]int{r.Rank, peer, 0}, [3]int{r.Rank, peer, 1}
	if !send {
		own, theirs = [3]int{peer, r.Rank, 1}, [3]int{peer, r.Rank, 0}
	} else {
		r.sends = append(r.sends, op)
	}
	if waiting := m.queues[theirs]; len(waiting) > 0 {
		op.Completed, waiting[0].Completed = m.time()+1e6, m.time()+1e6
		m.queues[theirs] = waiting[1:]
		return op
	}
	m.queues[own] = append(m.queues[own], op)
	return op
}

// join issues a collective, which completes when all members have issued it.
func (m *made) join(op *dumpOp) {
	number := int64(len(m.joined[op.Group]))
	if m.joined[op.Group] == nil {
		m.joined[op.Group] = map[int64][]*dumpOp{}
	}
	for n, ops := range m.joined[op.Group] {
		if len(ops) < len(op.Group.Ranks) {
			number = n
		}
	}
	all := append(m.joined[op.Group][number], op)
	m.joined[op.Group][number] = all
	if len(all) == len(op.Group.Ranks) {
		for _, one := range all {
			one.Completed = m.time() + 1e6
		}
	}
}

// dumps returns the dumps of the ranks, through the reader.
func (m *made) dumps(t testing.TB, pending bool) *flightrec.Set {
	s := &flightrec.Set{}
	for _, r := range m.ranks {
		killed := false
		for _, f := range m.faults {
			killed = killed || f.kind == "killed" && f.rank == r.Rank
		}
		if killed {
			continue
		}
		finish(m, r.dumpRank)
		r.Pending, r.Ring = pending, 2000
		require.NoError(t, s.Add(fmt.Sprintf("dump_%d", r.Rank), bytes.NewReader(r.Pickle())))
	}
	return s
}

// planFor returns the plan of a schedule with transfers, or nil if the schedule has none for these numbers.
func planFor(t testing.TB, s schedule.Schedule, ranks int, posts bool) *schedule.Plan {
	placement, err := s.Place(ranks, ranks*s.PerRank)
	require.NoError(t, err)
	params := schedule.Params{Placement: placement, Microbatches: 2 * ranks}
	if s.Name == "seq1f1b" {
		params.Slices = 2
	}
	plan, err := s.Rule(params)
	require.NoError(t, err)
	if posts {
		own := *plan
		own.Runtime = schedule.PyTorch
		plan = &own
	}
	plan, err = lower.Transfers(plan, 0)
	require.NoError(t, err)
	return plan
}

// planNamed is planFor for the name of a schedule and ranks that wait at transfers.
func planNamed(t testing.TB, name string, ranks int) *schedule.Plan {
	named, err := schedule.Find(name)
	require.NoError(t, err)
	return planFor(t, named, ranks, false)
}
