package runner

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/stages"
)

// faults collects what is wrong.
type faults []error

func (f *faults) add(format string, args ...any) {
	*f = append(*f, fmt.Errorf("runner: "+format, args...))
}

func (f *faults) join(errs ...error) { *f = append(*f, errs...) }

// Validate reports every fault, those of the stages included.
func (c *Config[T]) Validate() error {
	complete := *c
	complete.complete()
	return complete.validate()
}

func (c *Config[T]) validate() error {
	var f faults
	if c.Space == nil {
		f.add("Space is nil")
	}
	if len(c.Stages) == 0 {
		f.add("there are no stages")
	}
	if c.LookAhead < 0 {
		f.add("LookAhead is %d", c.LookAhead)
	}
	if c.Ring < 0 {
		f.add("Ring is %d", c.Ring)
	}
	if c.Budget < 0 {
		f.add("Budget is %d", c.Budget)
	}
	if c.Quantizing > lower.AtStart {
		f.add("Quantizing is %v", c.Quantizing)
	}
	if c.Templates != nil {
		f.join(c.Templates.Validate())
	}
	f.join(checkSeeds(c.Losses, c.ScaleExponent))
	if c.Replicas < 0 || c.Replica < 0 || c.Replica >= max(c.Replicas, 1) {
		f.add("Replica is %d of %d", c.Replica, c.Replicas)
	}
	if len(c.Parts) > frames.MaxParts {
		f.add("%d entry parts, at most %d", len(c.Parts), frames.MaxParts)
	}
	for i, part := range c.Parts {
		if slices.Contains(c.Parts[:i], part) {
			f.add("entry part %q is there twice", part)
		}
	}
	f.join(loss.Validate(c.Losses))
	if c.checkPlacement(&f) {
		c.checkStages(&f)
	}
	return errors.Join(f...)
}

// complete fills in what follows from the stages and the space.
func (c *Config[T]) complete() {
	if c.Gradients == nil {
		c.Gradients, _ = c.Space.(Gradients[T])
	}
	var parts, losses []string
	for _, stage := range c.Stages {
		if stage == nil {
			continue // which Validate refuses
		}
		spec := stage.Spec()
		for _, read := range spec.Reads {
			if !slices.Contains(parts, read.Part) {
				parts = append(parts, read.Part)
			}
		}
		for _, name := range spec.Losses {
			if !slices.Contains(losses, name) {
				losses = append(losses, name)
			}
		}
	}
	if c.Parts == nil {
		c.Parts = parts
	}
	if c.Losses == nil && len(losses) == 1 {
		c.Losses = []loss.Def{{Name: losses[0], Reduction: loss.Mean, Objective: true}}
	}
}

// placement returns Config.Placement, all stages on one rank where it is not set.
func (c *Config[T]) placement() schedule.Placement {
	if c.Placement.Rank == nil && c.Placement.Ranks == 0 {
		return schedule.Looped(1, len(c.Stages))
	}
	return c.Placement
}

// checkPlacement reports whether every stage has a rank, and copies match.
func (c *Config[T]) checkPlacement(f *faults) bool {
	p := c.placement()
	before := len(*f)
	if p.Stages() != len(c.Stages) {
		f.add("%d stages and a placement of %d: list those of every rank, copy after copy", len(c.Stages), p.Stages())
	}
	if p.Copies > 1 && p.Stages()%p.Copies != 0 {
		f.add("a placement of %d copies in %d stages", p.Copies, p.Stages())
	}
	for s, rank := range p.Rank {
		if rank < 0 || rank >= p.Ranks {
			f.add("stage %d is on rank %d of %d", s, rank, p.Ranks)
		}
	}
	if c.Rank < 0 || c.Rank >= p.Ranks {
		f.add("Rank is %d of %d", c.Rank, p.Ranks)
	}
	if c.Transport == nil && p.Ranks > 1 {
		f.add("Transport is nil with %d ranks", p.Ranks)
	}
	return len(*f) == before
}

// checkStages looks at every stage by itself, and at those that stand beside it.
func (c *Config[T]) checkStages(f *faults) {
	p := c.placement()
	specs := make([]stages.Spec, len(c.Stages))
	for s, stage := range c.Stages {
		if stage == nil {
			f.add("stage %d is nil", s)
			continue
		}
		specs[s] = stage.Spec()
		f.join(specs[s].Validate())
		if _, ok := stages.As[stages.Quantizer[T]](stage); !ok && specs[s].Quantizes() && p.Rank[s] == c.Rank {
			f.add("stage %d (%s) declares copies of its weights and is no stages.Quantizer", s, specs[s].Name)
		}
		for _, read := range specs[s].Reads {
			if !slices.Contains(c.Parts, read.Part) {
				f.add("stage %d (%s) reads entry part %q; Parts has %q", s, specs[s].Name, read.Part, c.Parts)
			}
		}
		for _, name := range specs[s].Losses {
			if lossIndex(c.Losses, name) < 0 {
				f.add("stage %d (%s) records loss %q, which Losses does not have: list all that stages record, and say which is the objective", s, specs[s].Name, name)
			}
		}
		if p.First(s) && len(specs[s].Inputs) > 0 {
			f.add("stage %d (%s) takes %d inputs; the first stage reads entry parts", s, specs[s].Name, len(specs[s].Inputs))
		}
		if !p.First(s) && c.Stages[s-1] != nil {
			f.join(stages.Joins(&specs[s-1], &specs[s]))
		}
		if original := s % p.Depth(); original != s && c.Stages[original] != nil && !sameUses(c.Stages[original], stage) {
			f.add("stage %d (%s) is a copy of stage %d and has other parameters, or others frozen: copies share them by name", s, specs[s].Name, original)
		}
	}
	c.checkParams(f, specs)
}

// sameUses reports whether two copies of a stage use the same parameters.
func sameUses[T any](a, b stages.Stage[T]) bool {
	return a.Spec().Frozen == b.Spec().Frozen &&
		slices.EqualFunc(stages.Params(a), stages.Params(b), func(x, y frames.Use[T]) bool {
			return x.Name == y.Name && x.Contributes == y.Contributes
		})
}

// checkParams looks at the parameters that train.
func (c *Config[T]) checkParams(f *faults, specs []stages.Spec) {
	p := c.placement()
	accumulators := map[any]string{} // by handle: whose
	for s, stage := range c.Stages {
		if stage == nil {
			continue
		}
		for _, param := range stages.Params(stage) {
			if param.Contributes == frames.Frozen {
				continue
			}
			if specs[s].Frozen {
				f.add("stage %d (%s) is frozen and its parameter %q is not", s, specs[s].Name, param.Name)
			}
			if p.Rank[s] != c.Rank {
				continue // its accumulator is there
			}
			if reflect.TypeFor[T]().Comparable() {
				if other, taken := accumulators[param.Grad]; taken {
					f.add("%q of stage %d (%s) has the accumulator of %s: every use of a parameter has its own", param.Name, s, specs[s].Name, other)
				}
				accumulators[param.Grad] = fmt.Sprintf("%q of stage %d (%s)", param.Name, s, specs[s].Name)
			}
			if c.Gradients == nil {
				f.add("stage %d (%s) trains %q and Gradients is nil", s, specs[s].Name, param.Name)
				break
			}
		}
	}
}

func lossIndex(defs []loss.Def, name string) int {
	return slices.IndexFunc(defs, func(d loss.Def) bool { return d.Name == name })
}
