package layout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
)

// Height returns the height of the highest layout of any rank, in bytes.
func (p *Memory) Height() (most int64) {
	for i := range p.Ranks {
		most = max(most, p.Ranks[i].Height)
	}
	return most
}

// FarHeight returns the height of the highest layout of any rank's far memory, in bytes, or 0 without offloads.
func (p *Memory) FarHeight() (most int64) {
	for i := range p.Ranks {
		if far := p.Ranks[i].Far; far != nil {
			most = max(most, far.Height)
		}
	}
	return most
}

// Total returns the largest sum, over all ranks, of the height of the rank's layout and its resident bytes
// (Config.Resident).
func (p *Memory) Total() (most int64) {
	for rank := range p.Ranks {
		most = max(most, p.Ranks[rank].Height+p.cfg.resident(p.plan.Placement, rank))
	}
	return most
}

func (c *Config) resident(place schedule.Placement, rank int) int64 {
	if c.Resident == nil {
		return 0
	}
	return c.Resident(place, rank)
}

// checkBudget returns an error if a rank exceeds the budget. The error lists the owners at the
// peak and the alternatives that would fit.
func (p *Memory) checkBudget(ctx context.Context) error {
	var faults []error
	for i := range p.Ranks {
		r, resident := &p.Ranks[i], p.cfg.resident(p.plan.Placement, i)
		if total := r.Height + resident; p.cfg.Budget > 0 && total > p.cfg.Budget {
			held := ""
			if resident > 0 {
				held = fmt.Sprintf(" and has %d resident", resident)
			}
			faults = append(faults, fmt.Errorf("rank %d needs %d bytes for a step%s, %d more than the %d that it has; alive at the peak: %s",
				i, r.Height, held, total-p.cfg.Budget, p.cfg.Budget, r.Peak))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	faults[0] = diagnostic.Errorf(ErrBudget, "%w", faults[0])
	if fitting := p.fitting(ctx); fitting != nil {
		faults = append(faults, fitting)
	}
	return errors.Join(faults...)
}

const (
	// alternativeWork is the work spent on the search for an alternative's layout, over all ranks.
	alternativeWork = 400_000
	// maxFitting is the largest number of alternatives that an error lists.
	maxFitting = 6
)

// fitting returns an error that lists the alternatives that fit and have the fewest changes. The ones
// that need the most memory come first, because they are closest to the plan. If none fits, the error names
// the smallest. It returns nil if no alternative can be weighed.
func (p *Memory) fitting(ctx context.Context) error {
	left := slices.SortedStableFunc(slices.Values(p.cfg.Instead), func(a, b Alternative) int { return cmp.Compare(a.Changes, b.Changes) })
	var least *Alternative
	for len(left) > 0 {
		changes := left[0].Changes
		n := 1
		for n < len(left) && left[n].Changes == changes {
			n++
		}
		var fits []Alternative
		for _, a := range Weigh(left[:n], p.cfg) {
			if least == nil || a.Bound < least.Bound {
				least = &a
			}
			// A quick layout may fit; if not, search.
			for _, work := range []int64{1, max(alternativeWork/int64(len(p.Ranks)), 1)} {
				if a.Bound <= p.cfg.Budget && a.LayOut(ctx, work) == nil && a.Bytes <= p.cfg.Budget {
					fits = append(fits, a)
					break
				}
			}
		}
		if len(fits) > 0 {
			slices.SortStableFunc(fits, func(a, b Alternative) int { return cmp.Compare(b.Bytes, a.Bytes) })
			var list []string
			for i, a := range fits {
				if i == maxFitting {
					list = append(list, fmt.Sprintf("and %d more", len(fits)-i))
					break
				}
				list = append(list, fmt.Sprintf("%s (%d bytes)", a.Name, a.Bytes))
			}
			return fmt.Errorf("what would fit: %s", strings.Join(list, "; "))
		}
		left = left[n:]
	}
	if least == nil {
		return nil
	}
	return fmt.Errorf("none of the alternatives fits; the smallest is %s, which needs at least %d bytes: use smaller microbatches, stages that recompute, or more ranks",
		least.Name, least.Bound)
}

// String returns the largest owners at the peak with their bytes, and the sum of the bytes of the others.
func (p Peak) String() string {
	const most = 6
	var b strings.Builder
	for i, o := range p.Owners {
		if i == most {
			var rest int64
			for _, o := range p.Owners[most:] {
				rest += o.Bytes
			}
			fmt.Fprintf(&b, ", and %d bytes of %d others", rest, len(p.Owners)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(o.String())
	}
	return b.String()
}

// String returns the owner, its class, its bytes and its microbatches.
func (o Owner) String() string {
	text := fmt.Sprintf("%s (%v) %d bytes", o.Name, o.Class, o.Bytes)
	switch {
	case o.First < 0:
		return text
	case o.First == o.Last:
		return fmt.Sprintf("%s of microbatch %d", text, o.First)
	}
	return fmt.Sprintf("%s of %d microbatches (%d to %d)", text, o.Count, o.First, o.Last)
}
