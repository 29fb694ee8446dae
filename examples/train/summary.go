package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/trainer/units"
)

// summary is what a run came to, as -json writes it. Losses are nats per byte,
// sizes bytes. A loss that is not known is null.
type summary struct {
	Schema       int    `json:"schema"` // 1
	Data         string `json:"data"`
	DataBytes    int64  `json:"data_bytes"`
	DataSHA256   string `json:"data_sha256"`
	Plan         string `json:"plan"`
	Group        int    `json:"group"` // 0: the plan's own
	Ranks        int    `json:"ranks"`
	Stages       int    `json:"stages"`
	Microbatches int    `json:"microbatches"`
	Sequence     int    `json:"seq"`
	Width        int    `json:"width"`
	Layers       int    `json:"layers"`
	Heads        int    `json:"heads"`
	FP8          string `json:"fp8"` // the recipe, or none
	FP8Attention bool   `json:"fp8_attention"`
	Seed         uint64 `json:"seed"`
	Parameters   int64  `json:"parameters"`
	ModelBytes   int64  `json:"model_bytes"` // weights, gradients and moments
	Steps        int    `json:"steps"`       // that the weights have seen
	ResumedAt    int    `json:"resumed_at"`  // of which before this run
	Interrupted  bool   `json:"interrupted"`
	// Ascends says that the backward takes microbatches in ascending order, so that
	// weights are bit-equal to those of every other such plan.
	Ascends bool `json:"ascends"`

	LossTrainFirst      *float64 `json:"loss_train_first"`
	LossTrain           *float64 `json:"loss_train"` // of the last step
	LossHeldoutFirst    *float64 `json:"loss_heldout_first"`
	LossHeldout         *float64 `json:"loss_heldout"` // of the last evaluation
	LossHeldoutStandard *float64 `json:"loss_heldout_standard_error"`
	LossFrequencies     float64  `json:"loss_byte_frequencies"` // of who knows only how frequent each byte of the text is
	HeldoutStep         int      `json:"heldout_step"`          // steps that the evaluated weights had seen

	// MakespanSeconds is from the first computation of a step to the end of its last one,
	// on average, and BubbleMakespan the part of it in which the busiest rank did not
	// work. Simulated is the same of a simulated step, null without -costs.
	MakespanSeconds float64       `json:"makespan_seconds"`
	BubbleMakespan  float64       `json:"bubble_makespan"`
	Simulated       *simulated    `json:"simulated"`
	ByRank          []rankSummary `json:"by_rank"`

	TokensPerSecond float64 `json:"tokens_per_second"`
	Seconds         float64 `json:"seconds"`               // in training steps
	PeakBytes       int64   `json:"peak_bytes"`            // of the rank that had most
	LiveBytes       int64   `json:"live_bytes_after_step"` // likewise
	// PlannedBytes is what a step has set aside on the rank that needs most, beside the
	// model, and BoundBytes what it cannot do without; Gap is how far the one is above the
	// other, as a fraction. They and PlannedPeakByClass, what is live there at the planned
	// peak, are null where memory was not planned.
	PlannedBytes       *int64           `json:"planned_bytes"`
	BoundBytes         *int64           `json:"bound_bytes"`
	Gap                *float64         `json:"gap"`
	PlannedPeakByClass map[string]int64 `json:"planned_peak_by_class"`
	// PeakByClass is PeakBytes by class: what was live at that moment, workspaces and all.
	PeakByClass map[string]int64 `json:"peak_by_class"`
	// FP8Roles is what the tensors in FP8 met in the steps of this run, by role: elements
	// that were saturated, became zero or were not finite, and the range of scales. It is null
	// in float32.
	FP8Roles      map[string]roleSummary `json:"fp8_roles"`
	Growth        int64                  `json:"growth_per_microbatch_bytes"` // the largest
	GrowthOver    int64                  `json:"growth_over_microbatches"`    // how many were audited
	Allocations   uint64                 `json:"allocations_per_step"`        // on the Go heap, the median of the last steps
	WeightsSHA256 string                 `json:"weights_sha256"`
	RunFolder     string                 `json:"run"`
	Checkpoint    string                 `json:"checkpoint"`
	BooksAudited  int                    `json:"books_audited"`
}

// summary returns what the run came to, and the first error on the way.
func (t *training) summary(ended error) (*summary, error) {
	r, o := t.record, t.opts
	peak := t.trainer.peaks[t.trainer.fullest()]
	digest, err := t.trainer.digest()
	s := &summary{
		Schema: 1,
		Data:   t.data.Name, DataBytes: int64(len(t.data.Bytes)), DataSHA256: t.sum,
		Plan: o.plan, Group: o.group, Ranks: o.ranks, Stages: o.stages, Microbatches: o.microbatches, Sequence: o.sequence,
		Width: o.model.Width, Layers: o.model.Layers, Heads: o.model.Heads, FP8: o.fp8, FP8Attention: o.model.FP8Attention, Seed: o.model.Seed,
		Parameters: t.trainer.weights(), ModelBytes: t.trainer.modelBytes(),
		Steps: t.trainer.done, ResumedAt: t.first, Interrupted: errors.Is(ended, errInterrupted),
		Ascends:         o.ascends(),
		MakespanSeconds: r.clocks.mean(r.clocks.makespan), BubbleMakespan: r.clocks.bubble(),
		Simulated: t.simulated(), ByRank: t.byRank(),
		LossTrainFirst: known(r.firstLoss, r.steps > 0), LossTrain: known(r.lastLoss, r.steps > 0),
		LossHeldoutFirst:    known(r.firstScore.loss, r.firstScore.known),
		LossHeldout:         known(r.lastScore.loss, r.lastScore.known),
		LossHeldoutStandard: known(r.lastScore.standard, r.lastScore.known),
		LossFrequencies:     t.data.Entropy(),
		HeldoutStep:         r.lastScore.step,
		TokensPerSecond:     r.speed(), Seconds: r.seconds,
		PeakBytes: peak.Total(), PeakByClass: byName(peak), LiveBytes: r.liveAfter,
		Growth: r.growth(), GrowthOver: r.microbatches(), Allocations: r.allocationsPerStep(),
		FP8Roles:      t.trainer.fp8Roles(),
		WeightsSHA256: digest, RunFolder: t.folder.path, Checkpoint: o.checkpoint, BooksAudited: r.books,
	}
	if p := t.trainer.planned(); p != nil {
		s.PlannedBytes, s.BoundBytes, s.Gap, s.PlannedPeakByClass = &p.planned, &p.bound, &p.gap, byName(p.classes)
	}
	return s, err
}

// byName returns bytes by the names that the memory log has for the classes.
func byName(classes memory.ByClass) map[string]int64 {
	out := map[string]int64{}
	for class, bytes := range classes {
		out[memory.Class(class).String()] = bytes
	}
	return out
}

// known returns x for JSON, which has no NaN.
func known(x float64, ok bool) *float64 {
	if !ok || math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

func (s *summary) write(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(s)
}

// table writes the end of a run for people.
func (s *summary) table(w io.Writer, f *folder) error {
	loss := func(x *float64) string {
		if x == nil {
			return "-"
		}
		return fmt.Sprintf("%.4f", *x)
	}
	last := loss(s.LossHeldout)
	if s.LossHeldoutStandard != nil {
		last += fmt.Sprintf(" ± %.4f", *s.LossHeldoutStandard)
	}
	if s.LossHeldout != nil && s.HeldoutStep != s.Steps {
		last += fmt.Sprintf(" (after step %d)", s.HeldoutStep)
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "\nloss, nats per byte\tfirst\tlast\n")
	fmt.Fprintf(t, "  train\t%s\t%s\n", loss(s.LossTrainFirst), loss(s.LossTrain))
	fmt.Fprintf(t, "  held out\t%s\t%s\n", loss(s.LossHeldoutFirst), last)
	fmt.Fprintf(t, "  byte frequencies alone\t\t%.4f\n", s.LossFrequencies)
	if err := t.Flush(); err != nil {
		return err
	}
	if err := s.ranks(w); err != nil {
		return err
	}
	t = tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	fmt.Fprintln(t)
	onRanks := ""
	if s.Ranks > 1 {
		onRanks = fmt.Sprintf(" on %d ranks", s.Ranks)
		row("step", "makespan %s, bubble %s%s", units.Seconds(s.MakespanSeconds), units.Percent(s.BubbleMakespan), s.beside())
	}
	row("growth per microbatch", "%s bytes over %s microbatches%s", units.Count(s.Growth), units.Count(s.GrowthOver), onRanks)
	row("peak", "%s (%s bytes)", units.Size(s.PeakBytes), units.Count(s.PeakBytes))
	if s.PlannedBytes != nil {
		row("planned for a step", "%s (%s bytes); at least %s are needed, gap %s",
			units.Size(*s.PlannedBytes), units.Count(*s.PlannedBytes), units.Count(*s.BoundBytes), units.Percent(*s.Gap))
	}
	row("live after a step", "%s (%s bytes)", units.Size(s.LiveBytes), units.Count(s.LiveBytes))
	row("allocations per step", "%s on the Go heap", units.Count(int64(s.Allocations)))
	row("speed", "%s tokens/s", units.Count(int64(math.Round(s.TokensPerSecond))))
	row("weights", "sha256 %s", s.WeightsSHA256)
	fmt.Fprintln(t)
	row("memory log", "%s", f.memory.Path())
	row("losses", "%s", f.losses.Path())
	row("page", "%s", f.page)
	if s.Checkpoint != "" {
		row("checkpoint", "%s", s.Checkpoint)
	}
	return t.Flush()
}
