package hang

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/flightrec"
	"github.com/weir-ml/weir/schedule"
)

// Report says why a job hangs.
type Report struct {
	Ranks    int       `json:"ranks"`
	Blamed   []int     `json:"blamed"`  // global ranks
	Certain  bool      `json:"certain"` // all of Reasons are proven
	Reasons  []Reason  `json:"reasons"` // by rank or circle of ranks
	Behind   []int     `json:"behind"`  // who waits for them, directly or through others
	Waits    []Wait    `json:"waits"`
	Findings []Finding `json:"findings,omitempty"`
	Missing  []int     `json:"missing,omitempty"` // ranks without a dump
	Empty    []int     `json:"empty,omitempty"`   // ranks whose dump has no operation
	States   []State   `json:"states"`
	Broken   []string  `json:"broken,omitempty"`  // files that cannot be read, with the reason
	Skipped  int       `json:"skipped,omitempty"` // files of folders and archives that are no dumps by their name
	Fit      *Fit      `json:"plan,omitempty"`
	live     bool      // of a running job
}

// Reason says why ranks are to blame.
type Reason struct {
	Ranks   []int  `json:"ranks"`
	Circle  bool   `json:"circle,omitempty"` // they wait for each other
	Text    string `json:"text"`
	Certain bool   `json:"certain"`
}

// State is how far a rank is.
type State struct {
	Rank  int    `json:"rank"`
	Last  string `json:"last,omitempty"`  // the last operation that it completed
	First string `json:"first,omitempty"` // the first one that is pending
	Place string `json:"place,omitempty"` // in the plan
}

// Dumps reports on the dumps of a job. Of the plans, which may be the same one with transfers for
// several runtimes, the first that the dumps fit says where the ranks are in it; there may be none.
func Dumps(set *flightrec.Set, plans ...*schedule.Plan) *Report {
	a := analyze(set)
	for _, plan := range plans {
		if fit := a.place(plan); a.r.Fit == nil || fit.Fits {
			a.r.Fit = fit
		}
		if a.r.Fit.Fits {
			a.direct(a.r.Fit)
			break
		}
	}
	return a.report()
}

// analysis is a report in the making.
type analysis struct {
	*job
	set   *flightrec.Set
	stuck map[int]*stuck
	r     *Report
}

func analyze(set *flightrec.Set) *analysis {
	a := &analysis{job: newJob(set), set: set, stuck: map[int]*stuck{}, r: &Report{}}
	a.r.Ranks, a.r.Skipped = len(a.ranks), len(set.Skipped)
	for _, b := range set.Broken {
		a.r.Broken = append(a.r.Broken, fmt.Sprintf("%s: %v", b.File, b.Err))
	}
	for _, rank := range a.ranks {
		a.stuck[rank] = a.pending(rank)
		switch d := a.dumps[rank]; {
		case d == nil:
			a.r.Missing = append(a.r.Missing, rank)
		case len(d.Entries) == 0:
			a.r.Empty = append(a.r.Empty, rank)
		}
	}
	return a
}

// report judges the waits.
func (a *analysis) report() *Report {
	r := a.r
	var overtaken []int
	for _, rank := range a.ranks {
		s := a.stuck[rank]
		r.Waits = append(r.Waits, s.waits...)
		if s.overtaken {
			overtaken = append(overtaken, rank)
		}
	}
	for _, rank := range a.ranks {
		r.States = append(r.States, a.state(rank))
	}
	r.Findings = a.mismatches()
	g := graph(r.Waits, overtaken...)
	for _, end := range g.ends() {
		r.Reasons = append(r.Reasons, a.reason(end))
	}
	for _, rank := range a.ranks { // that stopped before another one came to wait for them, which only a plan shows
		p := a.placeOf(rank)
		if _, waits := g[rank]; waits || len(g) == 0 || p == nil || len(p.after) != 1 || a.stuck[rank].Entry != nil || slices.Contains(p.Before, endOfStep) {
			continue
		}
		r.Reasons = append(r.Reasons, Reason{Ranks: []int{rank}, Text: "waits for none in the middle of its step; no rank has come to wait for it yet", Certain: a.dumps[rank] != nil})
	}
	r.judge(g)
	return r
}

// judge sums the reasons up.
func (r *Report) judge(g waiting) {
	r.Certain = len(r.Reasons) > 0
	r.Blamed = []int{}
	for _, reason := range r.Reasons {
		r.Blamed = append(r.Blamed, reason.Ranks...)
		r.Certain = r.Certain && reason.Certain
	}
	slices.Sort(r.Blamed)
	r.Blamed = slices.Compact(r.Blamed)
	r.Behind = g.behind(r.Blamed)
}
