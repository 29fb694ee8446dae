package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/memory/snapshot"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/terminal"
)

// fitCmd predicts whether a training run fits.
type fitCmd struct {
	Config []string `arg:"" name:"config" predictor:"file" help:"The config.json of a Hugging Face model, or a file with Megatron-LM's flags; or these flags themselves behind --."`

	Set            []string `group:"Model:" help:"A key of the description and its value, in place of what the file says." placeholder:"KEY=VALUE"`
	Seq            int      `group:"Model:" help:"Tokens of a sequence." placeholder:"N"`
	MicrobatchSize int      `group:"Model:" help:"Sequences of a microbatch; by default 1." placeholder:"N"`
	Mtp            bool     `group:"Model:" help:"Train the layers that predict further tokens, too."`

	Tensor           int  `group:"Parallelism:" help:"Ranks that share each layer." placeholder:"N"`
	SequenceParallel bool `group:"Parallelism:" help:"They also share the tensors between its products."`
	Context          int  `group:"Parallelism:" help:"Ranks that share a sequence." placeholder:"N"`
	Expert           int  `group:"Parallelism:" help:"Ranks that share the experts of a layer; they are among --replicas and --context." placeholder:"N"`
	ExpertTensor     int  `group:"Parallelism:" help:"Ranks that share an expert; by default as --tensor." placeholder:"N"`

	Precision       string `group:"Numbers:" help:"bf16 and fp16: weights and activations in 16 bits, float32 for the optimizer; fp32; amp: weights in float32, activations in bfloat16; fp8: bf16 with the products of TransformerEngine in FP8." enum:"auto,bf16,fp16,fp32,amp,fp8" default:"auto"`
	GradientBytes   int    `group:"Numbers:" help:"Bytes of an element of a gradient, 2 or 4; by default 4, 2 with fp16." placeholder:"N"`
	Optimizer       string `group:"Numbers:" help:"adamw keeps two moments, momentum one, sgd none; by default that of Megatron's flags, or adamw." enum:"auto,adamw,momentum,sgd" default:"auto"`
	Recompute       string `group:"Numbers:" help:"none; full: every layer keeps its input alone; selective: the scores of attention; or some of core, norm and activation, separated by commas." placeholder:"GROUPS"`
	RecomputeStages []int  `group:"Numbers:" help:"Only these stages recompute, from 0, separated by commas." placeholder:"S"`
	UnfusedScores   bool   `group:"Numbers:" help:"Attention keeps its scores, as without FlashAttention."`

	Memory     size          `group:"Memory:" help:"Bytes of a device, such as 80GiB; a run that needs more is refused." placeholder:"BYTES"`
	Allowance  allowance     `group:"Memory:" help:"Bytes for what no tensor accounts for: the device's context, buffers of NCCL, workspaces of libraries." default:"1GiB" placeholder:"BYTES"`
	Profile    []string      `group:"Memory:" help:"What was measured, in place of formulas: a profile that examples/train -emit-profile has written; or memory snapshots of PyTorch, of one microbatch each, one for all stages or one for each." placeholder:"FILE" predictor:"file"`
	Costs      string        `group:"Memory:" help:"Measured times and bytes of the stages, in place of formulas." placeholder:"FILE" predictor:"file"`
	TimeLimit  time.Duration `group:"Memory:" help:"A prediction that takes longer is stopped; with --best it counts after --search-time." default:"1m" placeholder:"TIME"`
	Reserved   bool          `group:"Memory:" help:"Also play the step through PyTorch's allocator, with segments of cudaMalloc and with expandable ones." default:"true" negatable:""`
	Best       bool          `group:"Search:" help:"Find the fastest ways that fit: schedules, cuts of the layers, recompute and microbatch sizes together, within --search-time. The sequences of a step stay the same, and so do --schedule, --recompute and --microbatch-size if they are given."`
	SearchTime time.Duration `group:"Search:" help:"How long --best begins further combinations." default:"50s" placeholder:"TIME" needs:"best"`
	Teraflops  float64       `group:"Search:" help:"Operations that a rank does in a second, in 10^12." default:"400" placeholder:"N" needs:"best"`
	LinkRate   rate          `group:"Search:" help:"The rate of a link between ranks, such as 50GB/s." default:"50GB/s" placeholder:"RATE" needs:"best"`
	FarRate    rate          `group:"Search:" help:"Also try plans of --best that offload half or all of the saved bytes of some stages, with a link to far memory of this rate in each direction, such as 25GB/s." placeholder:"RATE"`
	Schedule   string        `group:"Plan:" help:"The schedule, or a plan file; by default 1f1b, or interleaved if Megatron's flags have virtual stages." placeholder:"NAME|FILE" predictor:"plan"`
	planFlags  `group:"Plan:" set:"offload=Share of the bytes that each stage saves, from 0 to 1, that goes to far memory between forward and backward, the largest tensors first, if enough computations lie in between."`
	Capacity   int   `group:"Plan:" help:"Messages that a link between ranks holds; 0 is rendezvous, -1 no limit." default:"1" placeholder:"N"`
	Layers     []int `group:"Plan:" help:"Layers of each stage, separated by commas; by default as even as can be. The first stage also has the embedding, and the last one the head." placeholder:"N"`

	To   string `help:"Print the cut as Megatron-LM's layout, or the plan as PyTorch's CSV of computations; with --best those of the fastest; for a layout, --best searches 1f1b and interleaved alone." enum:"report,layout,compute" default:"report"`
	JSON bool   `help:"Print the prediction as JSON."`

	pieces *fit.Pieces // nil unless the description is a profile
}

// Help returns the text that is printed below the flags.
func (fitCmd) Help() string {
	return `If every key was read, the number of parameters is exact, and so are weights, gradients and optimizer state for the precision. Activations come from lists of the tensors that every layer keeps, the order of the plan, and the planner that lays steps out. docs/fit.md compares them with published peaks.

Families of Hugging Face: ` + strings.Join(fit.Families(), ", ") + `. For another one with the same layers say --set model_type=NAME.

A key or flag that is not read is named, unless it is known to change no memory; so is what the description leaves open.

Megatron-LM's flags that are read: ` + strings.Join(fit.MegatronFlags(), ", ") + `.`
}

// Run prints the prediction.
func (c *fitCmd) Run(s *streams) error {
	read, err := c.read(s)
	if err != nil {
		return err
	}
	schedule := c.Schedule // request sets it if it is not given
	request, err := c.request(s, read)
	if err != nil {
		return err
	}
	if c.FarRate > 0 && (!c.Best || c.To != "report") {
		return usage("--far-rate is for --best, and for a plan of Weir: give --best, and leave out --to")
	}
	if c.Best {
		return c.best(s, request, schedule)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.TimeLimit)
	defer cancel()
	out, err := fit.Predict(ctx, *request)
	if err != nil {
		return c.refused(err)
	}
	if c.To != "report" {
		return c.write(s, request, out.Cut, request.Plan)
	}
	report := c.report(read, request, out)
	if c.JSON {
		err = printJSON(s.out, report)
	} else {
		c.table(s.text, report, request, out)
	}
	if err == nil && report.Fits != nil && !*report.Fits {
		return errShown
	}
	return err
}

// refused rewrites an error of the prediction for the user: it names --time-limit if that was exceeded, omits the
// sentinels' texts, or adds the name of the profile.
func (c *fitCmd) refused(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return unreadable{{Text: fmt.Sprintf("weir: stopped after %v, the limit of --time-limit: the cost grows with the ranks, with the layers of a rank, and with the microbatches in flight: take fewer, or a longer limit, or --no-reserved", c.TimeLimit)}}
	case errors.Is(err, fit.ErrModel), errors.Is(err, fit.ErrSetup):
		return usage("%s", diagnostic.Text(err, nil))
	case errors.Is(err, layout.ErrProfile) && len(c.Profile) == 1:
		return inFile(c.Profile[0], err)
	}
	return err
}

// read reads the description of the model: a file, or Megatron-LM's flags on the command line. If the file is a profile
// by weir.profile, read sets c.pieces.
func (c *fitCmd) read(s *streams) (*fit.Config, error) {
	if len(c.Config) > 1 || strings.HasPrefix(c.Config[0], "--") {
		words := slices.Clone(c.Config)
		for i, word := range words {
			if strings.ContainsAny(word, "|()") { // a layout, whose quotes the shell has removed
				words[i] = "'" + word + "'"
			}
		}
		config, err := fit.Read(strings.NewReader(strings.Join(words, " ")), c.Set)
		return config, c.refused(err)
	}
	file, err := s.open(c.Config[0])
	if err != nil {
		return nil, err
	}
	defer file.Close() // Close cannot fail after reading.
	text, err := io.ReadAll(io.LimitReader(file, maxDescription))
	if err != nil {
		return nil, err
	}
	input := input{bytes.NewReader(text), file.name}
	if fit.IsPieces(text) {
		if c.pieces, err = fit.ReadPieces(input); err != nil {
			return nil, inFile(file.name, err)
		}
		if len(c.Set) > 0 {
			return nil, usage("--set changes a description, and %s is a profile: profile the model with other settings", file.name)
		}
		return &fit.Config{Model: fit.Model{Family: c.pieces.Model}}, nil
	}
	config, err := fit.Read(input, c.Set)
	if err != nil {
		return nil, inFile(file.name, err)
	}
	return config, nil
}

// maxDescription is the maximum number of bytes read from a description. It is more than any reader accepts.
const maxDescription = 1 << 25

// setup returns the training setup. The description supplies the values for flags that are not given.
func (c *fitCmd) setup(read *fit.Config) (fit.Setup, error) {
	s := read.Setup
	for _, f := range []struct {
		given int
		to    *int
	}{
		{c.Seq, &s.Sequence}, {c.MicrobatchSize, &s.Microbatch}, {c.Tensor, &s.Tensor}, {c.Context, &s.Context}, {c.Replicas, &s.Data},
		{c.Expert, &s.Expert}, {c.ExpertTensor, &s.ExpertTensor}, {c.Shard, &s.Zero}, {c.Gathered, &s.Gathered}, {c.GradientBytes, &s.Gradients},
	} {
		if f.given != 0 {
			*f.to = f.given
		}
	}
	if s.Sequence == 0 {
		return s, usage("give --seq, the tokens of a sequence")
	}
	if n := int64(c.Memory); n > 0 && n < 1<<20 {
		unit := "GiB"
		if n >= 1<<12 { // as nvidia-smi prints it
			unit = "MiB"
		}
		return s, usage("--memory %d is %s: give a unit, such as %d%s", n, units.Size(n), n, unit)
	}
	s.SequenceParallel = s.SequenceParallel || c.SequenceParallel
	s.UnfusedAttention = s.UnfusedAttention || c.UnfusedScores
	s.Further = c.Mtp || read.Model.Family == "megatron" && read.Model.MTP > 0
	s.Allowance = int64(c.Allowance)
	if c.Optimizer != "auto" {
		s.Optimizer = fit.Optimizer(c.Optimizer)
	}
	if c.Precision != "auto" {
		s.Precision = fit.Precision(c.Precision)
	}
	if c.Recompute != "" {
		recompute, err := fit.ParseRecompute(c.Recompute)
		if err != nil {
			return s, usage("--recompute: %s", diagnostic.Text(err, nil))
		}
		s.Recompute = recompute
	}
	s.Recompute.Stages = c.RecomputeStages
	return s, nil
}

// request returns the arguments of the prediction.
func (c *fitCmd) request(s *streams, read *fit.Config) (*fit.Request, error) {
	setup, err := c.setup(read)
	if err != nil {
		return nil, err
	}
	share := 0.0
	if c.Offload != "" {
		if share, err = strconv.ParseFloat(c.Offload, 64); err != nil || !(share >= 0 && share <= 1) {
			return nil, usage("--offload %s: give a share of the saved bytes, from 0 to 1", c.Offload)
		}
	}
	plan, err := c.plan(s, read, &setup)
	if err != nil {
		return nil, err
	}
	r := &fit.Request{Model: &read.Model, Pieces: c.pieces, Setup: setup, Plan: plan, Cut: c.Layers, Capacity: c.Capacity, Offload: share, Overlap: c.Overlap, Reserved: c.Reserved}
	if c.pieces != nil {
		if len(c.Profile) > 0 || c.Costs != "" {
			return nil, usage("%s is a profile already: leave out --profile and --costs", c.Config[0])
		}
		r.Model = nil
	}
	return r, c.measured(r)
}

// plan returns the plan that the flags describe. Megatron-LM's flags supply the numbers that are not given.
func (c *fitCmd) plan(s *streams, read *fit.Config, setup *fit.Setup) (*schedule.Plan, error) {
	if c.Ranks == nil && read.Ranks > 0 {
		c.Ranks = &read.Ranks
	}
	if c.Layers != nil || c.Best || c.Stages != nil && *c.Stages != len(read.Cut) {
		setup.FurtherStage = 0 // it belongs to another cut
	} else {
		c.Layers = read.Cut
	}
	if c.Schedule == "" {
		if c.Schedule = "1f1b"; read.VirtualStages > 1 {
			c.Schedule = "interleaved"
		}
	}
	named, _ := schedule.Find(c.Schedule) // a file has no name
	if stages := or(c.Ranks, usualRanks) * read.VirtualStages; c.Stages == nil && stages > 0 && named.Name == "interleaved" {
		c.Stages = &stages
	}
	if each := max(setup.Microbatch, 1) * max(setup.Data, 1); c.Microbatches == nil && read.GlobalBatch > 0 {
		if read.GlobalBatch%each != 0 { // Megatron-LM refuses it too.
			return nil, usage("a global batch of %d sequences is not a multiple of %d, microbatches of %d times %d replicas: give another --replicas or --microbatch-size, or --microbatches", read.GlobalBatch, each, max(setup.Microbatch, 1), max(setup.Data, 1))
		}
		c.Microbatches = new(read.GlobalBatch / each)
	}
	if named.Name == "seq1f1b" {
		return nil, usage("--schedule seq1f1b: slices of a sequence are not known to fit; use 1f1b, whose peak is not lower")
	}
	if c.quantizes() || c.ForwardOnly || len(c.Frozen) > 0 {
		return nil, usage("fit is for training all layers: leave out --quantize, --forward-only and --frozen")
	}
	capacity, flags := &c.Capacity, c.planFlags
	flags.Offload, flags.Overlap = "", 1 // Predict offloads the slots
	flags.replicaFlags = replicaFlags{}  // the setup has the replicas
	source := source{Plan: c.Schedule, planFlags: flags, Capacity: capacity, From: "auto", Letters: "auto"}
	plan, file, err := source.load(s)
	if err == nil && file != nil {
		_, err = prove(plan, file, schedule.Unlimited)
	}
	return plan, err
}

// measured replaces the formulas of a request with measurements, if the flags name any.
func (c *fitCmd) measured(r *fit.Request) error {
	switch {
	case len(c.Profile) > 0 && c.Costs != "":
		return usage("--profile and --costs both give the memory of the stages: leave one out")
	case c.Costs != "":
		measured := layoutFlags{pricedPlan: pricedPlan{costFlags: costFlags{Costs: c.Costs}}}
		costs, err := measured.fromFile(r.Plan.Placement.Depth())
		if err != nil {
			return err
		}
		if costs.Lengths == nil && costs.HasRates() { // all microbatches have this length
			sequences := slices.Repeat([]int{r.Setup.Sequence}, max(r.Setup.Microbatch, 1))
			costs = costs.AtSize(lengths.Of(sequences...))
		}
		if !slices.ContainsFunc(costs.Stages, func(s simulate.StageCosts) bool { return s.Saved > 0 }) {
			return usage("--costs %s: no stage has saved bytes, as in costs from a trace, which contains only times: add them, or leave out --costs to use formulas", c.Costs)
		}
		if slices.ContainsFunc(costs.Stages, func(s simulate.StageCosts) bool { return s.Resident > 0 }) {
			r.Resident, r.Model = costs.ResidentOf, nil
		}
		r.Profile, err = measured.profile(r.Plan, costs)
		return err
	case len(c.Profile) == 0:
		return nil
	}
	var list []*snapshot.Snapshot
	for _, name := range c.Profile {
		snap, err := openSnapshot(name)
		if err != nil {
			return err
		}
		if snap == nil && len(c.Profile) > 1 {
			return usage("--profile: %s is not a snapshot: give one profile, or only snapshots", name)
		}
		if snap == nil {
			r.Profile, err = (&layoutFlags{Profile: name}).profile(r.Plan, nil)
			return err
		}
		list = append(list, snap)
	}
	profile, resident, err := fit.FromSnapshots(list, r.Plan.Placement.Depth())
	if err != nil {
		return unreadable{{Text: "weir: " + diagnostic.Text(err, nil)}}
	}
	r.Profile, r.Model = profile, nil
	r.Resident = func(place schedule.Placement, rank int) (bytes int64) {
		for stage, home := range place.Rank {
			if home == rank {
				bytes += resident[stage%len(resident)]
			}
		}
		return bytes
	}
	return nil
}

// openSnapshot returns the snapshot in a file, or nil if the file begins like neither a pickle nor gzip.
func openSnapshot(name string) (*snapshot.Snapshot, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close() // It was only read.
	var first [1]byte
	if n, _ := file.ReadAt(first[:], 0); n == 0 || first[0] != 0x80 && first[0] != 0x1f { // the first bytes of a pickle and of gzip
		return nil, nil
	}
	snap, err := snapshot.Read(file, snapshot.Limits{})
	if err != nil {
		return nil, unreadable{{File: name, Text: err.Error()}}
	}
	return snap, nil
}

// fitted is the printed form of a prediction.
type fitted struct {
	Parameters   int64     `json:"parameters,omitempty"`
	WithMTP      int64     `json:"parameters_with_mtp,omitempty"`
	Schedule     string    `json:"schedule"`
	Stages       int       `json:"stages"`
	Microbatches int       `json:"microbatches"`
	Layers       []int     `json:"layers_by_stage,omitempty"`
	Fits         *bool     `json:"fits,omitempty"`
	Native       *bool     `json:"fits_native,omitempty"` // with what the allocator reserves; nil without --memory or --reserved
	Expandable   *bool     `json:"fits_expandable,omitempty"`
	Ranks        []fitRank `json:"per_rank"`
	NotRead      []string  `json:"not_read,omitempty"`
	Assumed      []string  `json:"assumed,omitempty"`
	Partial      bool      `json:"reserved_of_a_part,omitempty"`
}

// maxNamed is the number of keys or flags that the report for people names.
const maxNamed = 60

type fitRank struct {
	*fit.RankMemory
	Total  int64  `json:"total"`
	Left   *int64 `json:"left,omitempty"` // free bytes of the device; nil without --memory
	Height int64  `json:"height"`         // of the layout of the step
}

// report returns the prediction in its printed form.
func (c *fitCmd) report(read *fit.Config, r *fit.Request, out *fit.Prediction) *fitted {
	p := out.Plan
	one := &fitted{Schedule: p.Name, Stages: p.Placement.Depth(), Microbatches: p.Microbatches, Layers: out.Cut, NotRead: read.Unread, Assumed: read.Assumed, Partial: out.Partial}
	if r.Pieces != nil {
		one.Parameters = r.Pieces.Parameters()
	}
	if r.Model != nil {
		one.Parameters = r.Model.Parameters(out.Setup.Tensor, false)
		if r.Model.MTP > 0 {
			one.WithMTP = r.Model.Parameters(out.Setup.Tensor, true)
		}
	}
	fits, native, expandable := true, true, true
	for i := range out.Ranks {
		rank := fitRank{RankMemory: &out.Ranks[i], Total: out.Ranks[i].Total(), Height: out.Memory.Ranks[i].Height}
		if c.Memory > 0 {
			rank.Left, one.Fits = new(int64(c.Memory)-rank.Total), &fits
			fits = fits && *rank.Left >= 0
			if c.Reserved {
				one.Native, one.Expandable = &native, &expandable
				native = native && c.excess(rank.Native, out) <= 0
				expandable = expandable && c.excess(rank.Expandable, out) <= 0
			}
		}
		one.Ranks = append(one.Ranks, rank)
	}
	return one
}

// excess returns by how many bytes a reservation of PyTorch's allocator, with the allowance, exceeds the memory.
func (c *fitCmd) excess(reserved int64, out *fit.Prediction) int64 {
	return reserved + out.Setup.Allowance - int64(c.Memory)
}

// table prints the prediction for people.
func (c *fitCmd) table(w io.Writer, one *fitted, r *fit.Request, out *fit.Prediction) {
	modeled, far := r.Model != nil || r.Pieces != nil, out.Plan.OffloadSlots != nil || r.Offload > 0
	if modeled {
		family := c.family(r)
		fmt.Fprintf(w, "%s, %s parameters", terminal.Quote(family), units.Count(one.Parameters))
		if one.WithMTP > 0 {
			fmt.Fprintf(w, ", %s with the layers that predict further tokens", units.Count(one.WithMTP))
		}
		fmt.Fprintln(w)
	}
	k := &out.Setup
	fmt.Fprintf(w, "%s: %s, %s, %s of %s of %s\n", terminal.Quote(one.Schedule), units.Number(len(one.Ranks), "rank"), units.Number(one.Stages, "stage"),
		units.Number(one.Microbatches, "microbatch"), units.Number(k.Microbatch, "sequence"), units.Number(k.Sequence, "token"))
	if modeled {
		fmt.Fprintf(w, "%s, recompute %s, ranks for tensors %d, a sequence %d, replicas %d (ZeRO %d), experts %d\n", k.Precision, k.Recompute, k.Tensor, k.Context, k.Data, k.Zero, k.Expert)
		layersLine(w, one.Layers)
	}
	for _, list := range []struct {
		head  string
		names []string
	}{{"not read, and may matter", one.NotRead}, {"not given, and assumed", one.Assumed}} {
		if n := len(list.names); n > 0 {
			more := ""
			if list.names = list.names[:min(n, maxNamed)]; n > maxNamed {
				more = fmt.Sprintf(" and %d more", n-maxNamed)
			}
			fmt.Fprintf(w, "%s: %s%s\n", list.head, terminal.Quote(strings.Join(list.names, ", ")), more)
		}
	}
	ranks := func() [][]string {
		rows := [][]string{{"rank"}}
		for i := range one.Ranks {
			rows = append(rows, []string{strconv.Itoa(i)})
		}
		return rows
	}
	rows := ranks()
	for _, column := range []struct {
		head  string
		shown bool
		bytes func(*fitRank) int64
	}{
		{"weights", modeled, func(r *fitRank) int64 { return r.Weights }},
		{"gradients", modeled, func(r *fitRank) int64 { return r.Gradients }},
		{"optimizer", modeled, func(r *fitRank) int64 { return r.Optimizer }},
		{"resident", !modeled, func(r *fitRank) int64 { return r.Other }},
		{"activations", true, func(r *fitRank) int64 { return r.Activations }},
		{"logits", true, func(r *fitRank) int64 { return r.Logits }},
		{"transfers", true, func(r *fitRank) int64 { return r.Transfers }},
		{"total", true, func(r *fitRank) int64 { return r.Total }},
		{"left", c.Memory > 0, func(r *fitRank) int64 { return *r.Left }},
		{"far", far, func(r *fitRank) int64 { return r.Far }},
		{"native", c.Reserved, func(r *fitRank) int64 { return r.Native }},
		{"expandable", c.Reserved, func(r *fitRank) int64 { return r.Expandable }},
	} {
		if column.head == "total" { // the parts and the sum do not fit on one line of a terminal
			printRight(w, rows)
			rows = ranks()
		}
		if column.shown {
			rows[0] = append(rows[0], column.head)
			for i := range one.Ranks {
				rows[1+i] = append(rows[1+i], units.Size(column.bytes(&one.Ranks[i])))
			}
		}
	}
	rows[0] = append(rows[0], "peak at")
	for i, r := range one.Ranks {
		rows[1+i] = append(rows[1+i], r.Peak)
	}
	printRight(w, rows)
	c.notes(w, one, r, out)
}

// family returns the name of the model in the report.
func (c *fitCmd) family(r *fit.Request) string {
	if r.Pieces != nil {
		return r.Pieces.Model
	}
	return r.Model.Family
}

// notes describes how accurate the prediction is, and whether the run fits.
func (c *fitCmd) notes(w io.Writer, one *fitted, r *fit.Request, out *fit.Prediction) {
	fmt.Fprintf(w, "\nThe total has an allowance of %s for the context of the device, buffers of NCCL and workspaces of libraries (--allowance).\n", units.Size(r.Setup.Allowance))
	exact := "Weights, gradients and optimizer are exact for the precision; activations are "
	if len(one.NotRead)+len(one.Assumed) > 0 {
		exact = "Weights, gradients and optimizer are those of what was read and assumed; activations are "
	}
	for _, note := range []struct {
		holds bool
		text  string
	}{
		{c.Reserved, "Native and expandable are what PyTorch's allocator would reserve for the rest, with segments of cudaMalloc and with expandable ones."},
		{one.Partial, "They are those of a part of the step: of the repeats that equal those before them, the last ones were not played."},
		{r.Offload > 0, "Far is the peak of far memory, which is not in the total. Only the 64 largest saved tensors of a stage can go there."},
		{r.Model == nil && r.Pieces == nil, "All else is as it was measured."},
		{r.Pieces != nil, exact + "from the model's own code: docs/profile.md."},
		{r.Pieces != nil, "Gradients are those at the peak: they appear with the first B or W of their stage, as in PyTorch if they are none before."},
		{r.Model != nil && r.Profile != nil, exact + "as they were measured."},
		{r.Model != nil && r.Profile == nil, exact + "modeled. docs/fit.md has how far off they were in ten published runs."},
		{r.Model != nil && r.Profile == nil && r.Model.Family != "megatron", "For a model in PyTorch, python -m weir.profile writes a profile from the model's own code, which fit reads in place of the config: docs/profile.md."},
		{r.Model != nil && r.Model.RouterBuffer, "The parameters include a correction for each expert, which is not trained, as published counts do."},
		{r.Model != nil && r.Model.Experts > 0, "Every expert is taken to have the same load."},
		{r.Setup.Zero == 3 && r.Setup.Gathered == 0, "Weights that are gathered for use are not counted: --gathered K counts those of K stages."},
	} {
		if note.holds {
			fmt.Fprintln(w, note.text)
		}
	}
	if one.Fits == nil {
		return
	}
	worst, native := 0, 0
	for i := range one.Ranks {
		if *one.Ranks[i].Left < *one.Ranks[worst].Left {
			worst = i
		}
		if one.Ranks[i].Native > one.Ranks[native].Native {
			native = i
		}
	}
	left, memory := units.Size(*one.Ranks[worst].Left), units.Size(int64(c.Memory))
	switch {
	case !*one.Fits:
		fmt.Fprintf(w, "It does not fit: rank %d needs %s more than the %s that it has.\n", worst, units.Size(-*one.Ranks[worst].Left), memory)
		return
	case !c.Reserved || *one.Native:
		fmt.Fprintf(w, "It fits: rank %d, the fullest, leaves %s.\n", worst, left)
		return
	case *one.Expandable:
		fmt.Fprintf(w, "It fits with expandable segments (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True): rank %d, the fullest, leaves %s.\n", worst, left)
	default:
		fmt.Fprintf(w, "It fits if PyTorch's allocator frees its cache: rank %d, the fullest, leaves %s, but even with expandable segments more would be reserved than the %s.\n", worst, left, memory)
	}
	fmt.Fprintf(w, "With segments of cudaMalloc, rank %d would reserve %s more than the %s that it has: the allocator would have to free its cache, which costs time and may not suffice.\n", native, units.Size(c.excess(one.Ranks[native].Native, out)), memory)
}
