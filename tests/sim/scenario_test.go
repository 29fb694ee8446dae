package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/transport"
)

// Scenario is one run. Its fields determine all events of the run.
type Scenario struct {
	Seed          uint64 // of the turns
	Policy        policy
	Ranks, Stages int
	Schedule      string // "" means a random valid order
	Microbatches  int
	Steps         int
	Evaluations   uint // a bit for each step
	Capacity      int
	LookAhead     int
	Apart         bool // each rank has a separate runner, as in separate processes
	Whole         bool // no stage splits its backward
	Recompute     bool
	Stream        bool // ranks share a stream
	Planned       bool // memory
	Bare          bool // spaces implement only Space
	Frozen        uint // a bit for each stage of the model
	Copies        bool // stages compute on copies of their weights
	Transformer   bool // instead of toys
	Outputs       bool // evaluations return their outputs
	Varies        bool // the number of microbatches increases from step to step
	Sums          bool // of messages and exposed memory
	Ordered       bool // the microbatches of a step have a random order, and the replicas random shares
	Prepares      bool // another step is prepared beside each step
	Audits        int  // the number of steps of which one is audited; 0 means none
	Far           bool // saved state is offloaded to far memory, if memory is planned
	// FarFault is the number of the copy that goes wrong, counted over the run on rank |FarFault| mod
	// Ranks: a copy to far memory, which fails, if it is positive, and a copy back, which changes the
	// data, if it is negative. 0 means none.
	FarFault int
	Replicas int // 0 means one
	Shard    int // the shard level of the replicas
	Gathered int
	Faults   []Fault
}

// Fault is a fault of a step.
type Fault struct {
	Step int
	At   int // the event at which it occurs, in thousandths of the number of events of the previous step; above 1000 it is Hooks.Peak
	Kind kind
}

type kind int

const (
	returns kind = iota // an error, if the code can return one
	panics
	exits // the goroutine ends
	cancels
	hangs    // for longer than the stall detection allows, ignoring the context
	slow     // for a shorter time than the stall detection allows
	flips    // a bit changes in a copy between ranks
	corrupts // the amount that a stage adds to a gradient changes for the microbatch that an audit repeats
	numKinds
)

// draw returns the scenario of a seed.
func draw(seed uint64) Scenario {
	r := rand.New(rand.NewPCG(seed, 0))
	all := schedule.Schedules()
	s := Scenario{
		Seed: seed, Policy: policy(r.IntN(int(numPolicies))), Ranks: 1 + r.IntN(4),
		Microbatches: 1 + r.IntN(8), Steps: 2 + r.IntN(6), Capacity: r.IntN(4) - 1, LookAhead: r.IntN(3),
		Evaluations: r.UintN(1<<8) & r.UintN(1<<8), Apart: r.IntN(4) == 0, Whole: r.IntN(4) == 0, Recompute: r.IntN(4) == 0,
		Stream: r.IntN(3) == 0, Planned: r.IntN(8) == 0,
		Bare: r.IntN(8) == 0, Varies: r.IntN(4) == 0, Copies: r.IntN(4) == 0, Outputs: r.IntN(2) == 0,
	}
	if r.IntN(4) == 0 {
		s.Frozen = r.UintN(1 << 8)
	}
	s.Stages = s.Ranks * (1 + r.IntN(2))
	if s.Transformer = r.IntN(16) == 0; !s.Transformer && r.IntN(4) == 0 { // long steps, for toys only
		s.Microbatches <<= 2 + r.IntN(6)
	}
	if n := r.IntN(len(all) + 5); n < len(all) {
		s.Schedule = all[n].Name
		if s.Schedule == "dualpipe" || s.Schedule == "dualpipev" { // they need many microbatches
			s.Microbatches *= 2 * s.Ranks
			s.Varies = false
		}
	}
	for range r.IntN(4) {
		f := Fault{r.IntN(s.Steps), r.IntN(1000), kind(r.IntN(int(flips)))}
		switch r.IntN(6) {
		case 0:
			f.At = 1000 - r.IntN(30) // near the end of a step
		case 1, 2:
			if n := len(s.Faults); n > 0 { // faults may be simultaneous
				f.Step, f.At = s.Faults[n-1].Step, s.Faults[n-1].At
			}
		}
		s.Faults = append(s.Faults, f)
	}
	if r.IntN(8) == 0 {
		s.Planned, s.Far, s.FarFault = true, true, max(r.IntN(101)-50, -40)
	}
	if r.IntN(3) == 0 {
		s.Replicas, s.Shard, s.Gathered = 2+r.IntN(3), r.IntN(4), r.IntN(3)
		if s.Bare, s.Transformer, s.Far, s.FarFault = false, false, false, 0; s.Schedule == "dualpipe" || s.Schedule == "dualpipev" {
			s.Microbatches *= s.Replicas
		} else if r.IntN(2) == 0 {
			s.Microbatches += s.Replicas - 1 - (s.Microbatches+s.Replicas-1)%s.Replicas
		}
	}
	s.extend()
	return s
}

// extend draws the features and faults that do not depend on others.
func (s *Scenario) extend() {
	r := rand.New(rand.NewPCG(s.Seed, 5))
	s.Sums, s.Ordered = r.IntN(3) == 0, !s.Stream && r.IntN(3) == 0
	s.Prepares = s.Microbatches <= 64 && r.IntN(4) == 0
	if r.IntN(4) == 0 { // many faults, perhaps simultaneous
		step, at, together := r.IntN(s.Steps), r.IntN(1000), r.IntN(2) == 0
		for range 1 + r.IntN(12) {
			if !together {
				step, at = r.IntN(s.Steps), r.IntN(1000)
			}
			s.Faults = append(s.Faults, Fault{step, at, kind(r.IntN(int(flips)))})
		}
	}
	if r.IntN(8) == 0 {
		s.Faults = append(s.Faults, Fault{r.IntN(s.Steps), 1001, kind(r.IntN(int(flips)))})
	}
	if s.Sums && s.Ranks > 1 && r.IntN(4) == 0 {
		s.Faults = append(s.Faults, Fault{r.IntN(s.Steps), r.IntN(900), flips})
	}
	if s.Replicas > 1 && s.Microbatches <= 64 && r.IntN(8) == 0 {
		s.Planned, s.Far, s.FarFault = true, true, max(r.IntN(101)-50, -40)
	}
	if r.IntN(3) == 0 {
		if s.Audits = 1 + r.IntN(3); r.IntN(2) == 0 {
			s.Faults = append(s.Faults, Fault{r.IntN(s.Steps), r.IntN(500), corrupts})
		}
	}
}

// audit describes the microbatch that an audit repeats in the current step.
type audit struct {
	index, author int // the microbatch and its replica; index is -1 if there is none
	first         int // the first replica that repeats it
	wrong         int // the rank that has corrupted it, or -1
	stage         int // of wrong, in the plan
}

// audited returns the audit of the current step. Nothing is corrupted yet.
func (w *world) audited() audit {
	a := audit{index: -1, wrong: -1}
	if w.Audits == 0 || !w.training || (int(w.number)+1)%w.Audits != 0 {
		return a
	}
	turn, authors := int(w.number)/w.Audits, w.count()
	if longer := w.m % w.count(); longer > 0 && w.order == nil {
		a.first, authors = longer, longer
	}
	a.author = turn % authors
	if a.index = a.author; w.order != nil {
		a.index = w.order[a.author][0]
	}
	return a
}

// corrupted reports whether a stage changes the amount that it adds to a gradient.
func (w *world) corrupted(rank, stage, index int) bool {
	if w.dry || index != w.audit.index || w.audit.wrong >= 0 {
		return false
	}
	for i := range w.Faults {
		if f := &w.Faults[i]; f.Kind == corrupts && f.Step == w.step && f.At >= 0 && w.events >= w.before*f.At/1000 {
			_ = w.fail(atCall, f)
			w.audit.wrong, w.audit.stage = rank, stage
			return true
		}
	}
	return false
}

// namesCorruption returns an error unless an error names the corruption of the step: the rank, alone or with
// another one, the stage and the microbatch.
func (w *world) namesCorruption(err error) error {
	e, ok := errors.AsType[*transport.StepError](err)
	if !ok || !errors.Is(err, runner.ErrCorrupt) {
		return fmt.Errorf("rank %d has corrupted a gradient, and the error is %w", w.audit.wrong, err)
	}
	ranks := 0
	if w.count() > 1 {
		ranks = w.Ranks
	}
	named := e.Rank == w.audit.wrong || (w.count() == 2 || w.count()-w.audit.first == 1) && strings.Contains(err.Error(), transport.RankName(w.audit.wrong, ranks)+": one of the two")
	if !named || e.Action.Stage() != w.audit.stage || e.Microbatch != w.audit.index {
		return fmt.Errorf("rank %d has corrupted a gradient of stage %d for microbatch %d, and the error names others: %w", w.audit.wrong, w.audit.stage, w.audit.index, err)
	}
	return nil
}

// drawOrder returns an order of the microbatches of the current step for each replica, or nil.
func (w *world) drawOrder() [][]int {
	if !w.Ordered {
		return nil
	}
	r := rand.New(rand.NewPCG(w.Seed, 100+uint64(w.step)))
	all, order := r.Perm(w.m), make([][]int, w.count())
	for replica := range order {
		left := w.count() - replica // with this one
		n := (len(all) + left - 1) / left
		if (w.Schedule == "gpipe" || w.Schedule == "1f1b") && left > 1 { // replicas reduce in one order
			n = 1 + r.IntN(len(all)-left+1)
		}
		order[replica], all = all[:n], all[n:]
	}
	order[len(order)-1] = append(order[len(order)-1], all...)
	return order
}

// lengthen changes a scenario to replicas with short pipelines and long steps.
func (s *Scenario) lengthen() {
	r := rand.New(rand.NewPCG(s.Seed, 3))
	s.Ranks, s.Replicas, s.Shard = 1+r.IntN(2), 2+r.IntN(3), r.IntN(4)
	s.Stages, s.Bare, s.Transformer, s.Far, s.FarFault = s.Ranks, false, false, false, 0
	if s.Microbatches = s.Replicas * (1 + s.Microbatches%8); s.Schedule != "" {
		s.Microbatches <<= 6 + r.IntN(6)
	}
}
