package hang

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/weir-ml/weir/internal/flightrec"
)

// job joins the dumps of all ranks.
type job struct {
	ranks  []int // all that some group has, or that left a dump
	dumps  map[int]*flightrec.Dump
	groups []*group
	at     map[int][]*group // by rank, in the order of the dump's groups
}

// group is a process group of the job.
type group struct {
	name    string // with its description, for people
	kind    string // the description alone
	ranks   []int
	members map[int]*member
	carries bool // transfers
}

// member is how far a rank is in a group, in collectives.
type member struct {
	first   int64 // the first pending number, -1 if none is pending
	issued  int64 // the last number that was issued, -1 if no entry says it
	status  flightrec.Status
	guessed bool // the status was found by the group's description
}

// newJob puts the dumps together.
func newJob(set *flightrec.Set) *job {
	j := &job{dumps: map[int]*flightrec.Dump{}, at: map[int][]*group{}}
	ranks, known := map[int]bool{}, map[string]*group{}
	local := map[string]int64{} // the process's number of the groups of a description, -1 if dumps differ
	for _, d := range set.Dumps {
		j.dumps[d.Rank] = d
		ranks[d.Rank] = true
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
				for _, rank := range own.Ranks {
					ranks[rank] = true
				}
			}
			g.members[d.Rank] = &member{first: -1, issued: -1, status: own.Status}
			j.at[d.Rank] = append(j.at[d.Rank], g)
			if other, found := local[own.Description]; own.Local >= 0 && found && other != own.Local {
				local[own.Description] = -1
			} else if own.Local >= 0 {
				local[own.Description] = own.Local
			}
		}
		for e := range j.entries(d.Rank) {
			if e.Kind != flightrec.Collective {
				if e.Peer >= 0 {
					ranks[int(e.Peer)] = true // its groups may not list it
				}
				continue
			}
			m := j.group(d.Rank, e).members[d.Rank]
			m.issued = max(m.issued, e.Number)
			if !e.Completed && (m.first < 0 || e.Number < m.first) {
				m.first = e.Number
			}
		}
	}
	for _, b := range set.Broken {
		if b.Rank >= 0 {
			ranks[b.Rank] = true
		}
	}
	j.ranks = slices.Sorted(maps.Keys(ranks))

	// A group without entries gets the status of the number that its description has elsewhere, if
	// no other group of the dump has this description.
	for rank, d := range j.dumps {
		descriptions := map[string]int{"": 2}
		for _, own := range d.Groups {
			descriptions[own.Description]++
		}
		for i, own := range d.Groups {
			number, found := local[own.Description]
			if status, unjoined := d.Unjoined[number]; found && unjoined && own.Local < 0 && descriptions[own.Description] == 1 {
				m := j.at[rank][i].members[rank]
				m.status, m.guessed = status, true
			}
		}
	}
	return j
}

// entries iterates over the operations of a rank; there are none without a dump.
func (j *job) entries(rank int) iter.Seq[*flightrec.Entry] {
	return func(yield func(*flightrec.Entry) bool) {
		if d := j.dumps[rank]; d != nil {
			for i := range d.Entries {
				if !yield(&d.Entries[i]) {
					return
				}
			}
		}
	}
}

// between iterates over the transfers of a rank with a peer.
func (j *job) between(rank, peer int, kind flightrec.Kind) iter.Seq[*flightrec.Entry] {
	return func(yield func(*flightrec.Entry) bool) {
		for e := range j.entries(rank) {
			if e.Kind == kind && int(e.Peer) == peer && !yield(e) {
				return
			}
		}
	}
}

// group returns the group of an entry of a rank.
func (j *job) group(rank int, e *flightrec.Entry) *group { return j.at[rank][e.Group] }

// has reports whether a member has completed a collective of the group.
func (m *member) has(number int64) bool {
	if m.first >= 0 {
		return m.first > number
	}
	return m.issued >= number || m.status.Completed >= number
}
