package memreport

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/trainer/report"
	"github.com/weir-ml/weir/trainer/units"
)

// PeakOwner is what is alive of one name and class at the peak of a rank.
type PeakOwner struct {
	Name    string `json:"name"`
	Class   string `json:"class"`
	Bytes   int64  `json:"bytes"`
	Buffers int    `json:"buffers"`
	// First and Last are the lowest and the highest of their microbatches, nil for none.
	First *int `json:"first_microbatch,omitempty"`
	Last  *int `json:"last_microbatch,omitempty"`
}

// mostPeakOwners is how many owners of a plan are kept apart on a rank.
const mostPeakOwners = 64

// peakOwners are those of one rank. A log may have several plans, each before the steps
// that it is for, or several steps, each before its owners: those of the highest peak are
// kept.
type peakOwners struct {
	step        int64
	now, best   []PeakOwner
	total, most int64 // bytes of now and best
	ended       bool  // a step has begun since
}

func (p *peakOwners) add(o *memory.PeakOwner) {
	if p.ended || o.Step != p.step {
		p.end()
		p.step, p.ended = o.Step, false
	}
	p.total += o.Bytes
	if n := len(p.now); n == mostPeakOwners {
		last := &p.now[n-1]
		*last = PeakOwner{Name: otherNames, Class: last.Class, Bytes: last.Bytes + o.Bytes, Buffers: last.Buffers + o.Buffers}
		return
	}
	name := o.Name
	if len(name) > mostName {
		name = strings.ToValidUTF8(name[:mostName], "") + "..."
	}
	owner := PeakOwner{Name: strings.Clone(name), Class: o.Class.String(), Bytes: o.Bytes, Buffers: o.Buffers}
	if o.First >= 0 {
		owner.First, owner.Last = new(o.First), new(o.Last)
	}
	p.now = append(p.now, owner)
}

// end keeps what was added last where it is more than what was kept.
func (p *peakOwners) end() {
	if p.total > p.most {
		p.best, p.now, p.most = p.now, p.best, p.total
	}
	p.now, p.total = p.now[:0], 0
}

// sorted returns the owners, the largest first.
func (p *peakOwners) sorted() []PeakOwner {
	if p == nil {
		return nil
	}
	list := slices.Clone(p.best)
	if p.total > p.most {
		list = slices.Clone(p.now)
	}
	slices.SortStableFunc(list, func(a, b PeakOwner) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return list
}

// microbatches names those of an owner.
func (o *PeakOwner) microbatches() string {
	switch {
	case o.First == nil:
		return ""
	case *o.First == *o.Last:
		return strconv.Itoa(*o.First)
	}
	return fmt.Sprintf("%d to %d", *o.First, *o.Last)
}

// atPeak is the sum of the owners at the peak.
func (r *Rank) atPeak() (bytes int64) {
	for _, o := range r.PeakOwners {
		bytes += o.Bytes
	}
	return bytes
}

// whichPeak is the peak that the log names owners of.
func (r *Rank) whichPeak() string {
	if r.Planned != nil {
		return "planned peak"
	}
	return "peak"
}

// peakTable has the owners at the peak of a rank, which may be nil.
func peakTable(r *Rank) (t report.Table) {
	if r == nil {
		return t
	}
	t.Title = fmt.Sprintf("Owners at the %s, rank %d: %s beside what is always there", r.whichPeak(), r.Rank, units.Exactly(r.atPeak()))
	t.Head = []string{"bytes", "buffers", "class", "owner", "microbatches"}
	for _, o := range r.PeakOwners {
		t.Rows = append(t.Rows, []string{units.Exactly(o.Bytes), units.Count(int64(o.Buffers)), o.Class, printable(o.Name), o.microbatches()})
		t.Shares = append(t.Shares, float64(o.Bytes)/float64(max(r.atPeak(), 1)))
	}
	return t
}
