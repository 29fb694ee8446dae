package runner

import (
	"fmt"

	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/transport"
)

// replica holds the state that a rank shares with the same rank of the other replicas, and the
// goroutines that reduce gradients and gather weights while the rank continues. The goroutines work
// on bytes: only the goroutine of a rank may call operations of its device.
//
// The methods are in three files: this one prepares them, reduce.go reduces gradients, and gather.go
// gathers weights.
type replica[T any] struct {
	*worker[T]
	space   memory.Movable[T]
	windows transport.Windows
	count   int           // of replicas
	shards  [][]shard     // by stage and parameter; nil for a stage of another rank
	uses    []effects.Use // those with a shard
	chunks  []T           // two buffers of class Resident
	buffers [2][]byte     // the bytes of chunks
	reduces *lane         // reduces gradients
	gathers *lane         // gathers weights
}

// shard is a use of a parameter by a stage of the rank, and the elements of it that the replica owns
// (Owned).
type shard struct {
	name         string
	elements     int            // of the whole parameter
	part, parts  int            // the first owned part, and the number of owned parts (Sharded)
	first, count int            // the first owned element, and the number of owned elements
	owned        []elementRange // by replica: the elements that it owns
	tied, owner  bool           // the parameter has several uses; this is the first one
	trains       bool
	// whole is the gradient to which the stage adds, and own the owned elements of the sum, as bytes.
	whole, own []byte
	// weight is the whole weight, and ownWeight the owned elements of it, as bytes.
	weight, ownWeight []byte
}

// elementRange is a range of the elements of a parameter.
type elementRange struct{ first, count int }

// maxChunk is the largest number of elements that a reduction receives and adds at once.
const maxChunk = 1 << 16

// resolveReplica sets r.shards if there are several replicas and the rank has parameters to share.
func (r *worker[T]) resolveReplica() error {
	d := &replica[T]{worker: r, count: r.cfg.Replicas.count(), shards: make([][]shard, len(r.Stages))}
	tied := map[effects.Use]bool{}
	for _, tie := range r.tied {
		tied[tie.Owner], tied[tie.Use] = true, true
	}
	owner := map[effects.Use]bool{}
	for _, use := range r.owners {
		owner[use] = true
	}
	for s := range r.Stages {
		if !r.Stages[s].Own {
			continue
		}
		d.shards[s] = make([]shard, len(r.Stages[s].Params))
		for p := range r.Stages[s].Params {
			if r.Stages[s].Params[p].Contributes != frames.Frozen || r.level == 3 {
				d.uses = append(d.uses, effects.Use{Stage: s, Param: p})
			}
		}
	}
	if d.count == 1 || len(d.uses) == 0 {
		return nil
	}
	var able bool
	if d.windows, able = r.transport.(transport.Windows); !able {
		return fmt.Errorf("%d replicas need a transport that is transport.Windows, and World.Transport returns %T", d.count, r.transport)
	}
	if d.space, able = r.Space.(memory.Movable[T]); !able {
		return fmt.Errorf("%d replicas need spaces that are memory.Movable, such as kernels.Host, not %T", d.count, r.Space)
	}
	if r.sharded == nil {
		return fmt.Errorf("%d replicas need Gradients that are runner.Sharded, such as kernels.Host, not %T", d.count, r.gradients)
	}
	var like T
	chunk := 0
	for _, use := range d.uses {
		param, sh := &r.Stages[use.Stage].Params[use.Param], d.shard(use)
		*sh = shard{name: param.Name, elements: r.elements(param), tied: tied[use], owner: owner[use], trains: param.Contributes != frames.Frozen}
		sh.part, sh.parts = ownedParts(r.sharded, sh.name, sh.elements, r.replica, d.count)
		for replica := range d.count {
			first, count := Owned(r.sharded, sh.name, sh.elements, replica, d.count)
			sh.owned = append(sh.owned, elementRange{first, count})
		}
		sh.first, sh.count = sh.owned[r.replica].first, sh.owned[r.replica].count
		if chunk = max(chunk, min(sh.count, maxChunk)); sh.trains && sh.count > 0 {
			like = param.Grad
		}
		if err := d.checkSizes(param, sh); err != nil {
			st := &r.Stages[use.Stage]
			return fmt.Errorf("stage %d (%s): %w", use.Stage, st.Spec.Name, err)
		}
	}
	d.reduces, d.gathers = newLane(len(r.Stages), d.sumStage), newLane(len(r.Stages), d.gatherStage)
	r.shards = d
	if chunk == 0 {
		return nil
	}
	for i := range d.buffers {
		h, err := r.sharded.New(memory.Resident, like, chunk)
		if err != nil {
			return fmt.Errorf("a buffer of %d elements for reductions: %w", chunk, err)
		}
		d.chunks = append(d.chunks, h)
		if d.buffers[i], err = d.space.View(h); err != nil {
			return err
		}
	}
	return nil
}

// checkSizes compares the sizes of a use with the sizes that the level requires.
func (d *replica[T]) checkSizes(param *frames.Use[T], sh *shard) error {
	grad, weight := sh.elements, sh.elements
	if sh.elements == 0 {
		return fmt.Errorf("the parameter %q has no elements here: set Use.Elements to the number in the whole parameter", sh.name)
	}
	if d.level >= 2 {
		grad = sh.count
	}
	if d.level >= 3 {
		weight = sh.count
	}
	if have := d.sharded.Elements(param.Grad); have != grad && sh.trains && grad > 0 {
		return fmt.Errorf("the gradient of %q has %d elements, but Replicas.Shard %d needs %d of %d: see runner.Owned", sh.name, have, d.level, grad, sh.elements)
	}
	if have := d.sharded.Elements(param.Weight); have != weight && d.level > 0 && weight > 0 {
		return fmt.Errorf("the weight of %q has %d elements, but Replicas.Shard %d needs %d of %d: set Use.Weight, see runner.Owned", sh.name, have, d.level, weight, sh.elements)
	}
	if bytes := d.Space.Bytes(param.Weight); bytes != 4*int64(weight) && d.level > 0 && weight > 0 {
		return fmt.Errorf("the weight of %q has %d bytes for %d elements: Replicas.Shard %d gathers float32", sh.name, bytes, weight, d.level)
	}
	return nil
}

// elements returns the number of elements of a whole parameter.
func (r *worker[T]) elements(param *frames.Use[T]) int {
	if param.Elements > 0 {
		return param.Elements
	}
	return max(r.sharded.Elements(param.Grad), r.sharded.Elements(param.Weight))
}

func (d *replica[T]) shard(use effects.Use) *shard { return &d.shards[use.Stage][use.Param] }

// globalRank returns the number over all replicas of a rank of a replica.
func (d *replica[T]) globalRank(replica, rank int) int { return replica*d.Placement.Ranks + rank }

func (d *replica[T]) tag(content transport.Content, stage, param int) transport.Tag {
	return transport.Tag{Step: d.step, Content: content, Stage: stage, Param: param}
}

// begin begins a step: if weights are sharded, it exposes those of the rank to the other replicas.
func (d *replica[T]) begin() (err error) {
	for _, l := range []*lane{d.reduces, d.gathers} {
		l.busy, l.waited = 0, 0
	}
	for _, use := range d.uses {
		if sh := d.shard(use); d.level == 3 && sh.count > 0 {
			if sh.ownWeight, err = d.space.View(d.Stages[use.Stage].Params[use.Param].Weight); err != nil {
				return err
			}
			if err := d.windows.Expose(d.tag(transport.Weights, use.Stage, use.Param), sh.ownWeight); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeWhole makes the buffers of whole parameters of a stage, which the frames hold: gradients at
// ZERO_GRAD, weights at UNSHARD. It makes none if the level does not shard them.
func (r *worker[T]) makeWhole(place effects.Place, s int) error {
	return r.Frames.PutParams(place, s, func(p int) (h T, made bool, err error) {
		param := &r.Stages[s].Params[p]
		if r.level < 2 || r.level < 3 && place == effects.Gathered || place == effects.Accumulator && param.Contributes == frames.Frozen {
			return h, false, nil
		}
		like := param.Grad
		if place == effects.Gathered {
			like = param.Weight
		}
		h, err = r.sharded.New(memory.Unsharded, like, r.elements(param))
		return h, err == nil, err
	})
}

// stop waits for the goroutines. If the step has failed, the transport has ended their calls.
func (d *replica[T]) stop() {
	d.reduces.stop()
	d.gathers.stop()
}

// close releases the buffers for reductions.
func (d *replica[T]) close() (err error) {
	for _, h := range d.chunks {
		if _, failed := d.Space.Release(h); err == nil {
			err = failed
		}
	}
	d.chunks = nil
	return err
}
