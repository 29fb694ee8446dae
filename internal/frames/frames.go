package frames

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// MaxParts is the number of entry parts that a set of bits can name.
const MaxParts = 64

// Config is what a context is made of.
type Config[T any] struct {
	Space memory.Space[T]
	Rank  int
	Seed  uint64 // of random draws
	// Replica of Replicas, 0 for 1, says which of all microbatches are this context's.
	Replica, Replicas int
	Parts             []string     // names of the entry parts
	Losses            *loss.Ledger // where losses are recorded; nil where no stage has any
	Cells             *T           // of Losses in the rank's device; nil if it has no cells
	// Seeds[i] is the seed of the gradient of loss i: the step's power-of-two scale
	// times the loss's coefficient, 0 for a metric.
	Seeds []float32
	// Zero sets the gradient of a parameter to zero, before what is added to it first.
	Zero func(g T) error
	// Poison fills a gradient that is lent to be overwritten, under -tags invariants; nil
	// where the space cannot.
	Poison func(g T) error
	// Stages by number; a nil pointer is a stage of another rank.
	Stages []*Layout[T]
}

// Validate reports every fault of the configuration.
func (c *Config[T]) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("batchctx: "+format, args...)) }
	if c.Space == nil {
		fault("Space is nil")
	}
	if len(c.Parts) > MaxParts {
		fault("%d entry parts, at most %d", len(c.Parts), MaxParts)
	}
	for s, layout := range c.Stages {
		if layout == nil {
			continue
		}
		if min(layout.Inputs, layout.Outputs) < 0 {
			fault("stage %d (%s) declares a negative number of tensors", s, layout.Name)
		}
		for _, read := range layout.Reads {
			if read.Part < 0 || read.Part >= len(c.Parts) {
				fault("stage %d (%s) reads entry part %d of %d", s, layout.Name, read.Part, len(c.Parts))
			}
		}
		for _, l := range layout.Losses {
			if l < 0 || l >= len(c.Seeds) || c.Losses == nil || len(layout.LossNames) != len(layout.Losses) {
				fault("stage %d (%s) records loss %d of %d", s, layout.Name, l, len(c.Seeds))
			}
		}
	}
	return errors.Join(faults...)
}

// Extent is a step's plan, and how much of it is in flight at once on this rank.
type Extent struct {
	*schedule.Plan          // with Windows, Outgoing and the order of its microbatches in the batch
	Wanted         []uint64 // the rank's, of the plan
	Entries        int      // consecutive items with a live entry, look-ahead included; more make room
}

// Of returns the parts that are wanted of an item.
func (e *Extent) Of(item int) uint64 {
	if len(e.Wanted) == 0 {
		return 0
	}
	return e.Wanted[item%len(e.Wanted)]
}

// Counts are numbers of things alive by place, compared with the plan's after every
// microbatch: parts of entries, stages' frames (in the place Saved), and of all other
// places those that hold something.
type Counts [effects.NumPlaces]int

// Frames holds everything that one rank keeps alive in a step. It is reused
// from step to step, and for one goroutine.
type Frames[T any] struct {
	space     memory.Space[T]
	fused     memory.Fused[T]  // the space's own, or made of its calls
	book      memory.Book      // nil: one book is audited
	reclaimer memory.Reclaimer // nil: nothing can be reclaimed
	rank      int
	seed      uint64
	replica   int64
	replicas  int64
	parts     []string
	losses    *loss.Ledger
	cells     *T
	seeds     []float32
	zero      func(g T) error
	poison    func(g T) error
	stages    []stage[T]

	step int64
	mark uint64

	entries   []cell[T] // ring of entries, len(parts) cells each
	entryOf   []int     // microbatch of each entry, at the place of its item
	entryMask int
	extent    Extent
	entry     entry[T]
	outputs   []cell[T] // of the last stage, within its action
	bounded   func()    // in a dry run: the size asked for next is a bound

	view         View[T]
	generation   uint64 // of the view that is valid
	failure      error  // of a view in this step
	quantization Quantization[T]
	counts       Counts
	account
}

// stage is one stage's frames, a ring indexed by microbatch. Rings have a power
// of two places, so that the index is a mask.
type stage[T any] struct {
	*Layout[T]
	mask   int
	width  int       // Inputs + Outputs + Slots
	cells  []cell[T] // of all frames
	frames []frame[T]
	sizes  []int64 // of the inputs of all frames, in bytes; none where nobody wants their gradients
	outbox outbox[T]
	shards []cell[T] // its gathered weights, between UNSHARD and RESHARD
	copies []cell[T] // of its weights, from QUANTIZE to their drops
	uses   []use     // by parameter
	losses []losses  // by loss
	scope  Scope     // of a call in this step: all of the stage's own
}

// frame is what one stage keeps of one microbatch.
type frame[T any] struct {
	open                     bool
	microbatch               int       // whose it is
	inputs, gradients, slots []cell[T] // gradients are those of its outputs
}

type use struct {
	count   int  // contributions in this step
	last    int  // microbatch of the last one, -1 for none
	written bool // the accumulator holds something of this step
}

// losses is what a stage has done with one of its losses.
type losses struct {
	last    int  // microbatch of the last record in this step, -1 for none
	weighed bool // it was recorded with a weight, in any step
	asked   bool // its seed was asked for, in any step
}

// New returns an empty context. The context keeps cfg's slices.
func New[T any](cfg Config[T]) (*Frames[T], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Frames[T]{
		space: cfg.Space, rank: cfg.Rank, seed: cfg.Seed, parts: cfg.Parts,
		replica: int64(cfg.Replica), replicas: int64(max(cfg.Replicas, 1)),
		losses: cfg.Losses, cells: cfg.Cells, seeds: cfg.Seeds, zero: cfg.Zero, poison: cfg.Poison, stages: make([]stage[T], len(cfg.Stages)),
	}
	c.book, _ = cfg.Space.(memory.Book)
	if c.fused, _ = cfg.Space.(memory.Fused[T]); c.fused == nil {
		c.fused = apart[T]{cfg.Space}
	}
	c.reclaimer, _ = cfg.Space.(memory.Reclaimer)
	for s, layout := range cfg.Stages {
		if layout != nil {
			c.stages[s] = stage[T]{
				Layout: layout,
				width:  layout.Inputs + layout.Outputs + len(layout.Slots),
				uses:   make([]use, len(layout.Params)),
				losses: make([]losses, len(layout.Losses)),
				scope: Scope{
					Slots: Range{Count: len(layout.Slots)}, Reads: Range{Count: len(layout.Reads)},
					Losses: Range{Count: len(layout.Losses)}, Params: Range{Count: len(layout.Params)},
					Copies: Range{Count: len(layout.WeightCopies)},
				},
				copies: make([]cell[T], len(layout.WeightCopies)),
			}
		}
	}
	c.view.ctx = c
	return c, nil
}

// Books returns how many books are audited: two where the space has one of its
// own, else one.
func (c *Frames[T]) Books() int {
	if c.book != nil {
		return 2
	}
	return 1
}

// Begin prepares a step: everything is empty, and what is live now in the
// allocator's book is the baseline. It allocates only where the extent is larger
// than any before.
func (c *Frames[T]) Begin(step int64, pass Pass, extent Extent) {
	c.step, c.extent, c.failure = step, extent, nil
	places := max(ring(extent.Entries), len(c.entryOf))
	c.entryMask = places - 1
	c.entries = resize(c.entries, places*len(c.parts))
	c.entryOf = resize(c.entryOf, places)
	for s := range c.stages {
		st := &c.stages[s]
		if st.Layout == nil {
			continue
		}
		st.scope.Pass = pass
		places := ring(extent.Windows[s])
		st.mask = places - 1
		st.cells = resize(st.cells, places*st.width)
		st.frames = resize(st.frames, places)
		st.sizes = st.sizes[:0]
		if st.InputGradient && pass == Train {
			st.sizes = resize(st.sizes, places*st.Inputs)
		}
		for i := range st.frames {
			cells := st.cells[i*st.width:][:st.width]
			st.frames[i] = frame[T]{inputs: cells[:st.Inputs], gradients: cells[st.Inputs:][:st.Outputs], slots: cells[st.Inputs+st.Outputs:]}
		}
		if extent.Outgoing != nil {
			st.outbox.begin(extent.Outgoing[s], st.Layout)
		}
		for i := range st.uses {
			st.uses[i] = use{last: -1}
		}
		for i := range st.losses {
			st.losses[i].last = -1
		}
	}
	c.counts = Counts{}
	if c.reclaimer != nil {
		c.mark = c.reclaimer.Mark()
	}
	c.account.begin(c.book)
}

// ring returns the places of a ring for n microbatches: a power of two.
func ring(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }

// resize returns a slice of n values, in s's memory where it fits: of cells that hold nothing.
func resize[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}

// Counts returns what is alive now.
func (c *Frames[T]) Counts() Counts { return c.counts }

// Contributions checks that every use of a parameter by a stage contributed as often
// as declared in a step of n microbatches of that stage (L5).
func (c *Frames[T]) Contributions(stage, n int) error {
	var faults []error
	st := &c.stages[stage]
	for i, use := range st.uses {
		param := &st.Params[i]
		if param.Contributes == Every && use.count != n {
			faults = append(faults, fmt.Errorf("%w: parameter %q of stage %d (%s): %d of %d microbatches; declare it Sometimes or Frozen where that is meant",
				ErrContribution, param.Name, stage, st.Name, use.count, n))
		}
	}
	return errors.Join(faults...)
}

// Unseeded returns the name of a loss that trains, that the stage has recorded, and whose
// seed none of its calls has asked for: its gradient is left out. "" is none.
func (c *Frames[T]) Unseeded(stage int) string {
	st := &c.stages[stage]
	for i := range st.losses {
		if l := &st.losses[i]; l.weighed && !l.asked && c.seeds[st.Losses[i]] != 0 {
			return st.LossNames[i]
		}
	}
	return ""
}

// Written reports whether the accumulator of a use of a parameter holds something of
// this step.
func (c *Frames[T]) Written(stage, param int) bool { return c.stages[stage].uses[param].written }

// SetWritten says that it does, without a contribution: it was set to zero.
func (c *Frames[T]) SetWritten(stage, param int) { c.stages[stage].uses[param].written = true }

// Abort releases everything that the context holds, and with a space that can
// reclaim, everything else that was allocated since Begin and is not resident
// (L8). The context is ready for the next Begin.
func (c *Frames[T]) Abort() {
	c.view.end()
	c.generation++
	release := func(cells []cell[T]) {
		for i := range cells {
			if cells[i].held() {
				// An error here means that user code has broken the handle; the reclaim below frees it.
				_ = c.drop(&cells[i], c.running.stage, effects.Saved)
			}
		}
	}
	release(c.entries)
	release(c.outputs)
	for s := range c.stages {
		release(c.stages[s].cells)
		release(c.stages[s].outbox.cells)
		release(c.stages[s].shards)
		release(c.stages[s].copies)
	}
	if c.reclaimer != nil {
		c.reclaimer.Reclaim(c.mark)
	}
	c.counts = Counts{}
}
