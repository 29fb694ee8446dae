package hang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/flightrec"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/trainer/units"
)

// Fit is how the dumps of a job fit a plan.
type Fit struct {
	Plan      string         `json:"name"`
	Fits      bool           `json:"fits"`
	Why       string         `json:"why,omitempty"`      // it does not
	Deadlock  string         `json:"deadlock,omitempty"` // of the plan itself
	Pipelines [][]int        `json:"pipelines,omitempty"`
	Places    map[int]*Place `json:"-"` // by rank of the job
	plan      *schedule.Plan
}

// Place is where a rank is in the program of its place in a pipeline.
type Place struct {
	Pipeline, Place int
	// Before are the actions that may be the rank's next, the likeliest first; more than
	// one if the dumps do not say which.
	Before []schedule.Action
	After  schedule.Action // the last action that it is known to have done, 0 is none
	// For is the transfer that Before[0] waits for, 0 if it waits for none.
	For     schedule.Action
	Departs bool // its last transfers are not those of the plan
	script  *script
	after   []int // how many transfers of the step it may have issued
	trail   trail
}

// trail is what a rank has issued in its pipeline.
type trail struct {
	known   bool        // it left a dump
	issued  []direction // the last ones, if the dump has all of them; else nil
	count   int         // of all since the job began, -1 is unknown
	pending map[direction]int
	stuck   []held // the pending ones, in their order
}

// held is a transfer that is pending.
type held struct {
	direction
	behind int // transfers that were issued after it, -1 is unknown
}

// place finds where all ranks are in a plan with transfers. The number of transfers since the
// job began says it if it counts as the plan does, else their order alone.
func (a *analysis) place(plan *schedule.Plan) *Fit {
	fit := &Fit{Plan: plan.Name, plan: plan}
	all, err := scripts(plan)
	if err != nil {
		fit.Why = err.Error()
		return fit
	}
	if fit.Pipelines = a.pipelines(plan.Placement.Ranks); len(fit.Pipelines) == 0 {
		fit.Why = fmt.Sprintf("no group of %s has transfers between its ranks", units.Number(plan.Placement.Ranks, "rank"))
		return fit
	}
	if fit.Why = a.try(fit, all, true); fit.Why != "" {
		fit.Why = a.try(fit, all, false)
	}
	fit.Fits = fit.Why == ""
	return fit
}

// try finds a place for every rank, or returns why there is none.
func (a *analysis) try(fit *Fit, all []script, counts bool) (why string) {
	fit.Places = map[int]*Place{}
	departed := 0
	for number, ranks := range fit.Pipelines {
		for place, rank := range ranks {
			p := &Place{Pipeline: number, Place: place, script: &all[place], trail: a.trail(rank, ranks)}
			if !counts {
				p.trail.count = -1
			}
			if len(p.script.transfers) == 0 || !p.candidates() {
				return fmt.Sprintf("the transfers of rank %d are not those of place %d of the plan", rank, place)
			}
			fit.Places[rank] = p
			if p.Departs {
				departed++
			}
		}
		if rank := fit.narrow(ranks); rank >= 0 {
			return fmt.Sprintf("the transfers of rank %d do not agree with those of its pipeline at any place of the plan", rank)
		}
	}
	if 4*departed > len(fit.Places) {
		return fmt.Sprintf("the transfers of %d ranks are in another order than the plan's", departed)
	}
	for rank, p := range fit.Places {
		s := a.stuck[rank]
		p.locate(fit.plan, s.Entry != nil && s.Kind == flightrec.Collective)
	}
	return ""
}

// pipelines returns the ranks of each pipeline in the order of their places: of the groups of so
// many ranks in which there are transfers, or else of ranks that transfers connect.
func (a *analysis) pipelines(places int) (list [][]int) {
	var links []Wait // both ways
	linked := map[[2]int]bool{}
	for _, rank := range a.ranks {
		for e := range a.entries(rank) {
			if e.Kind == flightrec.Collective || e.Peer < 0 {
				continue
			}
			a.group(rank, e).carries = true
			if peer := int(e.Peer); !linked[[2]int{rank, peer}] {
				linked[[2]int{rank, peer}] = true
				links = append(links, Wait{Rank: rank, For: peer}, Wait{Rank: peer, For: rank})
			}
		}
	}
	var parts [][]int
	for _, g := range a.groups { // a pipeline of which nothing is pending is one like the others
		g.carries = g.carries || g.kind != "" && slices.ContainsFunc(a.groups, func(other *group) bool {
			return other.carries && other.kind == g.kind && len(other.ranks) == len(g.ranks)
		})
		if g.carries {
			parts = append(parts, g.ranks)
		}
	}
	seen := map[int]bool{}
	for _, ranks := range append(parts, graph(links).ends()...) {
		if len(ranks) != places || slices.ContainsFunc(ranks, func(rank int) bool { return seen[rank] }) {
			continue
		}
		list = append(list, ranks)
		for _, rank := range ranks {
			seen[rank] = true
		}
	}
	slices.SortFunc(list, func(x, y []int) int { return slices.Min(x) - slices.Min(y) })
	return list
}

// trail returns the transfers that a rank has issued to the ranks of its pipeline, in all groups.
func (a *analysis) trail(rank int, pipeline []int) trail {
	t := trail{known: a.dumps[rank] != nil, pending: map[direction]int{}, count: -1}
	if !t.known {
		return t
	}
	last, whole := map[*group]int64{}, true
	for e := range a.entries(rank) {
		place := slices.Index(pipeline, int(e.Peer))
		if e.Kind == flightrec.Collective || place < 0 {
			continue
		}
		at, g := direction{e.Kind, place}, a.group(rank, e)
		t.issued = append(t.issued, at)
		number, begun := last[g]
		whole = whole && (!begun || e.Number == number+1)
		last[g] = e.Number
		if !e.Completed {
			t.pending[at]++
			t.stuck = append(t.stuck, held{at, int(e.Number)})
		}
	}
	for _, g := range a.at[rank] { // what a dump of pending operations does not show
		status := g.members[rank].status
		if g.carries && slices.Equal(g.ranks, pipeline) && status.Enqueued > last[g] {
			last[g], whole = status.Enqueued, false
		}
	}
	if !whole || len(t.issued) == len(t.stuck) {
		t.issued = nil
	}
	t.count = 0
	for _, number := range last {
		t.count += int(number)
	}
	for i := range t.stuck {
		if t.stuck[i].behind = t.count - t.stuck[i].behind; len(last) > 1 {
			t.stuck[i].behind = -1 // numbers of several groups say no order
		}
	}
	return t
}

// odd is how many of its last transfers a rank may have issued out of the plan's order.
const odd = 2

// candidates finds after how many transfers of the step the rank may be, from its own dump. It
// returns false if the dump has transfers that are not the plan's.
func (p *Place) candidates() bool {
	n := len(p.script.transfers)
	for _, s := range p.trail.stuck {
		if p.script.count[s.direction] == 0 {
			return false
		}
	}
	counted := 0
	if p.trail.count > 0 {
		counted = (p.trail.count-1)%n + 1
	}
	if len(p.trail.issued) == 0 {
		if counted > 0 {
			p.after, p.Departs = []int{counted}, !p.pendingFit(counted)
			return true
		}
		for k := 1; k <= n; k++ {
			if p.pendingFit(k) {
				p.after = append(p.after, k)
			}
		}
		return len(p.after) > 0
	}
	for tail := 0; tail <= odd && tail < len(p.trail.issued); tail++ {
		p.after = p.script.matches(p.trail.issued[:len(p.trail.issued)-tail])
		if before := (counted-tail-1+2*n)%n + 1; counted > 0 && slices.Contains(p.after, before) {
			p.after = []int{before}
		}
		if len(p.after) > 0 {
			p.Departs = tail > 0
			return true
		}
	}
	return false
}

// pendingFit reports whether the pending transfers of a rank are where the plan has them, or at
// least among the last ones, if it has issued so many of the step.
func (p *Place) pendingFit(k int) bool {
	at := k - 1
	for i := len(p.trail.stuck) - 1; i >= 0; i-- {
		stuck := p.trail.stuck[i]
		if stuck.behind >= 0 && p.trail.count > 0 {
			if p.script.cyclic(k-1-stuck.behind).direction != stuck.direction {
				return false
			}
			continue
		}
		for p.script.cyclic(at).direction != stuck.direction {
			if at--; at < k-1-len(p.script.transfers) {
				return false
			}
		}
		at--
	}
	return true
}

// narrow leaves out places that do not go together: in each direction as many messages were
// received as were sent, but for those that are pending. It returns the rank that has no
// place left, or -1.
func (f *Fit) narrow(ranks []int) int {
	for changed := true; changed; {
		changed = false
		for _, rank := range ranks {
			p := f.Places[rank]
			before := len(p.after)
			for d, most := range p.script.count {
				other, back := f.Places[ranks[d.peer]], direction{flightrec.Send + flightrec.Recv - d.kind, p.Place}
				own, theirs := p.trail.pending[d], other.trail.pending[back]
				if p.Departs || other.Departs || own > 0 && theirs > 0 || !p.trail.known && theirs == 0 || !other.trail.known && own == 0 {
					continue // matched and not over, or not known
				}
				rest := map[int]bool{}
				for _, k := range other.after {
					rest[(other.script.within(k, back)-theirs+2*most)%most] = true
				}
				p.after = slices.DeleteFunc(p.after, func(k int) bool { return !rest[(p.script.within(k, d)-own+2*most)%most] })
			}
			if len(p.after) == 0 {
				return rank
			}
			changed = changed || len(p.after) < before
		}
	}
	return -1
}

// locate turns the number of issued transfers into the actions that may be the rank's next. A
// rank that is in a collective has not begun the next step.
func (p *Place) locate(plan *schedule.Plan, inCollective bool) {
	transfers, actions := p.script.transfers, p.script.actions
	for _, k := range p.after {
		issued := transfers[k-1]
		last, next := actions[issued.at], len(actions)
		if plan.Runtime == schedule.Weir && p.trail.pending[issued.direction] > 0 {
			p.candidate(last, last, p.script.before(issued.at))
			continue
		}
		if k < len(transfers) {
			next = transfers[k].at + 1
		}
		window := slices.Clone(actions[issued.at+1 : next]) // the computations after the last transfer, and the next one
		if held := slices.IndexFunc(window, func(a schedule.Action) bool { return p.needs(plan, a, k) != 0 }); held >= 0 {
			p.candidate(window[held], p.needs(plan, window[held], k), actions[issued.at+held])
			continue
		}
		if k == len(transfers) {
			window = append(window, endOfStep)
			if !inCollective { // it may be in the next step
				window = append(window, actions[:transfers[0].at+1]...)
			}
		}
		for _, a := range window {
			p.candidate(a, 0, last)
		}
	}
}

// endOfStep represents the position after the last action of a step.
const endOfStep = schedule.Action(0)

// candidate adds an action that may be the rank's next.
func (p *Place) candidate(before, need, after schedule.Action) {
	if len(p.Before) == 0 {
		p.After, p.For = after, need
	}
	if !slices.Contains(p.Before, before) {
		p.Before = append(p.Before, before)
	}
}

// needs returns the receive that a computation waits for, 0 if it has completed or there is none.
func (p *Place) needs(plan *schedule.Plan, a schedule.Action, k int) schedule.Action {
	kind := schedule.RecvF
	switch a.Kind() {
	case schedule.F:
	case schedule.B, schedule.I:
		kind = schedule.RecvB
	default:
		return 0
	}
	need := schedule.Act(kind, a.Stage(), a.Microbatch())
	d, crosses := directionOf(plan, need)
	if !crosses {
		return 0
	}
	open := p.trail.pending[d] // the last receives of a direction are those that are pending
	for i := k - 1; i >= 0 && open > 0; i-- {
		if t := p.script.transfers[i]; t.direction == d {
			if p.script.actions[t.at] == need {
				return need
			}
			open--
		}
	}
	return 0
}

// direct replaces what the ranks wait for by what they wait for in the plan, where their places
// are certain.
func (a *analysis) direct(fit *Fit) {
	for rank, p := range fit.Places {
		s := a.stuck[rank]
		if len(p.after) != 1 || p.Departs || s.Entry == nil || s.Kind == flightrec.Collective {
			continue
		}
		if p.For == 0 {
			if !slices.Contains(p.Before, endOfStep) { // nothing that is pending holds it up
				*s = stuck{pending: s.pending, group: s.group}
			}
			continue
		}
		d, _ := directionOf(fit.plan, p.For)
		peer := fit.Pipelines[p.Pipeline][d.peer]
		for _, e := range s.pending {
			if e.Kind == d.kind && int(e.Peer) == peer {
				*s = stuck{Entry: e, pending: s.pending, group: a.group(rank, e)}
				a.transfer(rank, s)
				break
			}
		}
		for i := range s.waits {
			s.waits[i].In += fmt.Sprintf(" (%v)", p.For)
		}
	}
}

// String says where the rank is.
func (p *Place) String() string {
	text := fmt.Sprintf("pipeline %d, place %d: ", p.Pipeline, p.Place)
	if p.After != 0 {
		text += fmt.Sprintf("after %v, ", p.After)
	}
	var words []string
	for _, a := range p.Before {
		if words = append(words, a.String()); a == endOfStep {
			words[len(words)-1] = "the end of the step"
		}
	}
	if len(words) > 6 {
		words = append(words[:6], fmt.Sprintf("%d more", len(words)-6))
	}
	text += "before " + strings.Join(words, " or ")
	if p.For != 0 && p.For != p.Before[0] {
		text += fmt.Sprintf(", which needs %v", p.For)
	}
	if p.Departs {
		text += ", and then it departs from the plan"
	}
	return text
}
