package memreport

import (
	"slices"
	"strconv"

	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/report"
)

// rankCells formats the columns of the rank tables, by column head.
var rankCells = map[string]func(*RankSummary) string{
	"rank":                  func(r *RankSummary) string { return strconv.Itoa(r.Rank) },
	"records":               func(r *RankSummary) string { return units.Count(r.Records) },
	"level":                 func(r *RankSummary) string { return sizeRange(r.LevelLowest, r.LevelHighest) },
	"peak":                  func(r *RankSummary) string { return units.Size(r.Peak) },
	"planned":               (*RankSummary).plannedPeak, // in a narrow table
	"planned peak":          (*RankSummary).plannedPeak,
	"far peak":              func(r *RankSummary) string { return units.Size(r.FarPeak) },
	"reserved":              func(r *RankSummary) string { return units.Size(r.Reserved) },
	"growth per microbatch": func(r *RankSummary) string { return r.Growth.cell() },
	"begins": func(r *RankSummary) string {
		if !r.Growth.Grows() {
			return "-"
		}
		return r.Growth.First.cell()
	},
	"replica": func(r *RankSummary) string {
		if r.Replica == nil {
			return "-"
		}
		return strconv.Itoa(*r.Replica)
	},
}

func (r *RankSummary) plannedPeak() string {
	if r.Planned == nil {
		return "-"
	}
	return units.Size(r.Planned.Peak)
}

// rankTable returns a table with a row for each rank and the named columns. It omits planned, far
// peak and replica if no rank has them.
func (s *Summary) rankTable(head ...string) report.Table {
	absent := map[string]bool{
		"planned": !s.planned(), "far peak": !s.far(),
		"replica": !slices.ContainsFunc(s.Ranks, func(r RankSummary) bool { return r.Replica != nil }),
	}
	t := report.Table{Title: "Ranks", Head: slices.DeleteFunc(head, func(name string) bool { return absent[name] })}
	for i := range s.Ranks {
		var row []string
		for _, name := range t.Head {
			row = append(row, rankCells[name](&s.Ranks[i]))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// planned reports whether any rank has a plan.
func (s *Summary) planned() bool {
	return slices.ContainsFunc(s.Ranks, func(r RankSummary) bool { return r.Planned != nil })
}

// far reports whether any rank has far memory.
func (s *Summary) far() bool {
	return slices.ContainsFunc(s.Ranks, func(r RankSummary) bool { return r.FarPeak > 0 })
}
