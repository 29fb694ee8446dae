package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/job"
	"github.com/weir-ml/weir/trainer/metrics"
	"github.com/weir-ml/weir/trainer/report"
)

// summary is the result of a run, as -json writes it. Losses are in nats per byte or token,
// sizes in bytes. An unknown loss is null.
type summary struct {
	Schema       int    `json:"schema"` // 1
	Data         string `json:"data"`
	DataBytes    int64  `json:"data_bytes"`
	DataSHA256   string `json:"data_sha256"`
	Plan         string `json:"plan"`
	Group        int    `json:"group"` // 0: the plan's own
	Stages       int    `json:"stages"`
	Microbatches int    `json:"microbatches"`  // of all replicas
	ReplicaCount int    `json:"replica_count"` // ranks counts the ranks of all replicas
	Shard        int    `json:"shard"`
	Gathered     int    `json:"gathered"` // 0: the fewest that the plan allows
	Sequence     int    `json:"seq"`
	Width        int    `json:"width"`
	Layers       int    `json:"layers"`
	Heads        int    `json:"heads"`
	FP8          string `json:"fp8"` // the recipe, or none
	FP8Attention bool   `json:"fp8_attention"`
	Seed         uint64 `json:"seed"`
	Parameters   int64  `json:"parameters"`
	Steps        int    `json:"steps"`      // that have updated the weights
	ResumedAt    int    `json:"resumed_at"` // how many of them before this run
	Interrupted  bool   `json:"interrupted"`
	// AscendingBackward reports whether the backward processes microbatches in ascending order. All such
	// plans give the same weights, bit for bit.
	AscendingBackward bool `json:"ascends"`
	metrics.Summary
	Unit            string   `json:"unit"`                  // byte or token; losses are in nats per unit
	LossFrequencies *float64 `json:"loss_byte_frequencies"` // loss of a model that only uses the frequency of each byte of the text
	WeightsSHA256   string   `json:"weights_sha256"`
	RunFolder       string   `json:"run"`
	Checkpoint      string   `json:"checkpoint"`
}

// summary returns the result of the run. digest is the hash of its weights.
func (t *trainer) summary(ended error, digest string) *summary {
	o := t.opts
	var frequencies *float64
	if nats, known := t.data.baselines()[frequenciesAlone]; known {
		frequencies = &nats
	}
	return &summary{
		Schema: 1,
		Data:   t.data.name, DataBytes: int64(t.data.len() * max(tokenBytes[o.tokens], 1)), DataSHA256: t.data.sum,
		Plan: o.Plan, Group: o.Group, Stages: o.Stages, Microbatches: o.Microbatches, ReplicaCount: o.Replicas, Shard: o.Shard, Gathered: o.Gathered, Sequence: o.sequence,
		Width: o.model.Width, Layers: o.model.Layers, Heads: o.model.Heads, FP8: o.fp8, FP8Attention: o.model.FP8Attention, Seed: o.model.Seed,
		Parameters: t.weights(), Steps: t.session.Done, ResumedAt: t.session.First, Interrupted: errors.Is(ended, job.ErrInterrupted), AscendingBackward: o.AscendingBackward(),
		Summary: t.metrics.Summary(), Unit: o.unit(), LossFrequencies: frequencies,
		WeightsSHA256: digest, RunFolder: t.folder.Path, Checkpoint: o.Checkpoint,
	}
}

// table prints the summary at the end of a run.
func (s *summary) table(w io.Writer, f *job.Folder) error {
	loss := func(x *float64) string {
		if x == nil {
			return "-"
		}
		return strconv.FormatFloat(*x, 'f', 4, 64)
	}
	last := loss(s.LossHeldout)
	if s.LossHeldoutStandard != nil {
		last += " ± " + loss(s.LossHeldoutStandard)
	}
	if s.LossHeldout != nil && s.HeldoutStep != s.Steps {
		last += fmt.Sprintf(" (after step %d)", s.HeldoutStep)
	}
	tables := []report.Table{{
		Head: []string{"loss, nats per " + s.Unit, "first", "last"},
		Rows: [][]string{{"  train", loss(s.LossTrainFirst), loss(s.LossTrain)}, {"  held out", loss(s.LossHeldoutFirst), last}},
	}}
	if s.LossFrequencies != nil {
		tables[0].Rows = append(tables[0].Rows, []string{"  " + frequenciesAlone, "", loss(s.LossFrequencies)})
	}
	if s.Ranks > 1 {
		tables = append(tables, s.RankTable())
	}
	files := [][]string{{"memory log", f.Memory.Path()}, {"losses", f.Losses.Path()}, {"page", f.Page}}
	if s.Checkpoint != "" {
		files = append(files, []string{"checkpoint", s.Checkpoint})
	}
	tables = append(tables,
		report.Table{Rows: append(s.Rows(), []string{"weights", "sha256 " + s.WeightsSHA256})}, report.Table{Rows: files})
	for _, table := range tables {
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if err := table.Text(w); err != nil {
			return err
		}
	}
	return nil
}

// subtitle describes the training.
func (t *trainer) subtitle() string { return t.data.name + ": " + t.opts.describe() }

// page returns the page of the run.
func (t *trainer) page(s *summary) *report.Page {
	p := t.metrics.Page()
	p.Title, p.Subtitle = "A Weir training run", t.subtitle()
	p.Files = []string{"memory.jsonl", "losses.csv"}
	note := fmt.Sprintf("of %d, %s microbatches each", t.opts.steps, units.Count(int64(s.Microbatches)))
	if s.Interrupted {
		note += ", interrupted"
	}
	p.Facts = append(p.Facts, report.Fact{Label: "steps", Value: strconv.Itoa(s.Steps), Note: note})
	if t.session.Process != nil {
		p.Tables = append(p.Tables, t.session.Process.WaitsTable())
	}
	settings := report.Table{Title: "Settings", Folded: true}
	for _, name := range slices.Concat(job.Deciding, []string{"recompute"}, deciding) {
		settings.Rows = append(settings.Rows, []string{"-" + name, t.opts.Value(name)})
	}
	settings.Rows = append(settings.Rows, []string{"parameters", units.Count(s.Parameters)}, []string{"text", s.DataSHA256}, []string{"weights", s.WeightsSHA256},
		[]string{"books audited", strconv.Itoa(s.BooksAudited)}, []string{"seconds in steps", strconv.FormatFloat(s.Seconds, 'f', 1, 64)})
	p.Tables = append(p.Tables, settings)
	return p
}
