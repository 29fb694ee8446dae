package runner

import (
	"context"
	"iter"
	"time"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/transport"
)

// Config says what to run on the ranks of this process. Stages and Spaces must be set.
type Config[T any] struct {
	// Stages are those of all ranks, in order, copy after copy where the placement has
	// copies. The stages of another process are only asked what they declare; where this
	// one does not have them, stages.Remote describes them.
	Stages []stages.Stage[T]
	// Spaces has the space of every rank of this process, each its own: see Spaces.
	Spaces []memory.Space[T]
	// Schedule is a name of schedule.Schedules, which plans steps and places the stages.
	// "" is depth-first, or what Plan.Rule or Plan.Fixed says.
	Schedule string
	// Losses are what stages may record, by name. At most one is the objective, and what a
	// stage declares as a metric is one. nil takes the losses that stages declare, as means,
	// if only one of them is no metric: it is the objective.
	Losses []loss.Def
	// Gradients must be there where a stage of this process has parameters that are not
	// frozen; nil takes the space of the rank where it has the ability. All ranks call it
	// at the same time. Where it is a Copier as well, the total of a tied parameter is
	// copied from use to use, and added to zero where it is not.
	Gradients Gradients[T]
	// Outputs takes over the outputs of the last stage in Evaluate, on its rank. It
	// owns the handles, not the slice, and ends them within the call or after Evaluate.
	// Microbatches are numbered as the source was told (Entry.Index).
	// nil: they end with the forward. Where the evaluation fails, a space that reclaims
	// has taken them back.
	Outputs func(microbatch int, out []T) error
	// CheckSource holds a source of Indexed to its contract, as every build with -tags
	// invariants does: each rank makes all parts of all microbatches once more before the step,
	// those that only others read among them. Parts of which two ranks make different ones, or
	// one rank when it is asked again, end the step with ErrIndexed. Spaces must be memory.Hasher.
	CheckSource bool
	Seed        uint64 // of random draws
	FirstStep   int64  // number of the first step, for a resumed run
	// ScaleExponent is k: gradients are seeded with 2^k, and the factor of the
	// Result takes it back. 0 for float32. SetScaleExponent changes it between steps.
	ScaleExponent int

	Plan     Plan
	Memory   Memory
	World    World[T]
	Replicas Replicas[T]
	Hooks    Hooks
}

// Plan says how the plan of a step is made, beyond Config.Schedule.
type Plan struct {
	// Rule plans a step where Config.Schedule names none. Evaluate asks it for a
	// forward-only plan. Where it makes a plan for several ranks without transfers,
	// lower.Transfers adds them for the capacity of the links; a stage that does not split
	// its backward runs it whole where the plan has it apart.
	Rule schedule.Rule
	// Fixed is the plan of training steps, whatever made it: a file, a search, such as
	// choose.Choose. Its drops are made again from what the stages declare, its transfers
	// stay where it has them, and it is proven as a rule's plan is. It serves its own number
	// of microbatches, and others that its loops fit; evaluations run depth first on its
	// placement (lower.Fixed). Schedule, Rule, Placement and what depends on them are left out.
	Fixed *schedule.Plan
	// Placement says which rank runs which stage; the zero value is that of Config.Schedule or
	// Fixed, and schedule.Looped for a rule.
	Placement schedule.Placement
	// Group, Cap and Slices are those of schedule.Params; 0 is what the rule does by
	// itself.
	Group, Cap, Slices int
	// LookAhead is how many entries are pulled before their microbatch needs them.
	LookAhead int
	// Quantizing says where a rank makes the copies of weights on which its stages compute,
	// where some do (stages.Quantizer) and the rule's plan does not say.
	Quantizing lower.Quantizing
	// Costs, where they are set, give each Result the simulation of its plan.
	Costs *simulate.Costs
	// Unchecked runs the rule's plan as it is: without a check, with the transfers and
	// the lifetimes that it comes with. For tools and tests.
	Unchecked bool
}

// Memory says how the memory of a step is planned and watched.
type Memory struct {
	// Profile is what stages and sources allocate, as Record has found out. With it
	// the memory of every step is planned before it begins, on ranks whose space is
	// memory.Planned: a step reserves what it needs, and nothing is allocated that the plan
	// does not have. Where there are several shape classes the plan is for any of them, or
	// exactly for those of the step where its source is Shaped. What an evaluation hands to
	// Outputs is nobody's to plan, nor is a step that tolerates leaks.
	Profile *layout.Profile
	// Budget is the most bytes that a step may need on a rank; 0 is no limit. A step that
	// needs more is refused before it begins.
	Budget int64
	// Search limits the search for a good layout; the zero value takes some milliseconds.
	Search placement.Options
	// Ring is how many samples are kept of each rank; 0 is 256.
	Ring int
	// TolerateLeaks logs the excess and goes on where a step would end with ErrLeak.
	TolerateLeaks bool
}

// World says which ranks of the pipeline this process has, and how they are linked. The
// zero value is all of them. Data-parallel replicas are no ranks: see Replicas.
type World[T any] struct {
	Ranks int // of the pipeline, in all processes; 0 is as many as there are Spaces
	First int // the rank of the first of Spaces; the others follow it
	// Transport returns the way of a rank of this process to all others. It must be set
	// where there are ranks in other processes, and replaces Copy, Capacity and Stall.
	Transport func(rank int) transport.Transport[T]
	// Copy, Capacity and Stall are those of LinksConfig, which link the ranks of one process.
	// Where Copy is nil, spaces copy that are memory.Receiver, as those of kernels are. A
	// Capacity of 0 is that of Plan.Fixed, if it has one.
	Copy     func(from, to int, h T) (T, error)
	Capacity int
	Stall    time.Duration
}

// Replicas says how this process trains together with data-parallel replicas of the
// pipeline, which have the same ranks and step with the same number of microbatches. The
// zero value is none. Several replicas need Merge, and Reduce where parameters train.
type Replicas[T any] struct {
	// Replica is this one's number of Of: microbatch i of this one is microbatch
	// i·Of+Replica of all, which random draws are keyed by (L9). Of is 0 for 1.
	Replica, Of int
	// Merge merges the losses of a rank with those of the same rank of all replicas,
	// in place, once per step; nil where there is one.
	Merge func(ctx context.Context, rank int, record *loss.Record) error
	// Reduce runs at REDUCE_GRAD: it adds to the gradients of the stage's parameters
	// those of the other replicas. What was never written is zero by then (L5). Where it is
	// set, a plan that has no REDUCE_GRAD gets one behind the last backward of every stage.
	Reduce func(ctx context.Context, stage int) error
	// Unshard runs at UNSHARD, which Plan.Rule or Plan.Fixed must have, and returns the gathered weights of the stage, buffers of
	// class Unsharded, which it hands over with the slice: the step ends them after
	// Reshard, which runs at RESHARD and after which the stage must not reach them.
	// Reshard may be nil.
	Unshard func(ctx context.Context, stage int) ([]T, error)
	Reshard func(stage int)
}

// Hooks are told what happens, and on which rank. A nil hook is off and costs one branch
// (L12). They are called from the goroutine of the rank, those of several ranks at the same
// time, and must not call the runner.
type Hooks struct {
	// Action is told of every action before it runs.
	Action func(rank int, action schedule.Action)
	// Microbatch gets a record of the memory log after a microbatch's last action.
	// The sample is borrowed for the call.
	Microbatch func(sample *memory.Sample)
	// Peak is told at the end of a training step whose memory is not planned who had what
	// at its peak, the most bytes first, where that was higher than in the steps before it.
	// The step counts, whatever the hook does. What is Resident is beside it. A space that is
	// not memory.PeakWatched does not know; who has what at a planned peak is known
	// beforehand (layout.Memory.Owners).
	Peak func(rank int, owners iter.Seq[memory.PeakOwner])
	// Failed is told of the error that ends a step, before what the step holds is
	// released: held iterates over it, and is over when the hook returns. On several
	// ranks it is told by each, of what that rank holds. A panic does not pass here.
	Failed func(rank int, err error, held iter.Seq[memory.Info])
}

// Spaces returns the spaces of ranks, for Config.Spaces. Devices of any one type are spaces:
// Spaces(devs...) takes a []*kernels.Host as well as a []kernels.Compute. Those of several types
// need it said: Spaces[T, memory.Space[T]](host, far).
func Spaces[T any, S memory.Space[T]](spaces ...S) []memory.Space[T] {
	all := make([]memory.Space[T], len(spaces))
	for i, space := range spaces {
		all[i] = space
	}
	return all
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

// SquareSummer is an optional ability of Gradients: SumSquares of several at once, so that a
// device is waited for once.
type SquareSummer[T any] interface {
	SumsOfSquares(sums []float64, gradients []T) error
}

// Copier is an optional ability of Gradients.
type Copier[T any] interface {
	// Copy sets dst to src, which has the same size.
	Copy(dst, src T) error
}
