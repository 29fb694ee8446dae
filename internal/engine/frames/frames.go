package frames

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// MaxParts is the maximum number of entry parts. A set of parts is a uint64 with one bit per part.
const MaxParts = 64

// Config is the configuration of Frames.
type Config[T any] struct {
	Space memory.Space[T]
	Rank  int
	Seed  uint64 // seeds the random draws
	// The rank belongs to replica Replica out of Replicas; a zero Replicas means 1. Entry i of a replica's batch
	// has index i·Replicas+Replica in the batch, unless Extent.Order says otherwise.
	Replica, Replicas int
	Parts             []string     // names of the entry parts
	Losses            *loss.Ledger // nil if no stage records losses
	Cells             *T           // the loss cells on the rank's device; nil if it has none
	// Seeds[i] is the initial gradient of loss i: the step's power-of-two scale times the loss's
	// coefficient, or 0 for a metric.
	Seeds []float32
	// Zero sets a parameter's gradient to zero before the first addition to it.
	Zero func(g T) error
	// Poison fills with NaN a gradient that the stage must overwrite. It is used under -tags invariants,
	// and is nil if the space cannot do this.
	Poison func(g T) error
	// Stages holds the declarations of all stages, in order, with nil for the stages of other ranks.
	Stages []*Declaration[T]
}

// Extent is a step's plan and the number of microbatches in flight on this rank.
type Extent struct {
	Plan        *schedule.Plan // must include StageWindows, SendWindows and the order of its microbatches in the batch
	Wanted      []uint64       // the parts that this rank reads: see schedule.Plan.Wanted
	EntryWindow int            // number of consecutive entries that are live, including look-ahead; the ring grows if there are more
	Order       []int          // by batch index in the replica: the index in the global batch; nil for the order of Config.Replica
	// Repeats is set if batch index 0 is an additional microbatch, which comes before the microbatches of Order
	// and repeats the one with the index Repeated in the global batch. Its forwards are Recompute passes, which
	// record nothing; DiscardGradients discards its gradients.
	Repeats  bool
	Repeated int
}

// WantedParts returns the parts of an entry that this rank reads, as a set with one bit per part.
func (e *Extent) WantedParts(batchIndex int) uint64 {
	if len(e.Wanted) == 0 {
		return 0
	}
	return e.Wanted[batchIndex%len(e.Wanted)]
}

// Counts holds the number of live objects in each place: entry parts in Part, open frames in Saved, and
// for every other place how many stages, or pairs of stage and microbatch, occupy it. After every
// microbatch it is compared with the plan's counts.
type Counts [effects.NumBufferKinds]int

// Frames holds all tensors that one rank keeps alive in a step. It is reused from step to step, and is
// not safe for concurrent use.
type Frames[T any] struct {
	Config      Config[T]
	fused       memory.HoldReleaser[T] // the space itself, or an adapter that makes separate calls
	book        memory.Book            // nil if only the frames' book is audited
	offloadable offloadable[T]         // nil if the space cannot offload
	// Far is the rank's far memory; it is nil until a step offloads. Set it before Begin.
	Far       FarMemory[T]
	reclaimer memory.Reclaimer // nil if the space cannot reclaim
	lister    lister           // nil if the space cannot list its buffers
	stages    []stage[T]

	Step int64
	mark uint64

	entries     []Cell[T] // a ring of entries with len(Parts) cells each
	entryOwners []int     // the microbatch of each entry in the ring
	entryMask   int
	extent      Extent
	entry       entry[T]
	outputs     []Cell[T] // the last stage's outputs, within its action only
	bounded     func()    // see Dry; nil outside dry runs

	call       StageCall[T]
	generation uint64 // generation of the valid view
	failure    error  // first failure of a view in this step
	counts     Counts
	witness    witness[T] // used under -tags invariants
	account    account
	// LossDigest, unless nil, is a digest of the losses that forwards give, also in a Recompute pass.
	LossDigest *uint64
}

// stage holds one stage's frames, in a ring indexed by microbatch. The ring size is a power of two, so
// that a mask yields the index.
type stage[T any] struct {
	*Declaration[T]
	mask      int
	width     int       // Inputs + Outputs + Slots
	cells     []Cell[T] // the cells of all frames
	frames    []frame[T]
	sizes     []int64 // sizes of all frames' inputs in bytes; empty if the inputs' gradients are not needed
	outbox    outbox[T]
	gathered  []Cell[T]    // its gathered weights by parameter, between UNSHARD and RESHARD
	grads     []Cell[T]    // its whole gradients by parameter, between ZERO_GRAD and WAIT_REDUCE
	copies    []Cell[T]    // copies of its weights, from QUANTIZE to their drops
	farCopies []farCopy    // far copies of all frames' slots; empty if the plan offloads none of the slots
	uses      []ParamState // indexed by parameter
	losses    []LossState  // indexed by loss
	reduced   bool         // the reduction of its gradients has begun
	backward  bool         // the stage has a backward in this step: see Quantize
	access    Access       // grants everything that the stage declares
}

// ParamState is the state of a stage's use of a parameter.
type ParamState struct {
	Count   int  // contributions in this step
	Last    int  // microbatch of the last contribution, or -1
	Written bool // the accumulator holds a value from this step
	Asked   bool // a call in this step asked for the weight
}

// LossState is the state of one of a stage's losses.
type LossState struct {
	Last    int  // microbatch of the last record in this step, or -1
	Weighed bool // it was recorded with a weight, in any step
	Asked   bool // its seed was asked for, in any step
}

// New returns frames that hold nothing. They use the slices of cfg without copying them.
func New[T any](cfg Config[T]) *Frames[T] {
	cfg.Replicas = max(cfg.Replicas, 1)
	c := &Frames[T]{Config: cfg, stages: make([]stage[T], len(cfg.Stages))}
	c.book, _ = cfg.Space.(memory.Book)
	if c.fused, _ = cfg.Space.(memory.HoldReleaser[T]); c.fused == nil {
		c.fused = stepwise[T]{cfg.Space}
	}
	c.reclaimer, _ = cfg.Space.(memory.Reclaimer)
	c.lister, _ = cfg.Space.(lister)
	c.offloadable, _ = cfg.Space.(offloadable[T])
	if invariants.Enabled {
		c.witness = newWitness(cfg.Space)
	}
	for s, declared := range cfg.Stages {
		if declared != nil {
			c.stages[s] = stage[T]{
				Declaration: declared,
				width:       declared.Inputs + declared.Outputs + len(declared.Slots),
				uses:        make([]ParamState, len(declared.Params)),
				losses:      make([]LossState, len(declared.Losses)),
				access: Access{
					Slots: Range{Count: len(declared.Slots)}, Reads: Range{Count: len(declared.Reads)},
					Losses: Range{Count: len(declared.Losses)}, Params: Range{Count: len(declared.Params)},
					Copies: Range{Count: len(declared.WeightCopies)},
				},
				copies:   make([]Cell[T], len(declared.WeightCopies)),
				gathered: make([]Cell[T], len(declared.Params)),
				grads:    make([]Cell[T], len(declared.Params)),
			}
		}
	}
	c.call.Frames = c
	return c
}

// Books returns the number of audited books: two if the space has its own, else one.
func (c *Frames[T]) Books() int {
	if c.book != nil {
		return 2
	}
	return 1
}

// Begin prepares a step. The frames must hold nothing. The current state of the allocator's book becomes
// the baseline. Begin allocates only if the extent is larger than all earlier ones.
func (c *Frames[T]) Begin(step int64, pass Pass, extent Extent) {
	c.Step, c.extent, c.failure = step, extent, nil
	size := max(ringSize(extent.EntryWindow), len(c.entryOwners))
	c.entryMask = size - 1
	c.entries = resize(c.entries, size*len(c.Config.Parts))
	c.entryOwners = resize(c.entryOwners, size)
	for s := range c.stages {
		st := &c.stages[s]
		if st.Declaration == nil {
			continue
		}
		st.access.Pass, st.reduced = pass, false
		size := ringSize(extent.Plan.StageWindows[s])
		st.mask = size - 1
		st.cells = resize(st.cells, size*st.width)
		st.frames = resize(st.frames, size)
		st.sizes = st.sizes[:0]
		if st.InputGradient && pass == Train {
			st.sizes = resize(st.sizes, size*st.Inputs)
		}
		for i := range st.frames {
			cells := st.cells[i*st.width:][:st.width]
			st.frames[i] = frame[T]{inputs: cells[:st.Inputs], gradients: cells[st.Inputs:][:st.Outputs], slots: cells[st.Inputs+st.Outputs:]}
		}
		st.farCopies = st.farCopies[:0]
		if extent.Plan.OffloadSlots != nil && extent.Plan.OffloadSlots[s] != 0 {
			st.farCopies = resize(st.farCopies, size*len(st.Slots))
		}
		if extent.Plan.SendWindows != nil {
			st.outbox.begin(extent.Plan.SendWindows[s], st.Declaration)
		}
		for i := range st.uses {
			st.uses[i] = ParamState{Last: -1}
		}
		for i := range st.losses {
			st.losses[i].Last = -1
		}
	}
	if invariants.Enabled {
		c.witness.begin(c.stages)
	}
	c.counts = Counts{}
	if c.reclaimer != nil {
		c.mark = c.reclaimer.Mark()
	}
	c.account = account{running: site{stage: -1, microbatch: -1}, leaked: max(c.account.leaked+c.account.excess, 0)}
	if c.book != nil {
		c.book.Stats(&c.account.baseline)
		c.book.ResetPeak()
		var stays int64 // bytes that earlier steps leaked may have been freed since
		for class, bytes := range c.account.baseline.Classes {
			if !memory.Class(class).Lasting() {
				stays += bytes
			}
		}
		c.account.leaked = min(c.account.leaked, stays)
	}
	if c.Far != nil {
		c.Far.ResetPeak()
	}
}

// ringSize returns the size of a ring for n microbatches, which is a power of two.
func ringSize(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }

// resize returns a slice of length n, which reuses the memory of s if it is large enough.
func resize[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}

// Index returns the index in the global batch of an entry of the replica's batch.
func (c *Frames[T]) Index(batchIndex int) int {
	if c.Repeats(batchIndex) {
		return c.extent.Repeated
	}
	if c.extent.Repeats {
		batchIndex--
	}
	if c.extent.Order != nil {
		return c.extent.Order[batchIndex]
	}
	return batchIndex*c.Config.Replicas + c.Config.Replica
}

// Repeats reports whether an entry of the replica's batch repeats a microbatch.
func (c *Frames[T]) Repeats(batchIndex int) bool { return c.extent.Repeats && batchIndex == 0 }

// Counts returns the current counts.
func (c *Frames[T]) Counts() Counts { return c.counts }

// Contributions returns ErrContribution for each of a stage's uses of parameters that is declared as
// Every and has not contributed n times, in a step in which the stage has run n microbatches (L5).
func (c *Frames[T]) Contributions(stage, n int) error {
	var faults []error
	st := &c.stages[stage]
	for i, use := range st.uses {
		param := &st.Params[i]
		if param.Contributes == Every && use.Count != n {
			faults = append(faults, fmt.Errorf("%w: parameter %q of stage %d (%s): %d of %d microbatches; declare it Sometimes or Frozen if that is intended",
				ErrContribution, param.Name, stage, st.Name, use.Count, n))
		}
	}
	return errors.Join(faults...)
}

// Unseeded returns the name of a training loss that the stage has recorded without ever asking for its
// seed, so that its gradient would be missing. It returns "" if there is none.
func (c *Frames[T]) Unseeded(stage int) string {
	st := &c.stages[stage]
	for i := range st.losses {
		if l := &st.losses[i]; l.Weighed && !l.Asked && c.Config.Seeds[st.Losses[i]] != 0 {
			return st.LossNames[i]
		}
	}
	return ""
}

// Asked reports whether a stage has asked for one of its weights in this step.
func (c *Frames[T]) Asked(stage int) bool {
	return slices.ContainsFunc(c.stages[stage].uses, func(u ParamState) bool { return u.Asked })
}

// Written reports whether the accumulator of a stage's use of a parameter holds a value from this step.
func (c *Frames[T]) Written(stage, param int) bool { return c.stages[stage].uses[param].Written }

// SetWritten marks the accumulator as written although nothing has contributed, because it was set to
// zero.
func (c *Frames[T]) SetWritten(stage, param int) { c.stages[stage].uses[param].Written = true }

// DiscardGradients forgets the contributions of the first microbatch to the gradients of a stage's parameters. The
// next microbatch overwrites the gradients.
func (c *Frames[T]) DiscardGradients(stage int) {
	for i := range c.stages[stage].uses {
		use := &c.stages[stage].uses[i]
		use.Count, use.Last, use.Written = 0, -1, false
	}
}

// SetReduced marks the gradients of a stage as reduced: a later contribution would be lost.
func (c *Frames[T]) SetReduced(stage int) { c.stages[stage].reduced = true }

// Abort stops the copies of far memory and releases everything that the frames hold. If the space
// can reclaim, it also frees all other buffers allocated since Begin that are not resident (L8).
// The frames are then ready for Begin.
func (c *Frames[T]) Abort() {
	c.generation++
	if c.Far != nil {
		c.Far.Stop() // before the buffers that it copies are released
		c.Far.Reclaim(0)
	}
	release := func(cells []Cell[T]) {
		for i := range cells {
			if cells[i].Held() {
				// An error means that user code has broken the handle; Reclaim below frees the
				// buffer. The place would only name a suspect, and an aborted step reports none.
				_ = c.drop(&cells[i], c.account.running.stage, effects.Saved)
			}
		}
	}
	release(c.entries)
	release(c.outputs)
	for s := range c.stages {
		release(c.stages[s].cells)
		release(c.stages[s].outbox.cells)
		release(c.stages[s].gathered)
		release(c.stages[s].grads)
		release(c.stages[s].copies)
		clear(c.stages[s].farCopies)
	}
	if c.reclaimer != nil {
		c.reclaimer.Reclaim(c.mark)
	}
	c.counts, c.account.excess = Counts{}, 0
}
