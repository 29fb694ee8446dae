package hang

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/weir-ml/weir/cmd/weir/internal/flightrec"
)

// job joins the dumps of all ranks.
type job struct {
	ranks  []*rank // in ascending order: those with a dump, the members of groups, and the peers of transfers
	byID   map[int]*rank
	groups []*group
	// activations means that floating-point numbers are transferred. Transfers of integers are then not part of
	// the plan.
	activations bool
}

// rank is one rank of a job.
type rank struct {
	id        int
	dump      *flightrec.Dump // has no entries if the rank left no dump
	missing   bool            // the rank left no readable dump
	broken    error           // why a dump of the rank cannot be read
	groups    []*group        // in the dump's order
	pending   []*flightrec.Operation
	completed *flightrec.Operation // the last completed operation, nil if the dump shows none
	lanes     map[lane][]*flightrec.Operation
	joint     map[*rank][][2]int64
	place     *Position // the rank's position in the plan, nil if it has none
	blocked   blocked
}

// blocked is the operation that holds up a rank.
type blocked struct {
	*flightrec.Operation // nil if nothing holds it up
	// matched means that all other ends have issued the operation, so the rank waits for none of
	// them. overtaken means that other members have completed it, or that the peer has completed
	// its send.
	matched, overtaken bool
	waits              []Wait
}

// group is a process group of the job.
type group struct {
	name    string // the name and the description, for messages
	kind    string // only the description
	ranks   []int
	members map[int]*member
	carries bool // whether the group carries transfers
	// least is the smallest of the members' last numbers that are proven; math.MaxInt64 if there is none.
	least int64
}

// member is the progress of a rank in the collectives of a group.
type member struct {
	first     int64 // the first pending number, -1 if none is pending
	issued    int64 // the last number issued, -1 if no entry shows it
	proven    bool  // issued is the last number, or the rank has issued none
	uncounted bool  // the numbers are not those of other members
	status    flightrec.Status
	guessed   bool // the status was looked up by the group's description
}

// newJob joins the dumps.
func newJob(set *flightrec.Set) *job {
	j := &job{byID: map[int]*rank{}}
	known := map[string]*group{}
	local := map[string]int64{} // the processes' own number of the groups with a description, -1 if dumps differ
	for _, d := range set.Dumps {
		r := j.rank(d.Rank)
		r.dump, r.missing = d, false
		for _, own := range d.Groups {
			key := fmt.Sprint(own.Name, own.Ranks)
			g := known[key]
			if g == nil {
				g = &group{name: own.Description + " (" + own.Name + ")", kind: own.Description, ranks: own.Ranks, members: map[int]*member{}}
				if own.Description == "" || own.Description == "undefined" {
					g.name = "group " + own.Name
				}
				known[key] = g
				j.groups = append(j.groups, g)
				for _, id := range own.Ranks {
					j.rank(id)
				}
			}
			g.members[d.Rank] = &member{first: -1, issued: -1, proven: d.Whole(), uncounted: own.Uncounted, status: own.Status}
			r.groups = append(r.groups, g)
			if other, found := local[own.Description]; own.Local >= 0 && found && other != own.Local {
				local[own.Description] = -1
			} else if own.Local >= 0 {
				local[own.Description] = own.Local
			}
		}
		for i := range d.Operations {
			e := &d.Operations[i]
			g := r.group(e)
			if e.Kind != flightrec.Collective {
				if g.carries = true; e.Peer >= 0 {
					j.rank(int(e.Peer)) // the group may not list the peer
				}
				r.lanes[laneOf(r, e)] = append(r.lanes[laneOf(r, e)], e)
				j.activations = j.activations || fraction(e)
				continue
			}
			m := g.members[r.id]
			m.issued, m.proven = max(m.issued, e.Number), m.proven || d.Complete
		}
	}
	for _, b := range set.Broken {
		if b.Rank >= 0 {
			j.rank(b.Rank).broken = b.Err
		}
	}
	j.ranks = slices.SortedFunc(maps.Values(j.byID), func(a, b *rank) int { return cmp.Compare(a.id, b.id) })
	for _, g := range j.groups {
		if g.ranks == nil { // Gloo names no members: they are the ranks whose dumps have the group, or all ranks for default_pg
			for _, r := range j.ranks {
				if g.members[r.id] != nil || g.kind == "default_pg" {
					g.ranks = append(g.ranks, r.id)
				}
			}
		}
	}
	for _, g := range j.groups {
		g.least = math.MaxInt64
		for _, id := range g.ranks {
			if m := g.members[id]; m != nil && m.proven {
				g.least = min(g.least, m.issued)
			}
		}
	}
	for _, r := range j.ranks {
		for i := range r.dump.Operations {
			e := &r.dump.Operations[i]
			if e.Completed && !(e.Unseen && j.early(r, e)) || e.Kind == flightrec.Send && j.received(r, e) {
				r.completed = e
				continue
			}
			r.pending = append(r.pending, e)
			if m := r.group(e).members[r.id]; e.Kind == flightrec.Collective && (m.first < 0 || e.Number < m.first) {
				m.first = e.Number
			}
		}
	}

	// A group without entries has no known number of its own. It gets the status for the number
	// that groups with its description have in other dumps, if its description is unique in its
	// dump.
	for _, r := range j.ranks {
		descriptions := map[string]int{"": 2}
		for _, own := range r.dump.Groups {
			descriptions[own.Description]++
		}
		for i, own := range r.dump.Groups {
			number, found := local[own.Description]
			m := r.groups[i].members[r.id]
			if status, unjoined := r.dump.Unjoined[number]; found && unjoined && own.Local < 0 && descriptions[own.Description] == 1 {
				m.status, m.guessed = status, true
			}
			if r.groups[i].carries { // these may be numbers of transfers
				m.status = flightrec.Status{Enqueued: -1, Completed: -1}
			}
		}
	}
	return j
}

// rank returns the rank with a number, and adds it to the job if it is new.
func (j *job) rank(id int) *rank {
	r := j.byID[id]
	if r == nil {
		r = &rank{id: id, dump: &flightrec.Dump{}, missing: true, lanes: map[lane][]*flightrec.Operation{}, joint: map[*rank][][2]int64{}}
		j.byID[id] = r
	}
	return r
}

// free reports whether it is proven that nothing holds up a rank at its place in a plan: the dump has all
// operations, and no send is pending. The plan does not wait for sends.
func (r *rank) free() bool {
	return r.dump.Complete && !slices.ContainsFunc(r.pending, func(e *flightrec.Operation) bool { return e.Kind == flightrec.Send })
}

// group returns the group of an entry.
func (r *rank) group(e *flightrec.Operation) *group { return r.groups[e.Group] }

// describe names an operation of the rank and its group.
func (r *rank) describe(e *flightrec.Operation) string { return describe(e) + " of " + r.group(e).name }

// describe names an operation.
func describe(e *flightrec.Operation) string {
	switch {
	case e.Kind == flightrec.Send:
		return fmt.Sprintf("send to rank %d", e.Peer)
	case e.Name == flightrec.Cut:
		return e.Name
	case e.Kind == flightrec.Recv && e.Peer < 0:
		return "recv from any rank"
	case e.Kind == flightrec.Recv:
		return fmt.Sprintf("recv from rank %d", e.Peer)
	}
	return fmt.Sprintf("%s %d", e.Name, e.Number)
}

// has reports whether a member has completed the group's collective with the given number.
func (m *member) has(number int64) bool {
	if m.first >= 0 {
		return m.first > number
	}
	return m.issued >= number || !m.proven && m.status.Completed >= number
}

// lacks reports whether it is proven that a member that has not completed a collective has not issued it, or
// waits in an earlier one.
func (m *member) lacks(number int64) bool {
	if m.first >= 0 {
		return m.first < number
	}
	return m.proven || m.status.Enqueued >= 0 && m.status.Enqueued < number && !m.guessed
}

// early reports whether an operation whose end was not seen cannot have ended, because another end of it has
// not been issued.
func (j *job) early(r *rank, e *flightrec.Operation) bool {
	g := r.group(e)
	switch {
	case e.Kind == flightrec.Collective:
		return g.least < e.Number && !rooted(e)
	case e.Kind != flightrec.Collective && e.Peer >= 0:
		end, counted := j.end(r, e)
		return counted && end == nil
	}
	return false
}

// received reports whether a send has ended because its message has been received, though its recorder does not say so.
func (j *job) received(r *rank, e *flightrec.Operation) bool {
	if e.Completed || e.Batch > 0 || e.Peer < 0 {
		return false
	}
	end, _ := j.end(r, e)
	return end != nil && end.Completed && !end.Unseen
}

// rooted reports whether some members of a collective may end before others begin.
func rooted(e *flightrec.Operation) bool {
	return slices.ContainsFunc([]string{"broadcast", "reduce", "scatter", "gather"}, func(name string) bool {
		return strings.Trim(e.Name, "_") == name || strings.HasPrefix(e.Name, "_"+name+"_oop")
	})
}
