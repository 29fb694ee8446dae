package replicas

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner/internal/calls"
	"github.com/weir-ml/weir/transport"
)

// Config describes a rank, and what it needs to share its parameters.
type Config[T any] struct {
	Replica, Replicas int // the number of the rank's replica, and of all replicas
	Rank              int // within the replica
	Placement         schedule.Placement
	Level             int                    // Replicas.Shard
	Space             memory.Space[T]        // must be memory.Movable
	Transport         transport.Transport[T] // must be transport.Windows
	Gradients         any                    // must be Sharded
	Frames            *frames.Frames[T]      // holds the whole gradients and weights in a step
	Stages            []calls.Stage[T]       // of the replica
	Ties              []effects.Tie          // on all ranks
}

// Sharded is runner.Sharded.
type Sharded[T any] interface {
	Divider
	Elements(h T) int
	Slice(h T, first, n int) (T, error)
	PartSquares(sums []float64, g T, n, part int) error
	New(class memory.Class, like T, n int) (T, error)
}

// Shared holds the parameters that a rank shares with the same rank in the other replicas. Its methods
// are called on the rank's goroutine.
type Shared[T any] struct {
	cfg     Config[T]
	movable memory.Movable[T] // the space
	windows transport.Windows // the transport
	sharded Sharded[T]        // the arithmetic on gradients

	params  []*param[T]               // of all the rank's stages, in stage order
	byStage [][]*param[T]             // params by stage
	byUse   map[effects.Use]*param[T] // params by use
	chunks  []T                       // two buffers of class Resident; none if the replica owns no elements
	buffers [2][]byte                 // the bytes behind chunks
	reduces *lane                     // reduces gradients
	gathers *lane                     // gathers weights
	step    int64                     // of the transfers
}

// param is a use, by a stage of the rank, of a parameter that trains or whose weight is sharded.
type param[T any] struct {
	use         effects.Use
	declared    *frames.Use[T]
	trains      bool
	tied, owner bool   // the parameter has several uses; it trains, and this use is its first
	elements    int    // number of elements of the whole parameter
	owned       []span // the elements that each replica owns
	own         span   // the elements that this replica owns
	parts       span   // the parts that this replica owns
	// gradient is the gradient to which the stage adds, and ownGradient the owned elements of the sum, as bytes.
	gradient, ownGradient []byte
	// weight is the whole weight, and ownWeight its owned elements, as bytes.
	weight, ownWeight []byte
}

// maxChunk is the largest number of elements that a reduction receives and adds in one piece.
const maxChunk = 1 << 16

// New returns the Shared of a rank, or nil if the rank shares nothing.
func New[T any](cfg Config[T]) (*Shared[T], error) {
	d := &Shared[T]{cfg: cfg, byStage: make([][]*param[T], len(cfg.Stages)), byUse: map[effects.Use]*param[T]{}}
	d.addParams()
	if d.cfg.Replicas == 1 || len(d.params) == 0 {
		return nil, nil
	}
	var able bool
	if d.windows, able = cfg.Transport.(transport.Windows); !able {
		return nil, fmt.Errorf("%d replicas need a transport that is transport.Windows, and Topology.Transport returns %T", d.cfg.Replicas, cfg.Transport)
	}
	if d.movable, able = cfg.Space.(memory.Movable[T]); !able {
		return nil, fmt.Errorf("%d replicas need spaces that are memory.Movable, such as kernels.Host, not %T", d.cfg.Replicas, cfg.Space)
	}
	if d.sharded, able = cfg.Gradients.(Sharded[T]); !able {
		return nil, fmt.Errorf("%d replicas need Gradients that are runner.Sharded, such as kernels.Host, not %T", d.cfg.Replicas, cfg.Gradients)
	}
	for _, p := range d.params {
		d.divide(p)
		if err := d.checkSizes(p); err != nil {
			return nil, fmt.Errorf("stage %d (%s): %w", p.use.Stage, cfg.Stages[p.use.Stage].Spec.Name, err)
		}
	}
	d.reduces, d.gathers = newLane(len(cfg.Stages), d.sumStage), newLane(len(cfg.Stages), d.gatherStage)
	return d, d.allocate()
}

// addParams lists the parameters that the rank shares.
func (d *Shared[T]) addParams() {
	for s := range d.cfg.Stages {
		if !d.cfg.Stages[s].Own {
			continue
		}
		for i := range d.cfg.Stages[s].Params {
			declared := &d.cfg.Stages[s].Params[i]
			trains := declared.Contributes != frames.Frozen
			if trains || d.cfg.Level == 3 {
				p := &param[T]{use: effects.Use{Stage: s, Param: i}, declared: declared, trains: trains, owner: trains}
				d.params, d.byStage[s], d.byUse[p.use] = append(d.params, p), append(d.byStage[s], p), p
			}
		}
	}
	for _, tie := range d.cfg.Ties {
		if p := d.byUse[tie.Owner]; p != nil {
			p.tied = true
		}
		if p := d.byUse[tie.Use]; p != nil {
			p.tied, p.owner = true, false
		}
	}
}

// divide divides a parameter among the replicas.
func (d *Shared[T]) divide(p *param[T]) {
	p.elements = Elements(d.sharded, p.declared)
	for replica := range d.cfg.Replicas {
		parts := partsOf(d.sharded, p.declared.Name, p.elements, replica, d.cfg.Replicas)
		p.owned = append(p.owned, elementsOf(d.sharded, p.elements, parts))
		if replica == d.cfg.Replica {
			p.parts, p.own = parts, p.owned[replica]
		}
	}
}

// Elements returns the number of elements of a whole parameter.
func Elements[T any](sharded Sharded[T], use *frames.Use[T]) int {
	if use.Elements > 0 {
		return use.Elements
	}
	return max(sharded.Elements(use.Grad), sharded.Elements(use.Weight))
}

// checkSizes compares a use's sizes with those that the level requires.
func (d *Shared[T]) checkSizes(p *param[T]) error {
	name, level := p.declared.Name, d.cfg.Level
	if p.elements == 0 {
		return fmt.Errorf("the parameter %q has no elements here: set Use.Elements to the number in the whole parameter", name)
	}
	grad, weight := p.elements, p.elements
	if level >= 2 {
		grad = p.own.count
	}
	if level >= 3 {
		weight = p.own.count
	}
	if have := d.sharded.Elements(p.declared.Grad); have != grad && p.trains && grad > 0 {
		return fmt.Errorf("the gradient of %q has %d elements, but Replicas.Shard %d needs %d of %d: see runner.ShardRange", name, have, level, grad, p.elements)
	}
	if have := d.sharded.Elements(p.declared.Weight); have != weight && level > 0 && weight > 0 {
		return fmt.Errorf("the weight of %q has %d elements, but Replicas.Shard %d needs %d of %d: set Use.Weight, see runner.ShardRange", name, have, level, weight, p.elements)
	}
	if bytes := d.cfg.Space.Bytes(p.declared.Weight); bytes != 4*int64(weight) && level > 0 && weight > 0 {
		return fmt.Errorf("the weight of %q has %d bytes for %d elements: Replicas.Shard %d gathers float32", name, bytes, weight, level)
	}
	return nil
}

// allocate allocates the buffers for reductions.
func (d *Shared[T]) allocate() (err error) {
	var like T
	chunk := 0
	for _, p := range d.params {
		if chunk = max(chunk, min(p.own.count, maxChunk)); p.trains && p.own.count > 0 {
			like = p.declared.Grad
		}
	}
	for i := range d.buffers {
		if chunk == 0 {
			break
		}
		h, err := d.sharded.New(memory.Resident, like, chunk)
		if err != nil {
			return fmt.Errorf("a buffer of %d elements for reductions: %w", chunk, err)
		}
		d.chunks = append(d.chunks, h)
		if d.buffers[i], err = d.movable.View(h); err != nil {
			return err
		}
	}
	return nil
}

// Begin begins a step. If weights are sharded, it exposes the rank's weights to the other replicas.
func (d *Shared[T]) Begin(step int64) error {
	for _, l := range []*lane{d.reduces, d.gathers} {
		l.busy, l.waited = 0, 0
	}
	d.step = step
	if d.cfg.Level < 3 {
		return nil
	}
	return d.ExposeWeights(step)
}

// Waited returns how long the rank has waited for the step's reductions and gathers.
func (d *Shared[T]) Waited() time.Duration { return d.reduces.waited + d.gathers.waited }

// Took returns how long the step's reductions and gathers have taken. It must not be called before Stop.
func (d *Shared[T]) Took() (reduces, gathers time.Duration) { return d.reduces.busy, d.gathers.busy }

// Stop waits for the goroutines. If the step has failed, the transport has ended their calls.
func (d *Shared[T]) Stop() {
	d.reduces.stop()
	d.gathers.stop()
}

// Close releases the buffers for reductions.
func (d *Shared[T]) Close() (err error) {
	for _, h := range d.chunks {
		if _, failed := d.cfg.Space.Release(h); err == nil {
			err = failed
		}
	}
	d.chunks = nil
	return err
}

// tag returns the tag of a transfer.
func (d *Shared[T]) tag(content transport.Content, use effects.Use) transport.Tag {
	return transport.Tag{Step: d.step, Content: content, Stage: use.Stage, Param: use.Param}
}

// get reads the bytes that a rank of a replica exposes under a tag.
func (d *Shared[T]) get(ctx context.Context, replica, rank int, tag transport.Tag, offset int, dst []byte) error {
	return d.windows.Get(ctx, replica*d.cfg.Placement.Ranks+rank, tag, int64(offset), dst)
}

// getOthers fills a whole parameter with the elements that the other replicas own. In each replica, the
// rank of the use exposes them.
func (d *Shared[T]) getOthers(ctx context.Context, content transport.Content, use effects.Use, owned []span, whole []byte) error {
	for replica, theirs := range owned {
		if replica == d.cfg.Replica || theirs.count == 0 {
			continue
		}
		if err := d.get(ctx, replica, d.rankOf(use), d.tag(content, use), 0, theirs.of(whole)); err != nil {
			return err
		}
	}
	return nil
}

// rankOf returns the rank of a use.
func (d *Shared[T]) rankOf(use effects.Use) int { return d.cfg.Placement.Rank[use.Stage] }
