package runner

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages"
)

// Source gives the entries of a step, in ascending order of microbatches: it is
// asked exactly M times. It allocates only within Next, in the rank's space, and
// hands over with Entry.Put. io.EOF says that there are no more; before M that
// ends the step with ErrShortBatch.
type Source[T any] interface {
	Next(ctx context.Context, entry *batchctx.Entry[T]) error
}

// SourceFunc makes a Source of a function.
type SourceFunc[T any] func(ctx context.Context, entry *batchctx.Entry[T]) error

// Next calls f.
func (f SourceFunc[T]) Next(ctx context.Context, entry *batchctx.Entry[T]) error {
	return f(ctx, entry)
}

// Gradients is what the runner needs to be able to do with gradients at step
// end. kernels.Compute has it.
type Gradients[T any] interface {
	// Zero sets the gradient to zero.
	Zero(g T) error
	// Add adds src to dst.
	Add(dst, src T) error
	// SumSquares returns the sum of squares, in an order that depends on nothing but
	// the gradient's size.
	SumSquares(g T) (float64, error)
}

// Hooks are told what happens. A nil hook is off and costs one branch (L12).
// They are called from the goroutine of Step and must not call the runner.
type Hooks struct {
	// Action is told of every action before it runs.
	Action func(rank int, action schedule.Action)
	// Microbatch gets a record of the memory log after a microbatch's last action.
	// The sample is borrowed for the call.
	Microbatch func(sample *memory.Sample)
	// Failed is told of the error that ends a step, before what the step holds is
	// released: held iterates over it, and is over when the hook returns. A panic
	// does not pass here.
	Failed func(err error, held iter.Seq[memory.Info])
}

// Config says what to run. Stages and Space must be set.
type Config[T any] struct {
	Stages []stages.Stage[T] // in order
	Space  memory.Space[T]
	// Plan is the rule that plans a step; nil is schedule.DepthFirst. Evaluate asks
	// it for a forward-only plan.
	Plan schedule.Rule
	// Group is the rule's breadth-first width under the depth-first rule; 0 is 1.
	Group int
	// Parts names the parts of an entry, in the order of Entry.Put.
	Parts []string
	// Losses are what stages may record, by name. At most one is the objective.
	Losses []loss.Def
	// Gradients must be set where a stage has parameters that are not frozen.
	Gradients Gradients[T]
	// Outputs takes over the outputs of the last stage in Evaluate. It owns the
	// handles, not the slice, and ends them within the call or after Evaluate. nil:
	// they end with the forward. Where the evaluation fails, a space that reclaims has
	// taken them back.
	Outputs func(microbatch int, out []T) error
	// Merge merges the losses of all ranks in place, once per step; nil on one rank.
	Merge func(ctx context.Context, record *loss.Record) error
	Hooks Hooks
	// LookAhead is how many entries are pulled before their microbatch needs them.
	LookAhead int
	Seed      uint64 // of random draws
	FirstStep int64  // number of the first step, for a resumed run
	// Replicas is how many data-parallel replicas train together, 0 for 1, and Replica
	// this one's number: microbatch i of this one is microbatch i·Replicas+Replica of
	// all, which random draws are keyed by (L9).
	Replica, Replicas int
	// ScaleExponent is k: gradients are seeded with 2^k, and the factor of the
	// Result takes it back. 0 for float32. SetScaleExponent changes it between steps.
	ScaleExponent int
	// Ring is how many samples are kept; 0 is 256.
	Ring int
	// TolerateLeaks logs the excess and goes on where a step would end with ErrLeak.
	TolerateLeaks bool
}

// Validate reports every fault, those of the stages included.
func (c *Config[T]) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("runner: "+format, args...)) }
	if c.Space == nil {
		fault("Space is nil")
	}
	if len(c.Stages) == 0 {
		fault("there are no stages")
	}
	if c.LookAhead < 0 {
		fault("LookAhead is %d", c.LookAhead)
	}
	if c.Ring < 0 {
		fault("Ring is %d", c.Ring)
	}
	if err := checkSeeds(c.Losses, c.ScaleExponent); err != nil {
		faults = append(faults, err)
	}
	if c.Replicas < 0 || c.Replica < 0 || c.Replica >= max(c.Replicas, 1) {
		fault("Replica is %d of %d", c.Replica, c.Replicas)
	}
	if len(c.Parts) > batchctx.MaxParts {
		fault("%d entry parts, at most %d", len(c.Parts), batchctx.MaxParts)
	}
	for i, part := range c.Parts {
		if index(c.Parts[:i], part) >= 0 {
			fault("entry part %q is there twice", part)
		}
	}
	if err := loss.Validate(c.Losses); err != nil {
		faults = append(faults, err)
	}
	specs := make([]stages.Spec, len(c.Stages))
	accumulators := map[any]string{} // by handle: whose
	for s, stage := range c.Stages {
		if stage == nil {
			fault("stage %d is nil", s)
			continue
		}
		specs[s] = stage.Spec()
		if err := specs[s].Validate(); err != nil {
			faults = append(faults, err)
		}
		for _, param := range stages.Params(stage) {
			if param.Contributes == batchctx.Frozen {
				continue
			}
			if reflect.TypeFor[T]().Comparable() {
				if other, taken := accumulators[param.Grad]; taken {
					fault("%q of stage %d (%s) has the accumulator of %s: every use of a parameter has its own", param.Name, s, specs[s].Name, other)
				}
				accumulators[param.Grad] = fmt.Sprintf("%q of stage %d (%s)", param.Name, s, specs[s].Name)
			}
			if specs[s].Frozen {
				fault("stage %d (%s) is frozen and its parameter %q is not", s, specs[s].Name, param.Name)
			}
			if c.Gradients == nil {
				fault("stage %d (%s) trains %q and Gradients is nil", s, specs[s].Name, param.Name)
				break
			}
		}
		for _, read := range specs[s].Reads {
			if index(c.Parts, read.Part) < 0 {
				fault("stage %d (%s) reads entry part %q; Parts has %q", s, specs[s].Name, read.Part, c.Parts)
			}
		}
		for _, name := range specs[s].Losses {
			if lossIndex(c.Losses, name) < 0 {
				fault("stage %d (%s) records loss %q, which Losses does not have", s, specs[s].Name, name)
			}
		}
		if s > 0 && c.Stages[s-1] != nil {
			if err := stages.Joins(&specs[s-1], &specs[s]); err != nil {
				faults = append(faults, err)
			}
		}
	}
	if len(specs) > 0 && len(specs[0].Inputs) > 0 {
		fault("stage 0 (%s) takes %d inputs; the first stage reads entry parts", specs[0].Name, len(specs[0].Inputs))
	}
	return errors.Join(faults...)
}

func index(names []string, name string) int {
	for i, n := range names {
		if n == name {
			return i
		}
	}
	return -1
}

func lossIndex(defs []loss.Def, name string) int {
	for i, d := range defs {
		if d.Name == name {
			return i
		}
	}
	return -1
}
