package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/weir-ml/weir/trainer/costs"
	"github.com/weir-ml/weir/trainer/report"
	"github.com/weir-ml/weir/trainer/units"
)

// simulated is what a step comes to by the costs of -costs.
type simulated struct {
	MakespanSeconds float64 `json:"makespan_seconds"`
	BubbleMakespan  float64 `json:"bubble_makespan"`
}

// rankSummary is what a run came to on one rank.
type rankSummary struct {
	Rank       int   `json:"rank"`
	Stages     []int `json:"stages"`
	ModelBytes int64 `json:"model_bytes"`
	PeakBytes  int64 `json:"peak_bytes"`
	// PeakByClass is PeakBytes by class: what was live at that moment.
	PeakByClass map[string]int64 `json:"peak_by_class"`
	Growth      int64            `json:"growth_per_microbatch_bytes"`
	WorkSeconds float64          `json:"work_seconds"` // of a step, on average
	WaitSeconds float64          `json:"wait_seconds"` // likewise
	// SimulatedPeakBytes has no entries and no workspaces; it is null without -costs.
	SimulatedPeakBytes *int64 `json:"simulated_peak_bytes"`
}

// simulated returns what the costs say of a step, nil without.
func (t *training) simulated() *simulated {
	report := t.record.clocks.simulated
	if report == nil {
		return nil
	}
	seconds, _ := costs.Seconds(t.opts.priced, report.Makespan)
	return &simulated{seconds, report.BubbleMakespan()}
}

// byRank returns what the run came to on each rank.
func (t *training) byRank() []rankSummary {
	list, clocks := make([]rankSummary, t.opts.ranks), &t.record.clocks
	for rank := range list {
		line := rankSummary{
			Rank: rank, Stages: t.opts.placement.On(rank), ModelBytes: t.trainer.resident[rank],
			PeakBytes: t.trainer.peaks[rank].Total(), PeakByClass: byName(t.trainer.peaks[rank]), Growth: t.record.ranks[rank].growth,
		}
		if clocks.steps > 0 {
			line.WorkSeconds, line.WaitSeconds = clocks.mean(clocks.work[rank]), clocks.mean(clocks.wait[rank])
		}
		if clocks.simulated != nil {
			line.SimulatedPeakBytes = &clocks.simulated.Ranks[rank].Peak
		}
		list[rank] = line
	}
	return list
}

// beside is what the simulation says, after what was measured.
func (s *summary) beside() string {
	if s.Simulated == nil {
		return ""
	}
	return fmt.Sprintf("; simulated %s, bubble %s", units.Seconds(s.Simulated.MakespanSeconds), units.Percent(s.Simulated.BubbleMakespan))
}

// ranks writes a line for each rank where there are several.
func (s *summary) ranks(w io.Writer) error {
	if s.Ranks == 1 {
		return nil
	}
	table := s.rankTable()
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t)
	for _, row := range append([][]string{table.Head}, table.Rows...) {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// rankTable is what the ranks came to, a row for each.
func (s *summary) rankTable() report.Table {
	table := report.Table{Title: "Ranks", Head: []string{"rank", "stages", "model", "peak", "work", "wait"}}
	if s.Simulated != nil {
		table.Head = append(table.Head, "peak, simulated")
	}
	for _, r := range s.ByRank {
		row := []string{
			strconv.Itoa(r.Rank), strings.Trim(fmt.Sprint(r.Stages), "[]"), units.Size(r.ModelBytes), units.Size(r.PeakBytes),
			units.Seconds(r.WorkSeconds), units.Seconds(r.WaitSeconds),
		}
		if r.SimulatedPeakBytes != nil {
			row = append(row, units.Size(*r.SimulatedPeakBytes))
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}
