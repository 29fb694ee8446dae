package runner

import (
	"iter"
	"time"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/planning"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/transport"
)

// Config configures the ranks of this process. Stages and Spaces must be set.
type Config[T any] struct {
	// Stages lists the stages of all ranks, in order, copy by copy if the placement has copies, and
	// replica by replica. Of a stage that runs in another process, the runner uses only the Spec, the
	// parameters, and whether it splits its backward: use stages.Remote for it.
	Stages []stages.Stage[T]
	// Spaces lists the spaces of the ranks of this process. Ranks do not share a space. The Spaces
	// function builds the list.
	Spaces []memory.Space[T]
	// Schedule is the name of one of schedule.Schedules, which plans the steps and places the
	// stages. "" means Plan.Rule or Plan.Fixed if one is set, and otherwise depth-first.
	Schedule string
	// Losses defines the losses that stages may record. At most one may be the objective. A loss that
	// a stage declares as a metric is always a metric. nil means the losses that the stages declare,
	// reduced as means; at most one of them may then be a loss other than a metric, and that loss is the objective.
	Losses []loss.Def
	// Gradients is required if a stage of this process has parameters that are not frozen. nil means
	// the space of each rank, which must implement Gradients. All ranks call it concurrently. If it
	// is also a Copier, the runner copies the total of a tied parameter from use to use; otherwise it
	// zeroes each use's gradient and adds the total to it.
	Gradients Gradients[T]
	// Outputs receives the outputs of the last stage during Evaluate, on that stage's rank. Replicas and copies of the
	// model call it concurrently. It takes ownership of the handles, but not of the slice, and must release them during
	// the call or after Evaluate. microbatch is the microbatch's Entry.Index. If Outputs is nil, the runner releases
	// the outputs after the forward. If the evaluation fails, a space that implements memory.Reclaimer has already
	// freed them.
	Outputs func(microbatch int, out []T) error
	// CheckSource checks that a source made by Indexed or IndexedShapes honors its contract. All spaces must
	// then implement memory.Hasher. Builds with -tags invariants always check if the space does. Before the step, each
	// rank fills all parts of all microbatches of its replica, including the parts that only other ranks read. If two
	// ranks of a replica get different contents for a part, or a rank gets different contents during the step, the step
	// fails with ErrIndexed.
	CheckSource bool
	// Audit looks for silent data corruption in every Audit-th training step; 0 means never. An audited step computes
	// one microbatch more than once, and compares, bit by bit, the losses, the tensors that stages pass to each other,
	// and the contributions to the gradients of parameters; the weights of the replicas, unless they are sharded; and
	// the weights before and after the step. If they differ, the step fails with ErrCorrupt. The microbatch is the
	// first one of a replica, each time of another replica, and all replicas repeat it. But if some replicas have one
	// microbatch less and the source has no order (InOrder), only they repeat it, since they would wait for the others,
	// and it is always one of the others'. Hooks.Microbatch and the memory log see it each time that it is computed. An
	// audited step also takes checksums of all weights, and of all gradients of parameters to which the microbatch adds.
	//
	// The source must make an entry from Entry.Index alone, as a source made by Indexed does. The backward must ascend
	// in microbatches, and the plan must have one copy of the model. All spaces must implement transport.Codec. If they
	// have a method Name() string, as the devices of package kernels do, replicas whose names differ are not compared,
	// because they may round differently.
	Audit     int
	Seed      uint64 // for random draws
	FirstStep int64  // the number of the first step, for a resumed run
	// ScaleExponent is the exponent k of the scale 2^k. Gradient seeds are multiplied by the scale,
	// and the factor that Result.Update passes to the optimizer divides by it. Use 0 for float32.
	// SetScaleExponent changes it between steps.
	ScaleExponent int

	Plan     Plan
	Memory   Memory
	Topology Topology[T]
	Replicas Replicas
	Hooks    Hooks

	dry *Replicas // if not nil, Stages and Spaces belong to one of these replicas (NewDry)
}

// Plan configures how a step is planned, in addition to Config.Schedule.
type Plan struct {
	// Rule plans a step if Config.Schedule is empty. Evaluate asks it for a forward-only plan. If it
	// returns a plan for several ranks without transfers, lower.Transfers adds them for the capacity
	// of the links. For a stage that cannot split its backward, B replaces I and W (lower.Unsplit).
	Rule schedule.Rule
	// Fixed is the plan of training steps, for example from a file or from choose.Choose. The runner
	// recomputes its drops from the stages' declarations, keeps its transfers, and checks it like a
	// rule's plan. It works for its own number of microbatches and for other numbers that fit its
	// loops; evaluations run depth-first on its placement (lower.RuleFromPlan). Leave Schedule, Rule,
	// Placement, Group, Cap, Slices and Unchecked unset.
	Fixed *schedule.Plan
	// Placement assigns stages to ranks. The zero value means the placement of Config.Schedule or
	// Fixed, and schedule.Looped for a rule.
	Placement schedule.Placement
	// Group, Cap and Slices are passed to the rule in schedule.Params; 0 leaves the choice to the
	// rule.
	Group, Cap, Slices int
	// LookAhead is the number of entries that the runner pulls from the source ahead of need.
	LookAhead int
	// Quantizing selects when a rank copies its weights, if some of its stages compute with copies
	// (stages.Quantizer) and the rule's plan leaves this open.
	Quantizing lower.Quantizing
	// Unchecked runs the rule's plan unchanged, without proving it (package check). The plan must contain transfers
	// and lifetimes. Unchecked is for tools and tests.
	Unchecked bool
}

// Memory configures how a step's memory is planned and monitored.
type Memory struct {
	// Profile describes the allocations of the stages and sources: it is the *layout.Profile that package record
	// records. With it the runner plans the memory of every step before the step begins, on ranks whose space
	// implements memory.Planned: a step reserves its memory, and allocations outside the plan fail. On other ranks the
	// runner plans only the far memory of a step that offloads. The plan is for microbatches of any shape class, and
	// for shorter ones, so the class of the longest microbatch is enough. If the source of a step is Shaped, the plan
	// has exactly the sizes of the microbatches' classes. The memory of an evaluation with Outputs and of a step with
	// TolerateLeaks is not planned.
	Profile planning.Planner
	// Budget is the maximum number of bytes that a step may use on a rank; 0 means no limit. A step or
	// an evaluation that needs more fails before it begins; the outputs that an evaluation hands over
	// count only until then. New refuses a budget without a Profile, with TolerateLeaks, and on spaces
	// that do not implement memory.Planned, because it could not be enforced.
	Budget int64
	// Search limits the search for a good layout.
	Search planning.Search
	// Ring is the number of samples that the runner keeps for each rank; 0 means 256.
	Ring int
	// Offload moves saved state to far memory while no action needs it.
	Offload Offload
	// TolerateLeaks logs the excess and continues, instead of ending the step with ErrLeak.
	TolerateLeaks bool
}

// Offload configures which saved state a step moves to far memory, and where that memory is. The zero
// value offloads nothing, unless Plan.Fixed does. Offloading needs Memory.Profile and spaces that
// implement memory.Movable, such as kernels.Host, or memory.Offloader, such as cuda.Device, whose far
// memory is its own page-locked host memory. Evaluations offload nothing.
type Offload struct {
	// Share is the fraction of each stage's saved bytes to offload, from 0 to 1. The runner offloads
	// the largest slots that nothing else holds, the same slots for every microbatch
	// (layout.Profile.OffloadSlots). A microbatch is not offloaded if no computation runs between its forward
	// and its backward, because that leaves no time for copying. Only the first 64 slots of a stage
	// can be offloaded: layout.Profile.NearSlots names the stages that have more.
	Share float64
	// Folder is the folder for the file that serves as a rank's far memory. The runner reserves the
	// file's disk space before the first step. The file is unnamed and has mode 0600. If Folder is
	// empty, far memory is on the process's heap; this is for devices with their own memory.
	Folder string
	// Range, if set, returns the far memory of a rank instead. The runner owns it, reads and writes
	// it on one goroutine per direction, and releases it in Close.
	Range func(rank int) (memory.Range, error)
	// Budget is the maximum number of bytes of far memory per rank; 0 means no limit.
	Budget int64
}

// Topology defines which ranks run in this process, and how they are linked. The zero value means that
// this process runs all ranks of all replicas. Rank p of the pipeline of replica r is rank r·Ranks+p.
type Topology[T any] struct {
	Ranks int // number of ranks of a pipeline, across all processes; 0 means the number of Spaces per replica
	First int // the rank of the first space in Spaces; the others follow it
	// Transport returns the transport of a rank of this process. It is required if other processes
	// run ranks, and replaces Copy, Capacity, Stall and Sums.
	Transport func(rank int) transport.Transport[T]
	// Copy, Capacity and Stall are fields of local.Config, which links the ranks of one process. If
	// Copy is nil, the spaces must implement memory.Receiver, as those of package kernels do, and
	// make the copies themselves. A Capacity of 0 means the capacity of Plan.Fixed, if it is set.
	Copy     func(from, to int, h T) (T, error)
	Capacity int
	Stall    time.Duration
	// Sums adds a checksum to each tensor, gradient and weight that a rank of this process receives from
	// another rank. If the checksums before and after a transfer differ, the step fails with an error that
	// wraps transport.ErrSum. The spaces must implement transport.Codec. A Transport has its own setting.
	Sums bool
}

// Replicas configures data-parallel replicas of the pipeline, which share the batch of a step and
// sum their gradients. The zero value is one replica, which needs neither a reduction nor a
// transport.
type Replicas struct {
	// Count is the number of replicas R; 0 means 1. Replica r trains on the microbatches r, r+R, and
	// so on of the batch, unless InOrder assigns them differently. Topology.Ranks is the number of ranks of one
	// pipeline. Topology.First, Config.Spaces, hooks and results number ranks over all replicas, replica after replica.
	Count int
	// Shard selects the state that is sharded over the replicas: none (0), the optimizer's state (1),
	// gradients as well (2), weights as well (3). The results are bit-identical at every level.
	Shard int
	// Gathered is the number of stages whose whole weights a rank holds at the same time at Shard 3, unless the plan
	// decides it; 0 means 1, or 2 if the plan joins pairs.
	Gathered int
}

// count returns the number of replicas.
func (r *Replicas) count() int { return max(r.Count, 1) }

// shard returns Shard, or 0 if Shard is valid and there is only one replica.
func (r *Replicas) shard() int {
	if r.count() == 1 && r.Shard >= 0 && r.Shard <= 3 { // Validate rejects other levels
		return 0
	}
	return r.Shard
}

// Hooks are called at events of a step. A nil hook costs one branch (L12). Each rank calls a hook on
// its own goroutine, concurrently with other ranks. Hooks must not call the runner.
type Hooks struct {
	// Action is called with every action before it runs.
	Action func(rank int, action schedule.Action)
	// Microbatch is called after a microbatch's last action, with its record in the memory log. The
	// sample is valid only during the call.
	Microbatch func(sample *memory.Sample)
	// Peak is called at the end of a training step whose memory is not planned, if the step's peak
	// was higher than that of every earlier step. owners yields the owners of the memory at the peak,
	// largest first, without resident buffers. The step counts even if the hook panics. The hook
	// needs spaces that implement memory.PeakWatched. If memory is planned, layout.Memory.Owners
	// returns the owners before the step.
	Peak func(rank int, owners iter.Seq[memory.PeakOwner])
	// Failed is called with the error that ends a step, before the step's buffers are released.
	// held iterates over the buffers of the step on the rank, and is valid until the hook returns. If the
	// space lists its buffers, held includes those that a stage has lost or still references. The hook is
	// not called for a panic, nor if the step could not begin.
	Failed func(rank int, err error, held iter.Seq[memory.Info])
}

// Spaces returns a list of spaces for Config.Spaces. It accepts devices of one type: Spaces(devs...)
// takes a []*kernels.Host or a []kernels.Compute. Devices of several types need type arguments:
// Spaces[T, memory.Space[T]](host, far).
func Spaces[T any, S memory.Space[T]](spaces ...S) []memory.Space[T] {
	all := make([]memory.Space[T], len(spaces))
	for i, space := range spaces {
		all[i] = space
	}
	return all
}

// Gradients is the arithmetic on gradients that the runner needs at step end. kernels.Compute
// implements it.
type Gradients[T any] interface {
	// Zero sets the gradient to zero.
	Zero(g T) error
	// Add adds src to dst.
	Add(dst, src T) error
	// SumSquares returns the sum of squares. The order of the additions depends only on the size of
	// the gradient.
	SumSquares(g T) (float64, error)
}

// SquareSummer is an optional interface of Gradients. SumsOfSquares does the work of SumSquares for several gradients in
// one call, so that the runner waits only once.
type SquareSummer[T any] interface {
	SumsOfSquares(sums []float64, gradients []T) error
}

// Copier is an optional interface of Gradients: see Config.Gradients.
type Copier[T any] interface {
	// Copy sets dst to src, which has the same size.
	Copy(dst, src T) error
}

// Sharded is an interface that Gradients must implement if there are several replicas. It divides buffers
// into parts, and each replica owns a range of the parts. kernels.Host implements it.
type Sharded[T any] interface {
	// Elements returns the number of elements of h.
	Elements(h T) int
	// Parts returns the number of parts into which n elements are divided. It depends only on n.
	Parts(n int) int
	// Bound returns the index of a part's first element, given n elements in total; it returns n for
	// part Parts(n).
	Bound(n, part int) int
	// Slice returns n elements of h, starting at element first. The result is an operand like h, but holds no
	// reference, and is valid only as long as h.
	Slice(h T, first, n int) (T, error)
	// PartSquares stores in sums the sums of squares of len(sums) consecutive parts, starting at
	// part, of a gradient with n elements; g holds exactly these parts. SumSquares of all n elements
	// equals the sum over all parts, added in order, starting from 0.
	PartSquares(sums []float64, g T, n, part int) error
	// New returns a new buffer of a class, owned by the caller, with n elements of the same type as
	// like's.
	New(class memory.Class, like T, n int) (T, error)
}
