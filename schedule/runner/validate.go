package runner

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/transport/local"
)

// faults collects errors.
type faults []error

func (f *faults) add(format string, args ...any) {
	*f = append(*f, fmt.Errorf("runner: "+format, args...))
}

func (f *faults) join(errs ...error) { *f = append(*f, errs...) }

// Validate reports every fault, including the stages'.
func (c *Config[T]) Validate() error {
	complete := *c
	err := complete.complete()
	return complete.validate(err)
}

// validate reports every fault of a completed configuration. err is the error of complete: the
// reason why the stages have no placement.
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
	o := &c.Memory.Offload
	if !(o.Share >= 0 && o.Share <= 1) || o.Budget < 0 {
		f.add("Memory.Offload has a share of %v and a budget of %d bytes: give a share from 0 to 1, and a budget from 0 on", o.Share, o.Budget)
	}
	if o.Share > 0 && (c.Memory.Profile == nil || c.Memory.TolerateLeaks) {
		f.add("Memory.Offload is set: it needs Memory.Profile, and no Memory.TolerateLeaks")
	}
	if c.Plan.Quantizing > lower.AtStart {
		f.add("Plan.Quantizing is %v", c.Plan.Quantizing)
	}
	if c.Memory.Profile != nil {
		f.join(c.Memory.Profile.Validate())
	}
	for i, space := range c.Spaces {
		if err := mayOffload(o, space); o.Share > 0 && space != nil && err != nil {
			f.add("Memory.Offload is set, and the space of rank %d cannot offload: %w", c.World.First+i, err)
		}
		if _, ok := space.(memory.Hasher[T]); c.CheckSource && space != nil && !ok {
			f.add("CheckSource is set and the space of rank %d (%T) is no memory.Hasher, which compares parts", c.World.First+i, space)
		}
	}
	f.join(checkSeeds(c.Losses, c.ScaleExponent))
	if p := c.Plan.Fixed; p != nil && p.Mode != schedule.Training {
		f.add("Plan.Fixed is a plan of mode %v: give one of training; evaluations get their own", p.Mode)
	} else if p != nil && p.Microbatches < 1 {
		f.add("Plan.Fixed has %d microbatches: give a plan of one at least", p.Microbatches)
	}
	c.checkReplicas(&f)
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

// checkReplicas checks the replicas.
func (c *Config[T]) checkReplicas(f *faults) {
	r := &c.Replicas
	if r.Count < 0 || r.Gathered < 0 {
		f.add("Replicas are %d, with %d stages gathered at once: give numbers from 0", r.Count, r.Gathered)
	}
	if r.Shard < 0 || r.Shard > 3 {
		f.add("Replicas.Shard is %d: give 0 (nothing), 1 (the state of the optimizer), 2 (gradients as well) or 3 (weights as well)", r.Shard)
	}
	if n := r.count(); len(c.Stages)%n != 0 {
		f.add("%d stages and %d replicas: list the stages of each replica, replica after replica", len(c.Stages), n)
	}
}

// total returns the number of ranks of all replicas.
func (c *Config[T]) total() int { return c.World.Ranks * c.Replicas.count() }

// pipelined returns the number of ranks of a replica if there are several replicas, else 0.
func (c *Config[T]) pipelined() int {
	if c.Replicas.count() == 1 {
		return 0
	}
	return c.World.Ranks
}

// depth returns the number of stages of a replica.
func (c *Config[T]) depth() int { return len(c.Stages) / c.Replicas.count() }

// stagesOf returns the stages of a replica.
func (c *Config[T]) stagesOf(replica int) []stages.Stage[T] {
	return c.Stages[replica*c.depth():][:c.depth()]
}

// searchNodes is the default number of nodes in a layout search, if Memory.Search is zero.
const searchNodes = 200_000

// complete sets derived fields. The error is the reason why there is no placement.
func (c *Config[T]) complete() error {
	c.Losses = c.losses()
	if c.World.Ranks == 0 {
		c.World.Ranks = max(len(c.Spaces)/c.Replicas.count(), 1)
	}
	if c.recording == nil {
		c.Replicas.Shard = c.Replicas.shard()
	}
	if c.Memory.Ring == 0 {
		c.Memory.Ring = 256
	}
	if c.World.Copy == nil && c.World.Transport == nil && len(c.Spaces) > 1 {
		c.World.Copy = receiving(c.Spaces)
	}
	if search := &c.Memory.Search; search.Nodes == 0 && search.Time == 0 {
		search.Nodes = searchNodes
	}
	return c.place()
}

// losses returns Losses, with the metrics that stages declare marked as metrics. If Losses is
// nil, it returns the declared losses: the only one that trains is the objective.
func (c *Config[T]) losses() []loss.Def {
	losses := c.declared(func(spec *stages.Spec) []string { return spec.Losses })
	metrics := c.declared(func(spec *stages.Spec) []string { return spec.Metrics })
	defs := slices.Clone(c.Losses)
	if c.Losses == nil && len(losses)-len(metrics) <= 1 {
		for _, name := range losses {
			defs = append(defs, loss.Def{Name: name, Objective: !slices.Contains(metrics, name)})
		}
	}
	for i := range defs {
		defs[i].Metric = defs[i].Metric || slices.Contains(metrics, defs[i].Name)
	}
	return defs
}

// receiving returns a function that copies between spaces, or nil if a space is no
// memory.Receiver.
func receiving[T any](spaces []memory.Space[T]) func(from, to int, h T) (T, error) {
	receivers := make([]memory.Receiver[T], len(spaces))
	for i, space := range spaces {
		if receivers[i], _ = space.(memory.Receiver[T]); receivers[i] == nil {
			return nil
		}
	}
	return func(from, to int, h T) (T, error) { return receivers[to].Receive(spaces[from], h) }
}

// declared returns the specs' names without duplicates, in stage order.
func (c *Config[T]) declared(names func(spec *stages.Spec) []string) (all []string) {
	for _, stage := range c.Stages {
		if stage == nil {
			continue // validate refuses it
		}
		spec := stage.Spec()
		for _, name := range names(&spec) {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// parts returns the names of the entry parts, in the order in which stages first read them.
func (c *Config[T]) parts() []string {
	return c.declared(func(spec *stages.Spec) (parts []string) {
		for _, read := range spec.Reads {
			parts = append(parts, read.Part)
		}
		return parts
	})
}

// place sets the rule and the placement.
func (c *Config[T]) place() error {
	p, ranks, count := &c.Plan, c.World.Ranks, c.depth()
	placed := p.Placement.Rank != nil || p.Placement.Ranks != 0
	if p.Fixed != nil {
		if c.Schedule != "" || p.Rule != nil || placed || p.Group != 0 || p.Cap != 0 || p.Slices != 0 || p.Unchecked {
			return errors.New("runner: Plan.Fixed is set: leave out Schedule, and in Plan leave out Rule, Placement, Group, Cap, Slices and Unchecked")
		}
		p.Rule, p.Placement = lower.Fixed(p.Fixed), p.Fixed.Placement
		if w := &c.World; w.Transport == nil && w.Capacity == 0 && p.Fixed.Capacity > 0 {
			w.Capacity = p.Fixed.Capacity
		}
		return nil
	}
	if p.Rule != nil {
		if c.Schedule != "" {
			return fmt.Errorf("runner: Schedule is %q and Plan.Rule is set: set one of them", c.Schedule)
		}
		if !placed {
			p.Placement = schedule.Looped(ranks, count)
		}
		return nil
	}
	if c.Schedule == "" {
		c.Schedule = "depth-first"
	}
	named, err := schedule.Find(c.Schedule)
	if err != nil {
		return fmt.Errorf("runner: Schedule: %w", err)
	}
	p.Rule = named.Rule
	if placed || count < 1 { // validate refuses it
		return nil
	}
	if p.Placement, err = named.Place(ranks, count); err == nil {
		if copies := max(p.Placement.Copies, 1); copies > 1 {
			err = fmt.Errorf("%d stages: list the stages of %d copies of the model, copy after copy", count, copies)
		}
	}
	if err != nil && count%2 == 0 { // two copies of the model
		if twice, refused := named.Place(ranks, count/2); refused == nil && twice.Stages() == count {
			p.Placement, err = twice, nil
		}
	}
	if err != nil {
		return fmt.Errorf("runner: Schedule: %w", err)
	}
	return nil
}

// owns reports whether a rank is one of this process.
func (c *Config[T]) owns(rank int) bool {
	return rank >= c.World.First && rank < c.World.First+len(c.Spaces)
}

// gradients returns the implementation of the arithmetic at a rank's step end.
func (c *Config[T]) gradients(space memory.Space[T]) Gradients[T] {
	if c.Gradients != nil {
		return c.Gradients
	}
	able, _ := space.(Gradients[T])
	return able
}

// checkSpaces checks the spaces, and how their ranks are linked.
func (c *Config[T]) checkSpaces(f *faults) {
	w := &c.World
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
				f.add("ranks %d and %d have the same space: make one for each, for a rank counts its own buffers", w.First+k, w.First+i)
			}
		}
	}
	total := c.total()
	if w.First < 0 || w.First+len(c.Spaces) > total {
		f.add("Spaces are of ranks %d to %d, and World.Ranks is %d in each of %d replicas: it is how many ranks the pipeline has in all processes", w.First, w.First+len(c.Spaces)-1, w.Ranks, c.Replicas.count())
	}
	switch {
	case w.Transport != nil:
		if w.Copy != nil || w.Capacity != 0 || w.Stall != 0 {
			f.add("World.Transport replaces Copy, Capacity and Stall: say one or the other")
		}
	case total > len(c.Spaces) && len(c.Spaces) > 0:
		f.add("%d of %d ranks are in this process and World.Transport is nil: it must link them to the others", len(c.Spaces), total)
	case len(c.Spaces) > 1:
		links := local.Config[T]{Ranks: total, Capacity: w.Capacity, Copy: w.Copy, Stall: w.Stall}
		f.join(links.Validate())
	}
}

// isNil reports whether a space or a transport is nil or a nil pointer.
func isNil(x any) bool {
	v := reflect.ValueOf(x)
	return x == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// checkPlacement reports whether every stage has a rank, and whether copies match.
func (c *Config[T]) checkPlacement(f *faults) bool {
	p := &c.Plan.Placement
	before := len(*f)
	if p.Stages() != c.depth() {
		f.add("%d stages and a placement of %d: list those of every rank, copy after copy", c.depth(), p.Stages())
	}
	if p.Ranks != c.World.Ranks {
		f.add("a placement on %d ranks, and %d ranks: give a space for each rank of this process, and say in World.Ranks how many there are in all", p.Ranks, c.World.Ranks)
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

// checkStages checks every stage of a replica, and its ports against its neighbours'.
func (c *Config[T]) checkStages(f *faults, replica int) {
	p, list, base := &c.Plan.Placement, c.stagesOf(replica), replica*c.World.Ranks
	specs := make([]stages.Spec, len(list))
	for s, stage := range list {
		if stage == nil {
			f.add("stage %d is nil", s)
			continue
		}
		specs[s] = stage.Spec()
		f.join(specs[s].Validate())
		if _, ok := stages.As[stages.Quantizer[T]](stage); !ok && specs[s].Quantizes() && c.owns(base+p.Rank[s]) {
			f.add("stage %d (%s) declares copies of its weights and is no stages.Quantizer", s, specs[s].Name)
		}
		for _, name := range specs[s].Losses {
			if lossIndex(c.Losses, name) < 0 {
				f.add("stage %d (%s) records loss %q, which Losses does not have: list all that stages record, and say which is the objective", s, specs[s].Name, name)
			}
		}
		if p.First(s) && len(specs[s].Inputs) > 0 {
			f.add("stage %d (%s) takes %d inputs; the first stage reads entry parts", s, specs[s].Name, len(specs[s].Inputs))
		}
		if !p.First(s) && list[s-1] != nil {
			f.join(stages.Joins(&specs[s-1], &specs[s]))
		}
		if original := s % p.Depth(); original != s && list[original] != nil && !sameUses(list[original], stage) {
			f.add("stage %d (%s) is a copy of stage %d and has other parameters, or others frozen: copies share them by name", s, specs[s].Name, original)
		}
		if first := c.Stages[s]; replica > 0 && first != nil && (first.Spec().Name != specs[s].Name || !sameUses(first, stage)) {
			f.add("stage %d (%s) of replica %d is stage %[1]d (%s) of replica 0 with another name, other parameters, or others frozen: replicas have the same model", s, specs[s].Name, replica, first.Spec().Name)
		}
	}
	c.checkParams(f, specs, replica)
}

// sameUses reports whether two copies of a stage use the same parameters.
func sameUses[T any](a, b stages.Stage[T]) bool {
	return a.Spec().Frozen == b.Spec().Frozen &&
		slices.EqualFunc(stages.Params(a), stages.Params(b), func(x, y frames.Use[T]) bool {
			return x.Name == y.Name && x.Contributes == y.Contributes
		})
}

// checkParams checks the parameters of a replica that train.
func (c *Config[T]) checkParams(f *faults, specs []stages.Spec, replica int) {
	p := &c.Plan.Placement
	accumulators := map[any]string{} // by handle: the use that has it
	for s, stage := range c.stagesOf(replica) {
		if stage == nil {
			continue
		}
		rank := replica*c.World.Ranks + p.Rank[s]
		for _, param := range stages.Params(stage) {
			if param.Contributes == frames.Frozen {
				continue
			}
			if specs[s].Frozen {
				f.add("stage %d (%s) is frozen and its parameter %q is not", s, specs[s].Name, param.Name)
			}
			if !c.owns(rank) {
				continue // it is optional
			}
			if c.Replicas.Shard >= 2 {
				space := c.Spaces[rank-c.World.First]
				if !isNil(space) && space.Bytes(param.Grad) == 0 {
					continue // the replica may own nothing of it: resolveReplica knows
				}
			}
			if reflect.TypeFor[T]().Comparable() {
				if other, taken := accumulators[param.Grad]; taken {
					f.add("%q of stage %d (%s) has the accumulator of %s: every use of a parameter has its own", param.Name, s, specs[s].Name, other)
				}
				accumulators[param.Grad] = fmt.Sprintf("%q of stage %d (%s)", param.Name, s, specs[s].Name)
			}
			space := c.Spaces[rank-c.World.First]
			if isNil(space) {
				continue // checkSpaces refuses it
			}
			if _, two := space.(memory.Book); two {
				switch class := space.Class(param.Grad); {
				case space.Bytes(param.Grad) == 0:
					f.add("stage %d (%s): the gradient of %q is no buffer of rank %d: allocate it in the space of the stage's rank", s, specs[s].Name, param.Name, rank)
				case class != memory.Resident:
					f.add("stage %d (%s): the gradient of %q has class %v: allocate it as memory.Resident", s, specs[s].Name, param.Name, class)
				}
			}
			if c.gradients(space) == nil {
				f.add("stage %d (%s) trains %q and Gradients is nil: set it, or take a space that has the ability", s, specs[s].Name, param.Name)
				break
			}
		}
	}
}

func lossIndex(defs []loss.Def, name string) int {
	return slices.IndexFunc(defs, func(d loss.Def) bool { return d.Name == name })
}
