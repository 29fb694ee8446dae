package hang

import (
	"fmt"
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
	for _, d := range set.Dumps {
		j.dumps[d.Rank] = d
		ranks[d.Rank] = true
		for i := range d.Groups {
			own := &d.Groups[i]
			key := fmt.Sprint(own.Name, own.Ranks)
			g := known[key]
			if g == nil {
				g = &group{name: groupName(own), kind: own.Description, ranks: own.Ranks, members: map[int]*member{}}
				known[key] = g
				j.groups = append(j.groups, g)
				for _, rank := range own.Ranks {
					ranks[rank] = true
				}
			}
			g.members[d.Rank] = &member{first: -1, issued: -1, status: own.Status}
			j.at[d.Rank] = append(j.at[d.Rank], g)
		}
		j.count(d)
	}
	for _, b := range set.Broken {
		if b.Rank >= 0 {
			ranks[b.Rank] = true
		}
	}
	j.ranks = slices.Sorted(maps.Keys(ranks))
	j.guess()
	return j
}

func groupName(g *flightrec.Group) string {
	if g.Description == "" || g.Description == "undefined" {
		return "group " + g.Name
	}
	return g.Description + " (" + g.Name + ")"
}

// count notes how far a rank is in the collectives of its groups.
func (j *job) count(d *flightrec.Dump) {
	for i := range d.Entries {
		e := &d.Entries[i]
		if e.Kind != flightrec.Collective {
			continue
		}
		m := j.at[d.Rank][e.Group].members[d.Rank]
		m.issued = max(m.issued, e.Number)
		if e.Pending() && (m.first < 0 || e.Number < m.first) {
			m.first = e.Number
		}
	}
}

// guess gives ranks without entries in a group the status that has the same number of their
// process as on all ranks where entries say it, by the group's description.
func (j *job) guess() {
	local := map[string]int64{}
	for _, d := range j.dumps {
		for i := range d.Groups {
			g := &d.Groups[i]
			if g.Local < 0 || g.Description == "" {
				continue
			}
			if other, found := local[g.Description]; found && other != g.Local {
				local[g.Description] = -1 // they do not agree
				continue
			}
			local[g.Description] = g.Local
		}
	}
	for rank, d := range j.dumps {
		for i, g := range j.at[rank] {
			own := &d.Groups[i]
			number, found := local[own.Description]
			alike := func(other flightrec.Group) bool {
				return other.Description == own.Description && other.Name != own.Name
			}
			if status, unjoined := d.Unjoined[number]; own.Local < 0 && found && unjoined && !slices.ContainsFunc(d.Groups, alike) {
				g.members[rank].status, g.members[rank].guessed = status, true
			}
		}
	}
}

// pending returns the entries of a rank that have not completed, in their order.
func (j *job) pending(rank int) (list []*flightrec.Entry) {
	if d := j.dumps[rank]; d != nil {
		for i := range d.Entries {
			if e := &d.Entries[i]; e.Pending() {
				list = append(list, e)
			}
		}
	}
	return list
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
