package hang

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/cmd/weir/internal/flightrec"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport/diagnosis"
)

// Report says why a job hangs.
type Report struct {
	Ranks             int            `json:"ranks"`
	diagnosis.Verdict                // of global ranks
	Waits             []Wait         `json:"waits"`
	Findings          []Finding      `json:"findings,omitempty"`
	Missing           []int          `json:"missing,omitempty"` // ranks without a dump
	Empty             []int          `json:"empty,omitempty"`   // ranks whose dump contains no operations
	States            []State        `json:"states"`
	Unclosed          []int          `json:"unclosed,omitempty"` // ranks whose dump lacks the ends of batches, which were taken as completed
	Unseen            []string       `json:"unseen,omitempty"`   // backends that do not tell when operations end
	Newer             string         `json:"newer,omitempty"`    // version of dumps that is newer than those that are known
	Broken            []string       `json:"broken,omitempty"`   // files that cannot be read, with the reason
	Skipped           int            `json:"skipped,omitempty"`  // number of files in folders and archives whose names are not those of dumps
	Fit               *Fit           `json:"plan,omitempty"`
	live              bool           // the report describes a running job
	awaited           map[int][]Wait // Waits by the awaited rank
}

// State is the progress of a rank.
type State struct {
	Rank  int    `json:"rank"`
	Last  string `json:"last,omitempty"`  // the last operation that the rank completed
	First string `json:"first,omitempty"` // the first pending operation
	Place string `json:"place,omitempty"` // position in the plan
}

// Dumps reports on the dumps of a job. The plans, if any, may be one plan with the transfers of different
// runtimes. The report shows the positions of the ranks in the first plan that the dumps fit, or says why they do not
// fit the first plan if they fit none.
func Dumps(set *flightrec.Set, plans ...*schedule.Plan) *Report {
	j := newJob(set)
	r := &Report{Ranks: len(j.ranks), Skipped: len(set.Skipped)}
	for _, b := range set.Broken {
		r.Broken = append(r.Broken, fmt.Sprintf("%s: %v", b.File, b.Err))
	}
	for _, one := range j.ranks {
		switch {
		case one.missing:
			r.Missing = append(r.Missing, one.id)
		case len(one.dump.Operations) == 0:
			r.Empty = append(r.Empty, one.id)
		}
		if one.dump.Unclosed {
			r.Unclosed = append(r.Unclosed, one.id)
		}
		r.Newer = cmp.Or(one.dump.Newer, r.Newer)
		if b := one.dump.Backend; b != "" && !slices.Contains(r.Unseen, b) {
			r.Unseen = append(r.Unseen, b)
		}
		if len(one.pending) > 0 { // a rank continues after it posts a send
			first := slices.IndexFunc(one.pending, func(e *flightrec.Operation) bool { return e.Kind != flightrec.Send || e.Batch > 0 })
			j.block(one, one.pending[max(first, 0)])
		}
	}
	if slices.ContainsFunc(j.ranks, func(r *rank) bool { return len(r.pending) > 0 }) {
		for _, one := range j.ranks { // the rank may be in its last operation if its end was not seen
			if e := one.completed; len(one.pending) == 0 && e != nil && e.Unseen && e.Kind != flightrec.Collective && e.Peer >= 0 {
				if _, counted := j.end(one, e); !counted {
					j.block(one, e)
				}
			}
		}
	}
	for _, plan := range plans {
		if fit := j.fit(plan); r.Fit == nil || fit.Fits {
			r.Fit = fit
		}
		if r.Fit.Fits {
			r.Fit.adopt(j)
			break
		}
	}
	var overtaken []int
	for _, one := range j.ranks {
		r.Waits = append(r.Waits, one.blocked.waits...)
		if one.blocked.overtaken {
			overtaken = append(overtaken, one.id)
		}
	}
	r.awaited = map[int][]Wait{}
	for _, w := range r.Waits {
		r.awaited[w.For] = append(r.awaited[w.For], w)
	}
	for _, one := range j.ranks {
		r.States = append(r.States, r.state(one))
	}
	r.Findings = j.mismatches()
	g := graph(r.Waits, overtaken...)
	var reasons []diagnosis.Reason
	given := map[string]bool{} // several cycles may have one reason
	for _, end := range g.Ends() {
		reason := r.cycle
		if len(end) == 1 {
			reason = r.stopped
		}
		why := reason(j, end)
		if key := fmt.Sprint(why.Ranks, why.Text); !given[key] {
			given[key] = true
			reasons = append(reasons, why)
		}
	}
	for _, one := range j.ranks { // ranks that stopped before any other came to wait for them, which only a plan shows
		p := one.place
		if _, waits := g[one.id]; !waits && len(g) > 0 && p != nil && len(p.after) == 1 && one.blocked.Operation == nil && !slices.Contains(p.Before, endOfStep) {
			reasons = append(reasons, diagnosis.Reason{Ranks: []int{one.id}, Text: "waits for none in the middle of its step; no rank has come to wait for it yet", Certain: one.free()})
		}
	}
	r.Verdict = diagnosis.Judge(g, reasons)
	return r
}
