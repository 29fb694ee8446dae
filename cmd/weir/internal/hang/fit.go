package hang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-ml/weir/cmd/weir/internal/flightrec"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/units"
)

// Fit is the result of comparing the dumps of a job with a plan.
type Fit struct {
	Plan      string            `json:"name"`
	Fits      bool              `json:"fits"`
	Why       string            `json:"why,omitempty"`      // the reason that the dumps do not fit
	Deadlock  string            `json:"deadlock,omitempty"` // a deadlock of the plan itself
	Pipelines [][]int           `json:"pipelines,omitempty"`
	Positions map[int]*Position `json:"-"` // by rank of the job
	plan      *schedule.Plan
}

// Position is the progress of a rank in the program of its place in a pipeline.
type Position struct {
	Pipeline, Rank int
	// Before lists the actions that may be the rank's next, the likeliest first. It contains several actions if
	// the dumps do not show which one is next.
	Before []schedule.Action
	After  schedule.Action // the last action that the rank is known to have completed, or 0 if none is known
	// For is the transfer that Before[0] waits for, or 0 if it waits for none.
	For     schedule.Action
	Departs bool // the rank's last transfers differ from the plan

	rank   *rank
	script *script
	trail  trail
	after  []int // the possible numbers of the step's transfers that the rank has issued
}

// trail holds a rank's transfers within its pipeline, as far as its dump shows them.
type trail struct {
	last    []issued // the last transfers; only the pending ones if the dump does not contain all
	whole   bool     // last contains all of the dump's transfers, with none missing in between or after them
	none    bool     // the rank has issued no transfer
	count   int      // number of transfers since the job began, 0 if unknown
	pending map[direction]int
}

// issued is a transfer that a rank has issued.
type issued struct {
	direction
	back int // number of transfers issued after it, -1 if unknown
}

// fit finds the positions of all ranks in a plan with transfers. The number of transfers since the
// job began determines the positions if that number counts transfers as the plan does; otherwise,
// only the order of the transfers does.
func (j *job) fit(plan *schedule.Plan) *Fit {
	fit := &Fit{Plan: plan.Name, plan: plan}
	all, err := scripts(plan)
	if err != nil {
		fit.Why = err.Error()
		return fit
	}
	if fit.Pipelines = j.pipelines(plan.Placement.Ranks); len(fit.Pipelines) == 0 {
		fit.Why = fmt.Sprintf("no group of %s has transfers between its ranks", units.Number(plan.Placement.Ranks, "rank"))
		return fit
	}
	if fit.Why = fit.place(j, all, true); fit.Why != "" {
		fit.Why = fit.place(j, all, false)
	}
	fit.Fits = fit.Why == ""
	return fit
}

// place finds a position for every rank, or returns the reason why there is none. counts reports whether the
// numbers of transfers count them as the plan does.
func (f *Fit) place(j *job, all []script, counts bool) (why string) {
	f.Positions = map[int]*Position{}
	departed := 0
	for number, ranks := range f.Pipelines {
		for place, id := range ranks {
			r := j.byID[id]
			p := &Position{Pipeline: number, Rank: place, rank: r, script: &all[place], trail: j.trail(r, ranks, counts)}
			if len(p.script.transfers) == 0 || !p.candidates() {
				return fmt.Sprintf("the transfers of rank %d are not those of place %d of the plan", id, place)
			}
			f.Positions[id] = p
			if p.Departs {
				departed++
			}
		}
		if id := f.narrow(ranks); id >= 0 {
			return fmt.Sprintf("the transfers of rank %d do not agree with those of its pipeline at any place of the plan", id)
		}
	}
	if 4*departed > len(f.Positions) {
		return fmt.Sprintf("the transfers of %d ranks are in another order than the plan's", departed)
	}
	for _, p := range f.Positions {
		p.locate(f.plan)
	}
	return ""
}

// pipelines returns the ranks of each pipeline in the order of their places: the groups of this
// many places that have transfers, or else the sets of as many ranks that transfers connect.
func (j *job) pipelines(places int) (list [][]int) {
	var parts [][]int
	for _, g := range j.groups { // a pipeline with nothing pending has the kind of the others
		g.carries = slices.ContainsFunc(j.groups, func(other *group) bool {
			return other.carries && (other == g || g.kind != "" && other.kind == g.kind && len(other.ranks) == len(g.ranks))
		})
		if g.carries {
			parts = append(parts, g.ranks)
		}
	}
	var links []Wait // each in both directions
	linked := map[[2]int]bool{}
	for _, r := range j.ranks {
		for _, e := range r.dump.Operations {
			peer := int(e.Peer)
			if e.Kind != flightrec.Collective && peer >= 0 && !linked[[2]int{r.id, peer}] {
				linked[[2]int{r.id, peer}] = true
				links = append(links, Wait{Rank: r.id, For: peer}, Wait{Rank: peer, For: r.id})
			}
		}
	}
	seen := map[int]bool{}
	for _, ranks := range append(parts, graph(links).Ends()...) {
		if len(ranks) != places || slices.ContainsFunc(ranks, func(id int) bool { return seen[id] }) {
			continue
		}
		list = append(list, ranks)
		for _, id := range ranks {
			seen[id] = true
		}
	}
	slices.SortFunc(list, func(a, b []int) int { return slices.Min(a) - slices.Min(b) })
	return list
}

// trail returns the rank's transfers with the ranks of its pipeline, in all groups. PyTorch 2.15 sends integers
// between these ranks before the first step: one for each link, and the shapes of later transfers. No plan
// contains these transfers.
func (j *job) trail(r *rank, pipeline []int, counts bool) trail {
	t := trail{pending: map[direction]int{}}
	gapless, counted := true, true
	var pending []issued
	last := map[*group]int64{} // number
	left := r.pending
	for i := range r.dump.Operations {
		e := &r.dump.Operations[i]
		held := len(left) > 0 && e == left[0]
		if held {
			left = left[1:]
		}
		place := slices.Index(pipeline, int(e.Peer))
		if e.Kind == flightrec.Collective || place < 0 || j.activations && !fraction(e) {
			continue
		}
		g := r.group(e)
		number, begun := last[g]
		gapless = gapless && (!begun || e.Number == number+1)
		counted = counted && !r.dump.Groups[e.Group].Uncounted && (!r.dump.Hooked || r.dump.Whole())
		last[g] = e.Number
		t.last = append(t.last, issued{direction: direction{e.Kind, place}})
		if held {
			t.pending[direction{e.Kind, place}]++
			pending = append(pending, issued{direction{e.Kind, place}, int(e.Number)})
		}
	}
	t.whole = r.dump.Complete || gapless && len(t.last) > len(pending) // all parts of batches stay in a dump
	for i, g := range r.groups {                                       // a dump of pending operations does not show these
		if enqueued := r.dump.Groups[i].Status.Enqueued; !t.whole && g.carries && slices.Equal(g.ranks, pipeline) && enqueued > last[g] {
			last[g] = enqueued
		}
	}
	for _, number := range last {
		t.count += int(number)
	}
	if r.dump.Whole() {
		t.count, t.none = len(t.last), len(t.last) == 0
	}
	if !counts || !counted {
		t.count = 0
	}
	if t.whole {
		for i := range t.last {
			t.last[i].back = len(t.last) - 1 - i
		}
		return t
	}
	t.last = pending
	for i := range t.last {
		if t.last[i].back = t.count - t.last[i].back; len(last) > 1 || t.count <= 0 {
			t.last[i].back = -1 // the numbers of several groups give no order
		}
	}
	return t
}

// fraction reports whether the elements of a transfer are floating-point numbers.
func fraction(e *flightrec.Operation) bool {
	return strings.Contains(e.Type, "Float") || e.Type == "Half" || e.Type == "Double"
}

// maxDeparted is the maximum number of a rank's last transfers that may depart from the plan's
// order.
const maxDeparted = 2

// candidates finds, from the rank's own dump, how many of the step's transfers the rank may have
// issued. It returns false if the plan lacks some of the dump's transfers, or has them in another order.
func (p *Position) candidates() bool {
	for d := range p.trail.pending {
		if p.script.count[d] == 0 {
			return false
		}
	}
	n, last, counted := len(p.script.transfers), p.trail.last, 0
	if p.trail.none {
		p.after = []int{0}
		return true
	}
	if p.trail.count > 0 {
		counted = (p.trail.count-1)%n + 1
	}
	if !p.trail.whole && counted > 0 {
		p.after, p.Departs = []int{counted}, !p.fits(last, counted)
		return true
	}
	for tail := 0; tail == 0 || p.trail.whole && tail <= min(maxDeparted, len(last)-1); tail++ {
		for k := 1; k <= n; k++ {
			if p.fits(last[:len(last)-tail], k+tail) {
				p.after = append(p.after, k)
			}
		}
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

// fits reports whether a rank's last transfers match the plan, assuming that it has issued k
// transfers of the step. Transfers whose numbers are unknown need only be in the plan's order. It
// compares at most one step's transfers.
func (p *Position) fits(last []issued, k int) bool {
	n := len(p.script.transfers)
	next := 0 // the earliest position for a transfer with an unknown number
	for _, t := range slices.Backward(last[max(0, len(last)-n):]) {
		if t.back >= 0 {
			if p.script.issued(k, t.back) != t.direction {
				return false
			}
			continue
		}
		for p.script.issued(k, next) != t.direction {
			if next++; next > n {
				return false
			}
		}
		next++
	}
	return true
}

// narrow removes candidates that do not agree with those of the peers: in each direction, the numbers of
// messages sent and received must be equal, apart from pending ones. It returns the rank that has no candidate
// left, or -1.
func (f *Fit) narrow(ranks []int) int {
	for changed := true; changed; {
		changed = false
		for _, id := range ranks {
			p := f.Positions[id]
			before := len(p.after)
			for d, most := range p.script.count {
				peer, back := f.Positions[ranks[d.peer]], direction{flightrec.Send + flightrec.Recv - d.kind, p.Rank}
				own, theirs := p.trail.pending[d], peer.trail.pending[back]
				if len(p.after) == 1 && len(peer.after) == 1 && p.rank.dump.Complete && peer.rank.dump.Complete {
					continue // small sends can end before they are received
				}
				if p.Departs || peer.Departs || own > 0 && theirs > 0 || p.rank.missing && theirs == 0 || peer.rank.missing && own == 0 {
					continue // matched but not complete, or unknown
				}
				completed := map[int]bool{}
				for _, k := range peer.after {
					completed[(peer.script.countFirst(k, back)-theirs+2*most)%most] = true
				}
				p.after = slices.DeleteFunc(p.after, func(k int) bool { return !completed[(p.script.countFirst(k, d)-own+2*most)%most] })
			}
			if len(p.after) == 0 {
				return id
			}
			changed = changed || len(p.after) < before
		}
	}
	return -1
}

// locate converts the numbers of issued transfers to the actions that may be the rank's next. A
// rank in a collective has not begun the next step.
func (p *Position) locate(plan *schedule.Plan) {
	transfers, actions := p.script.transfers, p.script.actions
	inCollective := p.rank.blocked.Operation != nil && p.rank.blocked.Kind == flightrec.Collective
	for _, k := range p.after {
		var last transfer // the start of the first step if the rank has issued none
		if k > 0 {
			last = transfers[k-1]
		}
		if k > 0 && plan.Runtime == schedule.Weir && p.trail.pending[last.direction] > 0 {
			p.add(actions[last.at], actions[last.at], actions[last.at-1])
			continue
		}
		var next []schedule.Action // the computations after the last transfer, and the next transfer
		need, after := schedule.Action(0), actions[last.at]
		for i := last.at + 1; ; i++ {
			at := i % len(actions)
			next = append(next, actions[at])
			if i == at {
				need = p.need(plan, actions[at], k)
			}
			if need != 0 { // the computations before that one are done
				next, after = actions[at:at+1], actions[at-1]
			}
			if need != 0 || at == transfers[k%len(transfers)].at || actions[at] == endOfStep && inCollective {
				break
			}
		}
		for _, a := range next {
			p.add(a, need, after)
		}
	}
}

// add adds an action that may be the rank's next. The first one also sets p.After and p.For.
func (p *Position) add(before, need, after schedule.Action) {
	if len(p.Before) == 0 {
		p.After, p.For = after, need
	}
	if !slices.Contains(p.Before, before) {
		p.Before = append(p.Before, before)
	}
}

// need returns the pending receive that a computation waits for if the rank has issued k transfers
// of the step, or 0 if there is none.
func (p *Position) need(plan *schedule.Plan, a schedule.Action, k int) schedule.Action {
	var kind schedule.Kind
	switch a.Kind() {
	case schedule.F:
		kind = schedule.RecvF
	case schedule.B, schedule.I:
		kind = schedule.RecvB
	default:
		return 0
	}
	need := schedule.NewAction(kind, a.Stage(), a.Microbatch())
	d, _ := directionOf(plan, need)
	pending := p.trail.pending[d] // these are the direction's last receives
	for _, t := range slices.Backward(p.script.transfers[:k]) {
		if t.direction == d && pending > 0 {
			if p.script.actions[t.at] == need {
				return need
			}
			pending--
		}
	}
	return 0
}

// adopt assigns the ranks their places. For ranks whose places are certain, it replaces their
// waits with those that the plan implies.
func (f *Fit) adopt(j *job) {
	for _, p := range f.Positions {
		r := p.rank
		r.place = p
		if len(p.after) != 1 || p.Departs || r.blocked.Operation == nil || r.blocked.Kind == flightrec.Collective {
			continue
		}
		if p.For == 0 {
			gone := slices.ContainsFunc(r.pending, func(e *flightrec.Operation) bool { return e.Peer >= 0 && j.byID[int(e.Peer)].missing })
			send := slices.IndexFunc(r.pending, func(e *flightrec.Operation) bool { return e.Kind == flightrec.Send })
			computes := slices.ContainsFunc(p.Before, func(a schedule.Action) bool { return a.Kind().Compute() })
			switch {
			case gone || slices.Contains(p.Before, endOfStep):
			case send >= 0 && !computes: // it issues no transfer until its sends have ended
				j.block(r, r.pending[send])
			default: // no pending operation holds it up
				r.blocked = blocked{}
			}
			continue
		}
		d, _ := directionOf(f.plan, p.For)
		peer := f.Pipelines[p.Pipeline][d.peer]
		for _, e := range r.pending {
			if e.Kind == d.kind && int(e.Peer) == peer {
				j.block(r, e)
				break
			}
		}
		for i := range r.blocked.waits {
			r.blocked.waits[i].In += fmt.Sprintf(" (%v)", p.For)
		}
	}
}

// String describes the position.
func (p *Position) String() string {
	text := fmt.Sprintf("pipeline %d, place %d: ", p.Pipeline, p.Rank)
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
