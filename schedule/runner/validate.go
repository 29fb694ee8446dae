package runner

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/local"
)

// Validate reports every fault of the configuration and its stages.
func (c *Config[T]) Validate() error {
	complete := *c
	err := complete.complete()
	return complete.validate(err)
}

// validate reports every fault of a completed configuration. err is the error that complete returned.
func (c *Config[T]) validate(err error) error {
	var f faults
	f.join(err)
	c.checkSpaces(&f)
	if len(c.Stages) == 0 {
		f.add("there are no stages")
	}
	if c.Plan.LookAhead < 0 {
		f.add("Plan.LookAhead is %d", c.Plan.LookAhead)
	}
	if c.Memory.Ring < 0 {
		f.add("Memory.Ring is %d", c.Memory.Ring)
	}
	if c.Memory.Budget < 0 {
		f.add("Memory.Budget is %d", c.Memory.Budget)
	}
	if c.Memory.Budget > 0 && (c.Memory.Profile == nil || c.Memory.TolerateLeaks) {
		f.add("Memory.Budget is set, but the bytes of a step are known beforehand only with Memory.Profile and without Memory.TolerateLeaks: record a profile with record.Stages")
	}
	o := &c.Memory.Offload
	if !(o.Share >= 0 && o.Share <= 1) || o.Budget < 0 {
		f.add("Memory.Offload has a share of %v and a budget of %d bytes: give a share from 0 to 1, and a budget of at least 0", o.Share, o.Budget)
	}
	if o.Share > 0 && (c.Memory.Profile == nil || c.Memory.TolerateLeaks) {
		f.add("Memory.Offload is set: it needs Memory.Profile, and no Memory.TolerateLeaks")
	}
	if c.Plan.Quantizing > lower.AtStart {
		f.add("Plan.Quantizing is %v", c.Plan.Quantizing)
	}
	if profile, ok := c.Memory.Profile.(interface{ Validate() error }); ok {
		f.join(profile.Validate())
	}
	for i, space := range c.Spaces {
		if err := mayOffload(o, space); o.Share > 0 && space != nil && err != nil {
			f.add("Memory.Offload is set, and the space of rank %d cannot offload: %w", c.Topology.First+i, err)
		}
		if _, ok := space.(memory.Planned); c.Memory.Budget > 0 && space != nil && !ok {
			f.add("Memory.Budget is set and the space of rank %d (%T) is not memory.Planned, so the memory of its steps is not planned: leave out the budget", c.Topology.First+i, space)
		}
		if _, ok := space.(memory.Hasher[T]); c.CheckSource && space != nil && !ok {
			f.add("CheckSource is set and the space of rank %d (%T) is not a memory.Hasher, which it needs to compare parts", c.Topology.First+i, space)
		}
	}
	f.join(checkSeeds(c.Losses, c.ScaleExponent))
	if p := c.Plan.Fixed; p != nil && p.Mode != schedule.Training {
		f.add("Plan.Fixed is a plan of mode %v: give a training plan; evaluations get their own plan", p.Mode)
	} else if p != nil && p.Microbatches < 1 {
		f.add("Plan.Fixed has %d microbatches: give a plan with at least one", p.Microbatches)
	}
	c.checkReplicas(&f)
	c.checkAudit(&f)
	if parts := c.parts(); len(parts) > frames.MaxParts {
		f.add("%d entry parts, at most %d", len(parts), frames.MaxParts)
	}
	f.join(loss.Validate(c.Losses))
	if err == nil && c.checkPlacement(&f) {
		for replica := range c.Replicas.count() {
			c.checkStages(&f, replica)
		}
	}
	return errors.Join(f...)
}

// checkSpaces checks the spaces, and how their ranks are linked.
func (c *Config[T]) checkSpaces(f *faults) {
	w := &c.Topology
	if len(c.Spaces) == 0 {
		f.add("there are no Spaces: give one for each rank of this process, runner.Spaces(space)")
	}
	for i, space := range c.Spaces {
		if isNil(space) {
			f.add("the space of rank %d is nil", w.First+i)
			continue
		}
		for k, other := range c.Spaces[:i] {
			if reflect.TypeOf(space).Comparable() && space == other {
				f.add("ranks %d and %d have the same space: make one for each, because a rank counts its own buffers", w.First+k, w.First+i)
			}
		}
	}
	for i, space := range c.Spaces {
		if _, sums := space.(transport.Codec[T]); w.Sums && !sums {
			f.add("Topology.Sums is set, and the space of rank %d has no bytes to sum: give one that implements transport.Codec", w.First+i)
		}
	}
	total := c.total()
	if w.First < 0 || w.First+len(c.Spaces) > total {
		f.add("Spaces are of ranks %d to %d, but Topology.Ranks is %d in each of %d replicas: set it to the number of ranks of the pipeline in all processes", w.First, w.First+len(c.Spaces)-1, w.Ranks, c.Replicas.count())
	}
	switch {
	case w.Transport != nil:
		if w.Copy != nil || w.Capacity != 0 || w.Stall != 0 || w.Sums {
			f.add("Topology.Transport replaces Copy, Capacity, Stall and Sums: leave them unset")
		}
	case total > len(c.Spaces) && len(c.Spaces) > 0:
		f.add("%d of %d ranks are in this process and Topology.Transport is nil: it must link them to the others", len(c.Spaces), total)
	case len(c.Spaces) > 1:
		links := local.Config[T]{Ranks: total, Capacity: w.Capacity, Copy: w.Copy, Stall: w.Stall}
		f.join(links.Validate())
	}
}

// checkReplicas checks the replicas.
func (c *Config[T]) checkReplicas(f *faults) {
	r := &c.Replicas
	if r.Count < 0 || r.Gathered < 0 {
		f.add("Replicas.Count is %d and Replicas.Gathered is %d: give 0 or more", r.Count, r.Gathered)
	}
	if r.Shard < 0 || r.Shard > 3 {
		f.add("Replicas.Shard is %d: give 0 (nothing), 1 (the state of the optimizer), 2 (gradients as well) or 3 (weights as well)", r.Shard)
	}
	if n := r.count(); len(c.Stages)%n != 0 {
		f.add("%d stages and %d replicas: list the stages of each replica, replica after replica", len(c.Stages), n)
	}
}

// checkPlacement checks that every stage has a rank, and reports whether the placement is free of
// faults.
func (c *Config[T]) checkPlacement(f *faults) bool {
	p := &c.Plan.Placement
	before := len(*f)
	if p.Stages() != c.depth() {
		f.add("%d stages and a placement of %d: list the stages of every rank, copy after copy", c.depth(), p.Stages())
	}
	if p.Ranks != c.Topology.Ranks {
		f.add("a placement on %d ranks, but there are %d: give a space for each rank of this process, and set Topology.Ranks to the number of ranks in all processes", p.Ranks, c.Topology.Ranks)
	}
	if p.Copies > 1 && p.Stages()%p.Copies != 0 {
		f.add("a placement of %d copies in %d stages", p.Copies, p.Stages())
	}
	for s, rank := range p.Rank {
		if rank < 0 || rank >= p.Ranks {
			f.add("stage %d is on rank %d of %d", s, rank, p.Ranks)
		}
	}
	return len(*f) == before
}

// checkStages checks every stage of a replica, and that its inputs match the outputs of the stage
// before it.
func (c *Config[T]) checkStages(f *faults, replica int) {
	p, list, base := &c.Plan.Placement, c.stagesOf(replica), replica*c.Topology.Ranks
	specs := make([]stages.Spec, len(list))
	for s, stage := range list {
		if stage == nil {
			f.add("stage %d is nil", s)
			continue
		}
		specs[s] = stage.Spec()
		f.join(specs[s].Validate())
		if _, ok := stages.As[stages.Quantizer[T]](stage); !ok && specs[s].Quantizes() && c.owns(base+p.Rank[s]) {
			f.add("stage %d (%s) declares copies of its weights but is not a stages.Quantizer", s, specs[s].Name)
		}
		for _, name := range specs[s].Losses {
			if lossIndex(c.Losses, name) < 0 {
				f.add("stage %d (%s) records loss %q, which Losses does not contain: list all losses that stages record, and mark the objective", s, specs[s].Name, name)
			}
		}
		if p.First(s) && len(specs[s].Inputs) > 0 {
			f.add("stage %d (%s) takes %d inputs; the first stage reads entry parts", s, specs[s].Name, len(specs[s].Inputs))
		}
		if !p.First(s) && list[s-1] != nil {
			f.join(stages.Joins(&specs[s-1], &specs[s]))
		}
		if original := s % p.Depth(); original != s && list[original] != nil && !sameUses(list[original], stage) {
			f.add("stage %d (%s) is a copy of stage %d but has other parameters, or freezes others: copies share parameters by name", s, specs[s].Name, original)
		}
		if first := c.Stages[s]; replica > 0 && first != nil && (first.Spec().Name != specs[s].Name || !sameUses(first, stage)) {
			f.add("stage %d (%s) of replica %d differs from stage %[1]d (%s) of replica 0 in its name, its parameters, or which of them are frozen: replicas have the same model", s, specs[s].Name, replica, first.Spec().Name)
		}
	}
	c.checkParams(f, specs, replica)
	for first := 0; first < len(list); first += p.Depth() {
		c.checkTies(f, specs, replica, first)
	}
}

// checkTies checks the parameters that have several uses in one copy of the model, whose first stage is
// given: the ties must be declared, and the uses of a tie must have equal sizes and types (L9).
func (c *Config[T]) checkTies(f *faults, specs []stages.Spec, replica, first int) {
	type use struct {
		batchctx.Use[T]
		space memory.Space[T] // nil if another process runs the stage
		name  string
	}
	p, list := &c.Plan.Placement, c.stagesOf(replica)
	owners := map[string]use{}
	for s := first; s < first+p.Depth(); s++ {
		if list[s] == nil {
			continue
		}
		for _, param := range stages.Params(list[s]) {
			have := use{Use: param, name: fmt.Sprintf("stage %d (%s)", s, specs[s].Name)}
			if rank := replica*c.Topology.Ranks + p.Rank[s]; c.owns(rank) && !isNil(c.Spaces[rank-c.Topology.First]) {
				have.space = c.Spaces[rank-c.Topology.First]
			}
			owner, tied := owners[param.Name]
			if !tied {
				owners[param.Name] = have
				continue
			}
			undeclared := !param.Tied || !owner.Tied // one use may be undeclared
			switch {
			case !param.Tied && !owner.Tied:
				f.add("%s and %s both have a parameter %q: give them different names, or declare all but one use of a tied parameter with Decl.TiedParam (Use.Tied)", owner.name, have.name, param.Name)
			case param.Elements > 0 && owner.Elements > 0 && param.Elements != owner.Elements:
				f.add("the tied parameter %q has %d elements in %s and %d in %s", param.Name, owner.Elements, owner.name, param.Elements, have.name)
			case have.space == nil:
			case owner.space == nil:
				owner.Use, owner.space = have.Use, have.space // compares the buffers with those of later uses
			default:
				for _, buffers := range []struct {
					noun        string
					first, next T
				}{{"gradient", owner.Grad, param.Grad}, {"weight", owner.Weight, param.Weight}} {
					a, b := c.describe(owner.space, buffers.first), c.describe(have.space, buffers.next)
					if a != b && a != "" && b != "" {
						f.add("the %s of the tied parameter %q is %s in %s and %s in %s: give every use the same size and type", buffers.noun, param.Name, a, owner.name, b, have.name)
					}
				}
			}
			owner.Tied = !undeclared
			owners[param.Name] = owner
		}
	}
}

// describe returns the size and the element type of a buffer, or "" if there is none.
func (c *Config[T]) describe(space memory.Space[T], h T) string {
	bytes := space.Bytes(h)
	if bytes == 0 {
		return ""
	}
	if typed, ok := space.(memory.Typed[T]); ok {
		return fmt.Sprintf("%d bytes of %s", bytes, typed.TypeName(h))
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// checkParams checks the parameters of a replica that train.
func (c *Config[T]) checkParams(f *faults, specs []stages.Spec, replica int) {
	p := &c.Plan.Placement
	accumulators := map[any]string{} // the use to which each accumulator belongs, by handle
	for s, stage := range c.stagesOf(replica) {
		if stage == nil {
			continue
		}
		rank := replica*c.Topology.Ranks + p.Rank[s]
		for _, param := range stages.Params(stage) {
			if param.Contributes == frames.Frozen {
				continue
			}
			if specs[s].Frozen {
				f.add("stage %d (%s) is frozen but its parameter %q is not", s, specs[s].Name, param.Name)
			}
			if !c.owns(rank) {
				continue // the accumulator may be unset
			}
			if c.Replicas.Shard >= 2 {
				space := c.Spaces[rank-c.Topology.First]
				if !isNil(space) && space.Bytes(param.Grad) == 0 {
					continue // the replica may own no elements; replicas.New checks the size
				}
			}
			if reflect.TypeFor[T]().Comparable() {
				if other, taken := accumulators[param.Grad]; taken {
					f.add("%q of stage %d (%s) has the same accumulator as %s: give every use of a parameter its own", param.Name, s, specs[s].Name, other)
				}
				accumulators[param.Grad] = fmt.Sprintf("%q of stage %d (%s)", param.Name, s, specs[s].Name)
			}
			space := c.Spaces[rank-c.Topology.First]
			if isNil(space) {
				continue // checkSpaces rejects it
			}
			if _, two := space.(memory.Book); two {
				switch class := space.Class(param.Grad); {
				case space.Bytes(param.Grad) == 0:
					f.add("stage %d (%s): the gradient of %q is not a buffer of rank %d: allocate it in the space of the stage's rank", s, specs[s].Name, param.Name, rank)
				case class != memory.Resident:
					f.add("stage %d (%s): the gradient of %q has class %v: allocate it as memory.Resident", s, specs[s].Name, param.Name, class)
				}
			}
			if c.gradients(space) == nil {
				f.add("stage %d (%s) trains %q and Gradients is nil: set it, or use a space that implements it", s, specs[s].Name, param.Name)
				break
			}
		}
	}
}

// sameUses reports whether two copies of a stage use the same parameters, and freeze and tie the same ones.
func sameUses[T any](a, b stages.Stage[T]) bool {
	return a.Spec().Frozen == b.Spec().Frozen &&
		slices.EqualFunc(stages.Params(a), stages.Params(b), func(x, y batchctx.Use[T]) bool {
			return x.Name == y.Name && x.Contributes == y.Contributes && x.Tied == y.Tied
		})
}

// lossIndex returns the index of a loss in defs, or -1.
func lossIndex(defs []loss.Def, name string) int {
	return slices.IndexFunc(defs, func(d loss.Def) bool { return d.Name == name })
}

// isNil reports whether a space, a transport or a profile is nil or a nil pointer.
func isNil(x any) bool {
	v := reflect.ValueOf(x)
	return x == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// faults collects errors.
type faults []error

// add adds a fault, but only once: replicas and copies of a model repeat their faults.
func (f *faults) add(format string, args ...any) {
	fault := fmt.Errorf("runner: "+format, args...)
	if !slices.ContainsFunc(*f, func(err error) bool { return err != nil && err.Error() == fault.Error() }) {
		*f = append(*f, fault)
	}
}

func (f *faults) join(errs ...error) { *f = append(*f, errs...) }
