package memreport

import (
	"slices"
	"strings"
)

// Summary is the summary of a log. Sizes are bytes.
type Summary struct {
	Schema  int    `json:"schema"` // 2
	Form    string `json:"form"`   // format of the log's lines
	Records int64  `json:"records"`
	Steps   int64  `json:"steps"` // the maximum over ranks
	// Microbatches is the maximum number of records that a rank has in a step, or its highest
	// microbatch plus 1 if the log contains only every n-th record.
	Microbatches int64         `json:"microbatches"`
	Ranks        []RankSummary `json:"per_rank"`
	// Growth is the growth of the rank that grows most.
	Growth     Growth `json:"growth"`
	GrowthRank *int   `json:"growth_rank,omitempty"` // nil if nothing grows
	// Owners are the owners of live memory at a failure, the largest first, if the log was
	// written by a failed run.
	Owners []Owner `json:"owners,omitempty"`
	// FP8 summarizes low-precision tensors by role, if the log has them.
	FP8 []FP8 `json:"fp8,omitempty"`
}

// RankSummary is the summary of one rank. The level is the number of live bytes after a microbatch.
type RankSummary struct {
	Rank         int    `json:"rank"`
	Replica      *int   `json:"replica,omitempty"` // nil if there is only one replica
	Records      int64  `json:"records"`
	Steps        int64  `json:"steps"`
	LevelFirst   int64  `json:"level_first"`
	LevelLast    int64  `json:"level_last"`
	LevelLowest  int64  `json:"level_lowest"`
	LevelHighest int64  `json:"level_highest"`
	Peak         int64  `json:"peak"`
	PeakAt       At     `json:"peak_at"`
	Reserved     int64  `json:"reserved"`
	Growth       Growth `json:"growth"`
	// FarPeak is the peak of far memory, and FarPlanned the planned peak; 0 if there is none.
	FarPeak    int64 `json:"far_peak,omitempty"`
	FarPlanned int64 `json:"far_planned,omitempty"`
	// Planned is nil if the log has no plan.
	Planned *Planned `json:"planned,omitempty"`
	// PeakOwners are the owners at the peak, or at the planned peak if there is a plan, the
	// largest first, if the log has them. They exclude Resident memory.
	PeakOwners []Owner `json:"owners_at_peak,omitempty"`
	// Classes are the bytes by class at the highest level, without zeros.
	Classes map[string]int64 `json:"classes,omitempty"`
	// PeakClasses is Peak by class, without zeros; it is empty if the log does not report it.
	PeakClasses map[string]int64 `json:"peak_classes,omitempty"`
}

// At identifies a record by its microbatch.
type At struct {
	Step       int64 `json:"step"`
	Microbatch int   `json:"microbatch"`
}

// Planned compares measurements with the plan.
type Planned struct {
	Peak int64 `json:"peak"`
	// Most and Least are the extremes of the measured level minus the planned level.
	Most  int64 `json:"level_most_above"`
	Least int64 `json:"level_least_above"`
}

// Summary returns the summary of the log so far.
func (l *Log) Summary() *Summary {
	s := &Summary{Schema: 2, Form: l.form(), Records: l.records, Owners: l.owners.sorted(), FP8: slices.Clone(l.roles)}
	slices.SortFunc(s.FP8, func(a, b FP8) int { return strings.Compare(a.Role, b.Role) })
	for _, r := range l.sorted() {
		s.Steps, s.Microbatches = max(s.Steps, r.totals.Steps), max(s.Microbatches, r.microbatches())
		one := r.summary()
		if g := &one.Growth; g.From != "books" && g.largest(r.microbatches()) < float64(l.Least) {
			*g = Growth{}
		}
		one.PeakOwners = l.peaks[one.Rank].sorted()
		if one.Growth.Grows() && (s.GrowthRank == nil || one.Growth.largest(r.microbatches()) > s.Growth.largest(r.microbatches())) {
			s.Growth, s.GrowthRank = one.Growth, new(one.Rank)
		}
		s.Ranks = append(s.Ranks, one)
	}
	return s
}

// focus returns the most important rank: the rank that grows most, or the rank with the highest
// peak; nil if there is none.
func (s *Summary) focus() (best *RankSummary) {
	for i := range s.Ranks {
		one := &s.Ranks[i]
		if best == nil || s.GrowthRank == nil && one.Peak > best.Peak || s.GrowthRank != nil && one.Rank == *s.GrowthRank {
			best = one
		}
	}
	return best
}

// largest returns the growth per microbatch within steps or between steps, whichever is larger.
func (g *Growth) largest(microbatches int64) float64 {
	return max(g.PerMicrobatch, g.PerStep/float64(max(microbatches, 1)))
}

// summary returns the rank's summary so far, without the owners at its peak.
func (r *rankTotals) summary() RankSummary {
	s := r.totals
	s.Growth, s.Classes, s.PeakClasses = r.growth(), r.classes.Named(), r.peakClasses.Named()
	if s.Planned != nil {
		s.Planned = new(*s.Planned)
	}
	return s
}
