package metrics

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/report"
)

// Summary is the summary of a run. Sizes are bytes. Unknown values are null.
type Summary struct {
	Ranks      int   `json:"ranks"`
	ModelBytes int64 `json:"model_bytes"` // live bytes before the first step, on all ranks

	LossTrainFirst      *float64 `json:"loss_train_first"`
	LossTrain           *float64 `json:"loss_train"` // loss of the last step
	LossHeldoutFirst    *float64 `json:"loss_heldout_first"`
	LossHeldout         *float64 `json:"loss_heldout"` // loss of the last evaluation
	LossHeldoutStandard *float64 `json:"loss_heldout_standard_error"`
	HeldoutStep         int      `json:"heldout_step"` // number of steps before the evaluation

	// MakespanSeconds is the mean time from the start of a step's first computation to the end of
	// its last. BubbleMakespan is the fraction of that time during which the busiest rank did not
	// work. Simulated has the same figures for a simulated step; it is null without a simulation.
	MakespanSeconds float64       `json:"makespan_seconds"`
	BubbleMakespan  float64       `json:"bubble_makespan"`
	Simulated       *Simulated    `json:"simulated"`
	ByRank          []RankSummary `json:"per_rank"`

	TokensPerSecond float64 `json:"tokens_per_second"`
	Seconds         float64 `json:"seconds"`               // time spent in training steps
	PeakBytes       int64   `json:"peak_bytes"`            // the maximum of all ranks
	LiveBytes       int64   `json:"live_bytes_after_step"` // the maximum of all ranks
	// PlannedBytes is the reservation for a step on the rank that needs the most, without the model. BoundBytes is
	// its lower bound, and Gap is the relative difference. PlannedPeakByClass holds the live bytes on that rank at
	// the planned peak. All four are null if memory was not planned.
	PlannedBytes       *int64           `json:"planned_bytes"`
	BoundBytes         *int64           `json:"bound_bytes"`
	Gap                *float64         `json:"gap"`
	PlannedPeakByClass map[string]int64 `json:"planned_peak_by_class"`
	// PeakByClass breaks PeakBytes down by class, including workspaces.
	PeakByClass map[string]int64 `json:"peak_by_class"`
	Far         *FarSummary      `json:"far"`      // null if the run offloads nothing
	Replicas    *Replicas        `json:"replicas"` // null for one replica
	// FP8Roles summarizes, by role, the FP8 tensors in the steps of this run. It is null if there
	// are none.
	FP8Roles     map[string]Role `json:"fp8_roles"`
	Growth       int64           `json:"growth_per_microbatch_bytes"` // the largest
	GrowthOver   int64           `json:"growth_over_microbatches"`    // number of audited microbatches of the rank with the most
	Allocations  uint64          `json:"allocations_per_step"`        // on the Go heap; the median over the last steps
	BooksAudited int             `json:"books_audited"`
	// AuditedSteps is the number of steps in which a microbatch was computed again, with the same bits.
	AuditedSteps int `json:"audited_steps"`

	how string // description of the memory plan
}

// FarSummary has the figures of far memory, to which a run offloads saved state.
type FarSummary struct {
	PeakBytes    int64 `json:"peak_bytes"`    // the maximum of all ranks
	PlannedBytes int64 `json:"planned_bytes"` // the planned peak, or a bound if the plan is for several shapes
	Waits        int64 `json:"waits"`         // number of actions that waited for a copy, on all ranks in all steps
}

// String describes far memory in a line.
func (f *FarSummary) String() string {
	return fmt.Sprintf("%s at the peak, planned %s; %s for copies", units.Exactly(f.PeakBytes), units.Exactly(f.PlannedBytes), units.Number(f.Waits, "wait"))
}

// Replicas has the durations of gradient reductions and weight gathers, which run concurrently with
// the ranks' actions, and the time that ranks waited for them. All are summed over ranks and steps.
type Replicas struct {
	ReduceSeconds float64 `json:"reduce_seconds"`
	GatherSeconds float64 `json:"gather_seconds"`
	WaitSeconds   float64 `json:"wait_seconds"`
}

// String describes the reductions and gathers in a line.
func (r *Replicas) String() string {
	all := r.ReduceSeconds + r.GatherSeconds
	return fmt.Sprintf("reductions %s, gathers %s, summed over ranks and steps; %s hidden behind actions",
		units.Seconds(r.ReduceSeconds), units.Seconds(r.GatherSeconds), units.Percent(max(0, 1-r.WaitSeconds/all), 1))
}

// Simulated has the figures of a simulated step.
type Simulated struct {
	MakespanSeconds float64 `json:"makespan_seconds"`
	BubbleMakespan  float64 `json:"bubble_makespan"`
}

// RankSummary is the summary of one rank.
type RankSummary struct {
	Rank       int   `json:"rank"`
	Stages     []int `json:"stage_list"`
	ModelBytes int64 `json:"model_bytes"`
	PeakBytes  int64 `json:"peak_bytes"`
	// PeakByClass breaks PeakBytes down by class.
	PeakByClass map[string]int64 `json:"peak_by_class"`
	Growth      int64            `json:"growth_per_microbatch_bytes"`
	WorkSeconds float64          `json:"work_seconds"` // of a step, mean
	WaitSeconds float64          `json:"wait_seconds"` // of a step, mean
	// SimulatedPeakBytes excludes entries and workspaces; it is null without a simulation.
	SimulatedPeakBytes *int64 `json:"simulated_peak_bytes"`
}

// Role summarizes the tensors of one role over the steps of a run: how many elements were
// saturated, became zero or were not finite, and the range of scales.
type Role struct {
	Tensors     int     `json:"tensors"`
	Saturated   uint64  `json:"saturated"`
	Underflowed uint64  `json:"underflowed"`
	NonFinite   uint64  `json:"non_finite"`
	LeastScale  float32 `json:"least_scale"`
	MostScale   float32 `json:"most_scale"`
}

// Summary returns the summary of the run so far. Begin must have been called.
func (r *Recorder) Summary() Summary {
	clocks, peak := &r.clocks, r.ranks[r.fullest()].peak
	s := Summary{
		Ranks:          len(r.ranks),
		LossTrainFirst: known(r.losses[0], r.steps > 0), LossTrain: known(r.losses[1], r.steps > 0),
		LossHeldoutFirst: known(r.scores[0].Loss, r.scores[0].Known), LossHeldout: known(r.scores[1].Loss, r.scores[1].Known),
		LossHeldoutStandard: known(r.scores[1].Standard, r.scores[1].Known && r.scores[1].Standard != 0), HeldoutStep: r.scores[1].Step,
		MakespanSeconds: clocks.mean(clocks.makespan), BubbleMakespan: clocks.bubble(),
		TokensPerSecond: r.TokensPerSecond(), Seconds: r.seconds,
		PeakBytes: peak.Total(), PeakByClass: byName(peak),
		Growth: r.Growth(), Allocations: r.allocationsPerStep(), AuditedSteps: r.audited,
	}
	if r.replicas.ReduceSeconds+r.replicas.GatherSeconds > 0 {
		s.Replicas = new(r.replicas)
	}
	if r.far.PeakBytes > 0 {
		s.Far = new(r.far)
	}
	if r.last != nil {
		s.BooksAudited, s.LiveBytes = r.last.Books, r.last.Live
	}
	if simulated := clocks.simulated; simulated != nil {
		s.Simulated = &Simulated{r.Seconds(simulated.Makespan), simulated.BubbleMakespan()}
	}
	for i := range r.ranks {
		rank := &r.ranks[i]
		s.ModelBytes += rank.model
		growth, microbatches := r.memory.Growth(i)
		s.GrowthOver = max(s.GrowthOver, microbatches)
		one := RankSummary{Rank: i, ModelBytes: rank.model, PeakBytes: rank.peak.Total(), PeakByClass: byName(rank.peak), Growth: growth}
		if r.Stages != nil {
			one.Stages = r.Stages[i]
		}
		if clocks.steps > 0 {
			one.WorkSeconds, one.WaitSeconds = clocks.mean(clocks.work[i]), clocks.mean(clocks.wait[i])
		}
		if s.Simulated != nil {
			one.SimulatedPeakBytes = &clocks.simulated.Ranks[i%len(clocks.simulated.Ranks)].Peak // all replicas are simulated alike
		}
		s.ByRank = append(s.ByRank, one)
	}
	r.planned(&s)
	for role, c := range r.met.All() {
		if s.FP8Roles == nil {
			s.FP8Roles = map[string]Role{}
		}
		s.FP8Roles[role.String()] = Role{c.Tensors, c.Saturated, c.Underflowed, c.NonFinite, c.Least, c.Greatest}
	}
	return s
}

// planned adds the figures of the memory plan for the rank that needs the most.
func (r *Recorder) planned(s *Summary) {
	if r.Plan == nil {
		return
	}
	most := 0
	for i := range r.Plan.Ranks {
		if r.Plan.Ranks[i].Height > r.Plan.Ranks[most].Height {
			most = i
		}
		if far := r.Plan.Ranks[i].Far; far != nil && s.Far != nil {
			s.Far.PlannedBytes = max(s.Far.PlannedBytes, far.Peak.Bytes)
		}
	}
	rank := &r.Plan.Ranks[most]
	gap, classes := rank.Gap(), rank.Peak.Classes
	classes[memory.Resident] += r.ranks[most].model
	s.PlannedBytes, s.BoundBytes, s.Gap, s.PlannedPeakByClass, s.how = &rank.Height, &rank.Bound, &gap, byName(classes), rank.Sizes
}

// byName maps the classes' names in the memory log to bytes.
func byName(classes memory.ByClass) map[string]int64 {
	out := map[string]int64{}
	for class, bytes := range classes {
		out[memory.Class(class).String()] = bytes
	}
	return out
}

// known returns x for JSON, or nil (null) if it is unknown, because JSON has no NaN.
func known(x float64, ok bool) *float64 {
	if !ok || math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// Memory describes the reservation for a step in a line. It returns "" if memory is not planned.
func (s *Summary) Memory() string {
	if s.PlannedBytes == nil {
		return ""
	}
	onRank := ""
	if s.Ranks > 1 {
		onRank = " on the rank that needs most"
	}
	return fmt.Sprintf("planned: %s bytes for a step%s; at least %s are needed, gap %s; %s",
		units.Count(*s.PlannedBytes), onRank, units.Count(*s.BoundBytes), units.Percent(*s.Gap, 1), s.how)
}

// Rows returns the summary as pairs of a name and a value.
func (s *Summary) Rows() (rows [][]string) {
	row := func(name, format string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
	}
	onRanks := ""
	if s.Ranks > 1 {
		onRanks = fmt.Sprintf(" on %d ranks", s.Ranks)
		row("step", "makespan %s, bubble %s%s", units.Seconds(s.MakespanSeconds), units.Percent(s.BubbleMakespan, 1), s.simulated())
	}
	row("growth per microbatch", "%s bytes over %s microbatches%s", units.Count(s.Growth), units.Count(s.GrowthOver), onRanks)
	row("peak", "%s", units.Exactly(s.PeakBytes))
	if s.PlannedBytes != nil {
		row("planned for a step", "%s; at least %s are needed, gap %s", units.Exactly(*s.PlannedBytes), units.Count(*s.BoundBytes), units.Percent(*s.Gap, 1))
	}
	if s.Far != nil {
		row("far memory", "%v", s.Far)
	}
	if s.Replicas != nil {
		row("replicas", "%v", s.Replicas)
	}
	row("live after a step", "%s", units.Exactly(s.LiveBytes))
	if s.AuditedSteps > 0 {
		row("audits", "in %s a microbatch was computed again, with the same bits", units.Number(s.AuditedSteps, "step"))
	}
	row("allocations per step", "%s on the Go heap", units.Count(int64(s.Allocations)))
	row("speed", "%s tokens/s", units.Count(int64(math.Round(s.TokensPerSecond))))
	return rows
}

// simulated describes the simulation, for use after the measurement.
func (s *Summary) simulated() string {
	if s.Simulated == nil {
		return ""
	}
	return fmt.Sprintf("; simulated %s, bubble %s", units.Seconds(s.Simulated.MakespanSeconds), units.Percent(s.Simulated.BubbleMakespan, 1))
}

// RankTable returns a table with a row for each rank.
func (s *Summary) RankTable() report.Table {
	table := report.Table{Title: "Ranks, and a step on them", Head: []string{"rank", "stages", "model", "peak", "work", "wait"}}
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
