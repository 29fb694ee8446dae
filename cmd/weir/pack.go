package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/draw"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/pack"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/units"
)

// packCmd plans steps from the lengths of their sequences.
type packCmd struct {
	Lengths string `arg:"" help:"File with the lengths of the sequences of each batch in tokens, a batch a line, or - for standard input: each line is answered at once." predictor:"file"`
	Tokens  int64  `group:"Limits:" help:"The most tokens of a microbatch." placeholder:"N"`
	Memory  size   `group:"Limits:" help:"The most bytes on a rank, such as 80GiB, with weights and optimizer state." placeholder:"BYTES"`
	Long    string `group:"Limits:" help:"What happens to a sequence that is too long: refuse the batch, split the sequence into pieces of --at tokens, or cut off what is behind them." enum:"refuse,split,cut" default:"refuse"`
	At      int64  `group:"Limits:" help:"The length at which --long splits or cuts; by default the longest that fits." placeholder:"N"`

	Ranks    int    `group:"Plan:" help:"Ranks, the places of the pipeline." required:"" placeholder:"P"`
	Replicas int    `group:"Plan:" help:"Replicas that share a batch." default:"1" placeholder:"R"`
	Schedule string `group:"Plan:" help:"The schedule: ${schedules}." default:"1f1b" placeholder:"NAME" predictor:"schedule"`
	Stages   int    `group:"Plan:" help:"Stages of the model; by default the schedule's usual number on these ranks." placeholder:"S"`
	Capacity int    `group:"Plan:" help:"Messages that a link between ranks holds; -1 is no limit." default:"1" placeholder:"N"`

	Costs     string    `group:"Costs:" help:"File of costs and bytes for each stage, with per_token and per_square (docs/cli.md)." placeholder:"FILE" predictor:"file"`
	Config    string    `group:"Costs:" help:"In place of --costs: the config.json of a Hugging Face model, or a file with Megatron-LM's flags, as weir fit reads them." placeholder:"FILE" predictor:"file"`
	Set       []string  `group:"Costs:" help:"With --config: a key of the description and its value." placeholder:"KEY=VALUE" needs:"config"`
	Tensor    int       `group:"Costs:" help:"With --config: ranks that share each layer." placeholder:"N" needs:"config"`
	Precision string    `group:"Costs:" help:"With --config, as in weir fit." enum:"auto,bf16,fp16,fp32,amp,fp8" default:"auto" needs:"config"`
	Recompute string    `group:"Costs:" help:"With --config, as in weir fit." placeholder:"GROUPS" needs:"config"`
	Layers    []int     `group:"Costs:" help:"With --config, or a profile as --costs: layers of each stage; by default those that balance the work." placeholder:"N"`
	Allowance allowance `group:"Costs:" help:"With --config: bytes of a rank for what no tensor accounts for." default:"1GiB" placeholder:"BYTES" needs:"config"`
	Teraflops float64   `group:"Costs:" help:"With --config: operations that a rank does in a second, in 10^12." default:"400" placeholder:"N"`
	LinkRate  rate      `group:"Costs:" help:"With --config, or a profile as --costs: the rate of a link between ranks, such as 50GB/s." default:"50GB/s" placeholder:"RATE"`

	Effort int    `help:"Simulations for each replica; more find better packings, and take longer." placeholder:"N"`
	Output string `help:"Write a page that shows the slowest replica of the first batch, packed in order and packed by this command." short:"o" placeholder:"FILE"`
	Others bool   `help:"Also pack in the ways that others use, for comparison." default:"true" negatable:""`
	JSON   bool   `help:"Print a JSON object for each batch, on a line."`

	profiled *profiled // the profile that --costs names, or nil
}

// Help returns the text that is printed below the flags.
func (packCmd) Help() string {
	return `Deals the sequences of a batch to the replicas, packs those of a replica into microbatches, and orders these, so that the simulated makespan of the slowest replica is short. No microbatch exceeds --tokens, and no rank exceeds --memory: its peak is exact for the lengths.

The other lines are ways in use: in order fills each microbatch until the next sequence does not fit; longest first does so after sorting; balanced is the method of verl 0.9.1, which gives replicas and microbatches equal work and runs small ones first and last. The lower bound holds for every packing, so the gap to it is the most that a better one could save.`
}

// packed is the output of --json for a batch. Times are in Unit.
type packed struct {
	Batch    int                    `json:"batch"`           // the number of the batch, from 0
	Packs    [][][]int              `json:"packs,omitempty"` // by replica and microbatch: the indices of its sequences
	Pieces   []piece                `json:"pieces,omitempty"`
	Unit     string                 `json:"unit,omitempty"` // of the times
	Makespan float64                `json:"makespan,omitempty"`
	Bound    float64                `json:"bound,omitempty"`
	Gap      float64                `json:"gap,omitempty"`
	Bubble   float64                `json:"bubble,omitempty"` // of the slowest replica
	Peaks    [][]int64              `json:"peaks,omitempty"`  // by replica and rank, in bytes
	Others   map[string]otherPacked `json:"others,omitempty"` // by method
	Refused  *refusal               `json:"refused,omitempty"`
}

// otherPacked describes the result of another method.
type otherPacked struct {
	Makespan float64 `json:"makespan"`
	Excess   int64   `json:"excess,omitempty"` // bytes over --memory on a rank
}

// piece is a part of a sequence. If sequences were split or cut, Packs holds indices of Pieces instead of sequences.
type piece struct {
	Sequence int   `json:"sequence"`
	From     int64 `json:"from"` // the first token
	Tokens   int64 `json:"tokens"`
}

// refusal says why a batch was refused.
type refusal struct {
	Text     string `json:"text"`
	Sequence *int   `json:"sequence,omitempty"` // the index of the sequence that is too long
	Length   int64  `json:"length,omitempty"`
	Longest  int64  `json:"longest,omitempty"` // the longest length that fits
	Rank     *int   `json:"rank,omitempty"`
	Excess   int64  `json:"excess,omitempty"` // bytes on the rank, or tokens
}

// Run packs the batches.
func (c *packCmd) Run(s *streams) error {
	if err := endsIn(c.Output, ".html"); err != nil {
		return err
	}
	cfg, err := c.config(s)
	if err != nil {
		return err
	}
	packer, err := pack.New(*cfg)
	if err != nil {
		return usage("%s", plain(err))
	}
	in, err := s.open(c.Lengths)
	if err != nil {
		return err
	}
	defer in.Close()
	lines, refused := newLengthsReader(in, in.name), false
	for batch := 0; ; batch++ {
		sequences, err := lines.next()
		if errors.Is(err, io.EOF) && batch == 0 {
			return unreadable{{File: in.name, Text: "it has no lengths: give a line with the lengths of the sequences of each batch"}}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		out, packing, sizes := &packed{Batch: batch}, (*pack.Packing)(nil), sequences
		if out.Pieces, err = c.pieces(packer, sequences); err == nil {
			if out.Pieces != nil {
				sizes = nil
				for _, p := range out.Pieces {
					sizes = append(sizes, p.Tokens)
				}
			}
			if c.profiled != nil {
				if err := c.profiled.pieces.Within(sizes...); err != nil {
					return faults{{File: in.name, Line: lines.line, Column: 1, Text: diagnostic.Text(err, nil)}}
				}
			}
			packing, err = packer.Pack(sizes)
		}
		switch {
		case errors.Is(err, pack.ErrTooLong) || errors.Is(err, pack.ErrMemory):
			out.Refused, refused = newRefusal(err), true
		case err != nil:
			return unreadable{{File: in.name, Line: lines.line, Column: 1, Text: plain(err)}}
		default:
			if err := c.describe(out, packer, packing, cfg, sizes); err != nil {
				return err
			}
			if batch == 0 && c.Output != "" {
				if err := c.page(s, packer, packing, cfg, sizes); err != nil {
					return err
				}
			}
		}
		if c.JSON {
			if err := json.NewEncoder(s.out).Encode(out); err != nil {
				return err
			}
		} else if out.Refused != nil {
			fmt.Fprintf(s.text, "batch %d, line %d: refused: %s\n\n", batch, lines.line, out.Refused.Text)
		} else {
			c.print(s.text, out, packing, cfg, sizes)
		}
	}
	if refused {
		return errShown
	}
	return nil
}

// pieces splits or cuts sequences that are too long. It returns nil if there are none, and with --long refuse.
func (c *packCmd) pieces(packer *pack.Packer, sequences []int64) (pieces []piece, err error) {
	at := packer.Longest()
	if c.At > 0 {
		at = min(at, c.At)
	}
	if c.Long == "refuse" || at < 1 || slices.Max(sequences) <= at {
		return nil, nil
	}
	for i, length := range sequences {
		for from := int64(0); from < length; from += at {
			pieces = append(pieces, piece{i, from, min(at, length-from)})
			if c.Long == "cut" {
				break
			}
		}
	}
	return pieces, nil
}

func newRefusal(err error) *refusal {
	r := &refusal{Text: plain(err)}
	if long, ok := errors.AsType[*pack.TooLongError](err); ok {
		r.Sequence, r.Length, r.Longest, r.Excess = &long.Sequence, long.Length, long.Longest, long.Excess
		if long.Rank >= 0 {
			r.Rank = &long.Rank
		}
	}
	return r
}

// config returns the configuration of the packer.
func (c *packCmd) config(s *streams) (*pack.Config, error) {
	named, err := schedule.Find(c.Schedule)
	if err != nil {
		return nil, err
	}
	switch {
	case c.Ranks < 1 || c.Ranks > maxRanks:
		return nil, usage("--ranks %d: give 1 to %d", c.Ranks, maxRanks)
	case c.Stages < 0 || c.Stages > schedule.MaxStages:
		return nil, usage("--stages %d: give 1 to %d", c.Stages, schedule.MaxStages)
	case (c.Costs == "") == (c.Config == ""):
		return nil, usage("give either --costs or --config, which say what sequences cost")
	case c.Tokens == 0 && c.Memory == 0:
		return nil, usage("give --memory, the bytes of a rank, or --tokens, the most tokens of a microbatch")
	case !(c.Teraflops > 0 && c.Teraflops < 1e6):
		return nil, usage("--teraflops %g: give a number above 0 and below 1000000", c.Teraflops)
	case c.At < 0 || c.At > 0 && c.Long == "refuse":
		return nil, usage("--at %d: give a length of 1 or more, and --long split or cut", c.At)
	}
	stages := c.Stages
	if stages == 0 {
		stages = named.PerRank * c.Ranks
	}
	place, err := named.Place(c.Ranks, stages)
	if err != nil {
		return nil, usage("%s", plain(err))
	}
	cfg := &pack.Config{
		Rule: named.Rule, Params: schedule.Params{Placement: place}, Capacity: c.Capacity, Replicas: c.Replicas, Effort: c.Effort,
		Limits: pack.Limits{Tokens: c.Tokens, Memory: int64(c.Memory)},
	}
	if c.Costs != "" {
		flags := &costFlags{Costs: c.Costs, Sequences: 1, Layers: c.Layers, Teraflops: c.Teraflops, LinkRate: c.LinkRate, vary: true}
		cfg.Costs, err = flags.fromFile(place.Depth())
		c.profiled, err = flags.profiled, cmp.Or(err, flags.ofProfile())
	} else {
		cfg.Costs, err = c.fromConfig(s, place.Depth())
		cfg.Limits.Memory = max(cfg.Limits.Memory-int64(c.Allowance), min(cfg.Limits.Memory, 1))
	}
	return cfg, err
}

// fromConfig returns the costs of a model.
func (c *packCmd) fromConfig(s *streams, stages int) (*simulate.Costs, error) {
	described := &fitCmd{
		Config: []string{c.Config}, Set: c.Set, Tensor: c.Tensor, Precision: c.Precision, Recompute: c.Recompute,
		Optimizer: "auto", Seq: 4096, // at which the layers are balanced
	}
	described.Replicas = c.Replicas
	read, err := described.read(s)
	if err != nil {
		return nil, err
	}
	if described.pieces != nil {
		return nil, usage("%s is a profile: give it with --costs", c.Config)
	}
	setup, err := described.setup(read)
	if err != nil {
		return nil, err
	}
	search := fit.Search{Model: &read.Model, Setup: setup, Speed: 1e12 * c.Teraflops, Bandwidth: float64(c.LinkRate)}
	costs, _, err := search.ByLength(stages, c.Layers)
	if errors.Is(err, fit.ErrModel) || errors.Is(err, fit.ErrSetup) {
		return nil, usage("%s", diagnostic.Text(err, nil))
	}
	return costs, err
}

// methods returns the methods to compare with, or nil with --no-others.
func (c *packCmd) methods() []pack.Method {
	if !c.Others {
		return nil
	}
	return pack.Methods()
}

// describe fills in the output for a packing.
func (c *packCmd) describe(out *packed, packer *pack.Packer, packing *pack.Packing, cfg *pack.Config, sequences []int64) error {
	out.Unit, out.Makespan, out.Bound, out.Gap = cfg.Costs.Unit, cfg.Costs.Units(packing.Makespan), cfg.Costs.Units(packing.Bound), packing.Gap()
	out.Others = map[string]otherPacked{}
	for _, r := range packing.Replicas {
		out.Packs, out.Peaks = append(out.Packs, r.Packs), append(out.Peaks, r.Peaks)
		if r.Makespan == packing.Makespan {
			out.Bubble = 1 - float64(r.Ideal)/float64(max(r.Makespan, 1))
		}
	}
	for _, m := range c.methods() {
		other, err := packer.Other(m, sequences)
		if err != nil {
			return err
		}
		out.Others[m.String()] = otherPacked{cfg.Costs.Units(other.Makespan), other.Excess}
	}
	return nil
}

// print prints a packing for people.
func (c *packCmd) print(w io.Writer, out *packed, packing *pack.Packing, cfg *pack.Config, sequences []int64) {
	total := lengths.Of(sequences...)
	time := func(v float64) string {
		if scale, known := map[string]float64{"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[cfg.Costs.Unit]; known {
			return units.Seconds(v * scale)
		}
		return strings.TrimSpace(number(v) + " " + cfg.Costs.Unit)
	}
	fmt.Fprintf(w, "batch %d: %s of %s, %s on %s, %s\n", out.Batch, units.Number(len(sequences), "sequence"), units.Number(total.Tokens, "token"),
		c.Schedule, units.Number(c.Ranks, "rank"), units.Number(len(packing.Replicas), "replica"))
	rows := [][]string{{"", "makespan", "more than packed", ""}, {"packed", time(out.Makespan), "", ""}}
	for _, m := range c.methods() {
		other := out.Others[m.String()]
		row := []string{m.String(), time(other.Makespan), units.Percent(other.Makespan/out.Makespan-1, 1), ""}
		if other.Excess > 0 {
			row[3] = units.Size(other.Excess) + " over the memory"
		}
		rows = append(rows, row)
	}
	printRight(w, append(rows, []string{"lower bound", time(out.Bound), "", ""}))
	fmt.Fprintf(w, "\nThe bubble of the slowest replica is %s. No packing saves more than %s of the makespan.\n", units.Percent(out.Bubble, 1), units.Percent(1-out.Bound/out.Makespan, 1))
	for r, replica := range packing.Replicas {
		if replica.Plan == nil {
			fmt.Fprintf(w, "replica %d: no sequences\n", r)
			continue
		}
		var tokens []string
		for _, size := range replica.Sizes {
			tokens = append(tokens, fmt.Sprint(size.Tokens))
		}
		peak := slices.Max(replica.Peaks)
		held := ""
		if peak > 0 {
			held = fmt.Sprintf(", at most %s, on rank %d", units.Size(peak), slices.Index(replica.Peaks, peak))
		}
		fmt.Fprintf(w, "replica %d: %s%s, %s of tokens: %s\n", r, time(cfg.Costs.Units(replica.Makespan)), held, units.Number(len(tokens), "microbatch"), strings.Join(tokens, " "))
	}
	fmt.Fprintln(w)
}

// page writes the page of --output.
func (c *packCmd) page(s *streams, packer *pack.Packer, packing *pack.Packing, cfg *pack.Config, sequences []int64) error {
	before, err := packer.Other(pack.InOrder, sequences)
	if err != nil {
		return err
	}
	var steps [2]*draw.Step
	for n, p := range []*pack.Packing{before, packing} {
		for _, r := range p.Replicas {
			if r.Makespan != p.Makespan {
				continue
			}
			costs := *cfg.Costs
			costs.Lengths = make([]lengths.Size, len(r.Sizes))
			for mb, size := range r.Sizes {
				costs.Lengths[r.Plan.BatchIndex(mb)] = size
			}
			if steps[n], err = draw.Simulate(r.Plan, &costs, r.Plan.Capacity); err != nil {
				return err
			}
			break
		}
	}
	return s.write(c.Output, func(w io.Writer) error {
		return draw.Compare(w, draw.Labels{Title: c.Schedule, Steps: [2]string{"in order", "packed"}, Marked: -1}, steps[0], steps[1])
	})
}
