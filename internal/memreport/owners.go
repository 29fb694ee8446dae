package memreport

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/report"
	"github.com/weir-ml/weir/trainer/terminal"
)

// Owner is the memory that one name owns in one class.
type Owner struct {
	Name    string `json:"name"`
	Class   string `json:"class"`
	Bytes   int64  `json:"bytes"`
	Buffers int    `json:"buffers"`
	// First and Last are the lowest and highest microbatches that the memory belongs to, or nil
	// if it belongs to none.
	First *int `json:"first_microbatch,omitempty"`
	Last  *int `json:"last_microbatch,omitempty"`
}

const (
	maxOwners     = 4096 // maximum number of names of a dump
	maxPeakOwners = 64   // maximum number of names at the peak of a rank
	maxName       = 200  // maximum number of bytes of a name
	otherNames    = "(other names)"
)

// shortened returns a name cut to maxName.
func shortened(name string) string {
	if len(name) > maxName {
		return strings.ToValidUTF8(name[:maxName], "") + "..."
	}
	return name
}

// owners are the live buffers of a dump, by name and class.
type owners map[ownerKey]*Owner

type ownerKey struct {
	name  string
	class memory.Class
}

func (o *owners) add(info *memory.Info) {
	if *o == nil {
		*o = owners{}
	}
	key := ownerKey{shortened(info.Name), info.Class}
	if (*o)[key] == nil && len(*o) >= maxOwners {
		key.name = otherNames
	}
	one := (*o)[key]
	if one == nil {
		one = &Owner{Name: key.name, Class: info.Class.String()}
		(*o)[key] = one
	}
	one.Bytes += info.Bytes
	one.Buffers++
}

// sorted returns the owners, the largest first.
func (o owners) sorted() (list []Owner) {
	for _, one := range o {
		list = append(list, *one)
	}
	slices.SortFunc(list, func(a, b Owner) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Class, b.Class))
	})
	return list
}

// peakOwners are the owners at the peak of one rank. A log may contain the owners of several plans, each before
// the steps of the plan, or the owners of several steps, each after the step. Only the owners at the highest
// peak are kept.
type peakOwners struct {
	step        int64
	now, best   []memory.PeakOwner
	total, most int64 // total bytes of now and of best
	ended       bool  // a step has begun since
}

func (p *peakOwners) add(o *memory.PeakOwner) {
	if p.ended || o.Step != p.step {
		if p.total > p.most {
			p.best, p.now, p.most = p.now, p.best, p.total
		}
		p.now, p.total = p.now[:0], 0
		p.step, p.ended = o.Step, false
	}
	p.total += o.Bytes
	if n := len(p.now); n == maxPeakOwners {
		last := &p.now[n-1]
		*last = memory.PeakOwner{Name: otherNames, Class: last.Class, Bytes: last.Bytes + o.Bytes, Buffers: last.Buffers + o.Buffers, First: -1}
		return
	}
	p.now = append(p.now, *o)
	p.now[len(p.now)-1].Name = shortened(o.Name)
}

// sorted returns the owners, the largest first.
func (p *peakOwners) sorted() (list []Owner) {
	if p == nil {
		return nil
	}
	best := p.best
	if p.total > p.most {
		best = p.now
	}
	for _, o := range best {
		owner := Owner{Name: o.Name, Class: o.Class.String(), Bytes: o.Bytes, Buffers: o.Buffers}
		if o.First >= 0 {
			owner.First, owner.Last = new(o.First), new(o.Last)
		}
		list = append(list, owner)
	}
	slices.SortStableFunc(list, func(a, b Owner) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return list
}

func ownersTable(title string, list []Owner, whole int64) report.Table {
	return report.OwnersTable(title, whole, len(list), func(i int) (name, class string, bytes int64, buffers int) {
		return terminal.Quote(list[i].Name), list[i].Class, list[i].Bytes, list[i].Buffers
	})
}

// total returns the bytes of all owners.
func total(list []Owner) (bytes int64) {
	for _, o := range list {
		bytes += o.Bytes
	}
	return bytes
}

// dumpTable returns a table of the owners of the memory that was live when the log was dumped.
func (s *Summary) dumpTable() report.Table {
	most := int64(0)
	if len(s.Owners) > 0 {
		most = s.Owners[0].Bytes
	}
	return ownersTable("Live when the log was dumped, "+units.Exactly(total(s.Owners)), s.Owners, most)
}

// peakTable returns a table of the owners at a rank's peak. The rank may be nil.
func peakTable(r *RankSummary) report.Table {
	if r == nil {
		return report.Table{}
	}
	peak := "peak"
	if r.Planned != nil {
		peak = "planned peak"
	}
	bytes := total(r.PeakOwners)
	t := ownersTable(fmt.Sprintf("Owners at the %s, rank %d: %s, without what is resident", peak, r.Rank, units.Exactly(bytes)), r.PeakOwners, bytes)
	t.Head, t.Lead = slices.Insert(t.Head, t.Lead, "microbatches"), t.Lead+1
	for i, o := range r.PeakOwners {
		microbatches := ""
		switch {
		case o.First == nil:
		case *o.First == *o.Last:
			microbatches = strconv.Itoa(*o.First)
		default:
			microbatches = fmt.Sprintf("%d to %d", *o.First, *o.Last)
		}
		t.Rows[i] = slices.Insert(t.Rows[i], t.Lead-1, microbatches)
	}
	return t
}
