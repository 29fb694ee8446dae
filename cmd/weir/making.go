package main

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
)

// planFlags holds the flags of a plan that is made by name. A nil number was not given.
type planFlags struct {
	Ranks        *int   `help:"Ranks, the places of the pipeline; by default 4." placeholder:"P"`
	Stages       *int   `help:"Stages of the model; by default the schedule's usual number on these ranks." placeholder:"S"`
	Microbatches *int   `help:"Microbatches of a step, in each replica; by default twice the ranks." placeholder:"M"`
	Group        int    `help:"Microbatches that go through a rank's stages together: interleaved, zb1p, grouped-interleave; depth-first on one rank." placeholder:"N"`
	Cap          int    `help:"The most microbatches in flight on a rank: zb-h2, depth-first." placeholder:"K"`
	Slices       int    `help:"Slices of a sequence, each a microbatch of the plan: seq1f1b." placeholder:"K"`
	Placement    string `help:"Placement of the stages: looped, wave, or a rank for each stage, as 0,1,1,0; by default the schedule's own." placeholder:"MAP"`
	Descending   bool   `help:"For breadth-first: the backward takes microbatches in descending order, as in PyTorch's LoopedBFS."`
	ForwardOnly  bool   `help:"Make a plan for evaluation, without backward."`
	Quantize     string `help:"Stages compute on copies of their weights, for example in low precision, that QUANTIZE makes once per step: before-use is directly before a stage's first forward, at-start before everything else on the rank." enum:"no,before-use,at-start" default:"no"`
	Offload      string `help:"${offload}" placeholder:"WHAT"`
	Overlap      int    `help:"Computations that a copy to far memory and one back may overlap with (--offload): more hide a slower link and keep more tensors near." placeholder:"N" default:"1" needs:"offload"`
	replicaFlags
	Frozen []int `help:"Stages that do not train, from 0, separated by commas." placeholder:"S"`
}

// or returns the number, or other if it is nil.
func or(given *int, other int) int {
	if given == nil {
		return other
	}
	return *given
}

// refuseFor returns an error if flags were given that have no meaning for a file.
func (m *planFlags) refuseFor(file string) error {
	for flag, given := range map[string]bool{
		"--group": m.Group != 0, "--cap": m.Cap != 0, "--slices": m.Slices != 0, "--placement": m.Placement != "",
		"--descending": m.Descending, "--forward-only": m.ForwardOnly, "--frozen": m.Frozen != nil, "--quantize": m.quantizes(), "--offload": m.Offload != "", "--overlap": m.Overlap != 1,
		"--replicas": m.Replicas != 0, "--shard": m.Shard != 0, "--gathered": m.Gathered != 0,
	} {
		if given {
			return usage("%s is for a schedule given by name; %s is a file: leave out the flag", flag, file)
		}
	}
	return nil
}

const (
	usualRanks = 4    // the default number of ranks of a plan
	maxRanks   = 1024 // the maximum for a plan made by name: the time to place transfers grows with the square of the number
)

// quantizes reports whether stages compute on copies of their weights.
func (m *planFlags) quantizes() bool { return m.Quantize != "no" }

// quantizing returns when the copies are made.
func (m *planFlags) quantizing() lower.Quantizing {
	if m.Quantize == lower.AtStart.String() {
		return lower.AtStart
	}
	return lower.BeforeUse
}

// away returns, for each stage, the bit set of the slots that are offloaded to far memory, or nil without --offload.
func (m *planFlags) away(plan *schedule.Plan) ([]uint64, error) {
	if m.Offload == "" {
		return nil, nil
	}
	depth := plan.Placement.Depth()
	away := make([]uint64, plan.Placement.Stages())
	if m.Offload == "all" {
		return slices.Repeat([]uint64{1}, len(away)), nil
	}
	for _, word := range strings.Split(m.Offload, ",") {
		stage, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || stage < 0 || stage >= depth {
			return nil, usage("--offload %s: %q is not a stage: give all, or stages from 0 to %d", m.Offload, word, depth-1)
		}
		for row := stage; row < len(away); row += depth {
			away[row] = 1
		}
	}
	return away, nil
}

// offload returns the plan with the copies to far memory that --offload asks for.
func (m *planFlags) offload(plan *schedule.Plan) (*schedule.Plan, error) {
	away, err := m.away(plan)
	if away == nil || err != nil {
		return plan, err
	}
	if plan, err = lower.Offload(plan, away, m.Overlap); err == nil && plan.OffloadSlots == nil {
		return nil, usage("--offload %s: every forward of these stages is followed too soon by its backward: leave out the flag", m.Offload)
	}
	return plan, err
}

// make returns the plan of the named schedule, with computations only.
func (m *planFlags) make(name string) (*schedule.Plan, error) {
	named, err := schedule.Find(name)
	if err != nil {
		return nil, err
	}
	params, err := m.params(&named)
	if err != nil {
		return nil, err
	}
	if m.Descending {
		if named.Name != "breadth-first" {
			return nil, usage("--descending is for breadth-first only")
		}
		named.Rule = schedule.BreadthFirstDescending
	}
	plan, err := named.Rule(params)
	return plan, flagErrors(err)
}

// flagErrors rewrites errors about parameters that a rule does not use, so that they name the flags.
func flagErrors(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, one := range joined.Unwrap() {
			all = append(all, flagErrors(one))
		}
		return errors.Join(all...)
	}
	if unused, ok := errors.AsType[*schedule.UnusedError](err); ok {
		return usage("%s %s: leave out --%s %d%s", unused.Rule, unused.Reason, strings.ToLower(unused.Field), unused.Value, unused.Advice)
	}
	return err
}

// params returns the parameters from the flags.
func (m *planFlags) params(named *schedule.Schedule) (schedule.Params, error) {
	if n := or(m.Microbatches, 1); n < 1 || n > schedule.MaxMicrobatches {
		return schedule.Params{}, usage("--microbatches %d: give 1 to %d", n, schedule.MaxMicrobatches)
	}
	p := schedule.Params{Microbatches: or(m.Microbatches, 2*or(m.Ranks, usualRanks)), Group: m.Group, Cap: m.Cap, Slices: m.Slices}
	if p.Slices == 0 && named.Name == "seq1f1b" {
		p.Slices = 2
	}
	if m.ForwardOnly {
		p.Mode = schedule.ForwardOnly
	}
	var err error
	if p.Placement, err = m.place(named); err != nil {
		return p, err
	}
	depth := p.Placement.Depth()
	for _, stage := range m.Frozen {
		if stage < 0 || stage >= depth {
			return p, usage("--frozen %d: stages are 0 to %d", stage, depth-1)
		}
		if p.Frozen == nil {
			p.Frozen = make([]bool, p.Placement.Stages())
		}
		for row := stage; row < len(p.Frozen); row += depth {
			p.Frozen[row] = true
		}
	}
	return p, nil
}

// place returns the placement from the flags.
func (m *planFlags) place(named *schedule.Schedule) (schedule.Placement, error) {
	ranks := or(m.Ranks, usualRanks)
	if ranks < 1 || ranks > maxRanks {
		return schedule.Placement{}, usage("--ranks %d: give 1 to %d", ranks, maxRanks)
	}
	stages := or(m.Stages, ranks*named.PerRank)
	if stages < 1 || stages > schedule.MaxStages {
		return schedule.Placement{}, usage("--stages %d: give 1 to %d", stages, schedule.MaxStages)
	}
	switch m.Placement {
	case "":
		return named.Place(ranks, stages)
	case "looped":
		return schedule.Looped(ranks, stages), nil
	case "wave":
		return schedule.Wave(ranks, stages), nil
	}
	p := schedule.Placement{Ranks: ranks}
	for _, word := range strings.Split(m.Placement, ",") {
		rank, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || rank < 0 || rank >= ranks {
			return p, usage("--placement %s: %q is not a rank: give looped, wave, or a rank from 0 to %d for each stage", m.Placement, word, ranks-1)
		}
		p.Rank = append(p.Rank, rank)
	}
	if stages := or(m.Stages, len(p.Rank)); stages != len(p.Rank) {
		return p, usage("--placement %s has %d stages and --stages is %d: make them equal", m.Placement, len(p.Rank), stages)
	}
	return p, nil
}
