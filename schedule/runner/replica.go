package runner

import (
	"context"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/transport"
)

// replica holds the state that a rank shares with the same rank in the other replicas, and the
// goroutines that reduce gradients and gather weights while the rank continues. The goroutines work
// on bytes: only a rank's own goroutine may call operations on its device.
//
// The methods are in three files: this one does the setup, reduce.go reduces gradients, and gather.go
// gathers weights.
type replica[T any] struct {
	*worker[T]
	space   memory.Movable[T]
	windows transport.Windows
	count   int                    // number of replicas
	shards  []*shard               // of all the rank's stages, in stage order
	byStage [][]*shard             // the same
	byUse   map[effects.Use]*shard // the same
	chunks  []T                    // two buffers of class Resident
	buffers [2][]byte              // the bytes behind chunks
	reduces *lane                  // reduces gradients
	gathers *lane                  // gathers weights
}

// shard is a use, by a stage of the rank, of a parameter that trains or whose weight is sharded. It
// also tells which elements of the parameter the replica owns (Owned).
type shard struct {
	use          effects.Use
	elements     int            // number of elements of the whole parameter
	part, parts  int            // the first owned part and the number of owned parts (Sharded)
	first, count int            // the first owned element and the number of owned elements
	owned        []elementRange // the elements that each replica owns, by replica
	tied, owner  bool           // the parameter has several uses; this use is the first
	trains       bool
	// whole is the gradient to which the stage adds, and own the owned elements of the sum, as bytes.
	whole, own []byte
	// weight is the whole weight, and ownWeight its owned elements, as bytes.
	weight, ownWeight []byte
}

// elementRange is a range of the elements of a parameter.
type elementRange struct{ first, count int }

// maxChunk is the largest number of elements that a reduction receives and adds at once.
const maxChunk = 1 << 16

// resolveReplica sets r.shards if there are several replicas and the rank has parameters to share
// with them.
func (r *worker[T]) resolveReplica() error {
	d := &replica[T]{worker: r, count: r.cfg.Replicas.count(), byStage: make([][]*shard, len(r.Stages)), byUse: map[effects.Use]*shard{}}
	for s := range r.Stages {
		if !r.Stages[s].Own {
			continue
		}
		for p, param := range r.Stages[s].Params {
			use, trains := effects.Use{Stage: s, Param: p}, param.Contributes != frames.Frozen
			if trains || r.level == 3 {
				sh := &shard{use: use, trains: trains, owner: slices.Contains(r.measured, use)}
				d.shards, d.byStage[s], d.byUse[use] = append(d.shards, sh), append(d.byStage[s], sh), sh
			}
		}
	}
	if d.count == 1 || len(d.shards) == 0 {
		return nil
	}
	for _, tie := range r.tied {
		for _, use := range []effects.Use{tie.Owner, tie.Use} {
			if sh := d.byUse[use]; sh != nil {
				sh.tied = true
			}
		}
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
	for _, sh := range d.shards {
		param := r.param(sh.use)
		sh.elements = r.elements(param)
		sh.part, sh.parts = ownedParts(r.sharded, param.Name, sh.elements, r.replica, d.count)
		for replica := range d.count {
			first, count := Owned(r.sharded, param.Name, sh.elements, replica, d.count)
			sh.owned = append(sh.owned, elementRange{first, count})
		}
		sh.first, sh.count = sh.owned[r.replica].first, sh.owned[r.replica].count
		if chunk = max(chunk, min(sh.count, maxChunk)); sh.trains && sh.count > 0 {
			like = param.Grad
		}
		if err := d.checkSizes(param, sh); err != nil {
			return fmt.Errorf("stage %d (%s): %w", sh.use.Stage, r.Stages[sh.use.Stage].Spec.Name, err)
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

// checkSizes compares a use's sizes with those that the level requires.
func (d *replica[T]) checkSizes(param *frames.Use[T], sh *shard) error {
	grad, weight := sh.elements, sh.elements
	if sh.elements == 0 {
		return fmt.Errorf("the parameter %q has no elements here: set Use.Elements to the number in the whole parameter", param.Name)
	}
	if d.level >= 2 {
		grad = sh.count
	}
	if d.level >= 3 {
		weight = sh.count
	}
	if have := d.sharded.Elements(param.Grad); have != grad && sh.trains && grad > 0 {
		return fmt.Errorf("the gradient of %q has %d elements, but Replicas.Shard %d needs %d of %d: see runner.Owned", param.Name, have, d.level, grad, sh.elements)
	}
	if have := d.sharded.Elements(param.Weight); have != weight && d.level > 0 && weight > 0 {
		return fmt.Errorf("the weight of %q has %d elements, but Replicas.Shard %d needs %d of %d: set Use.Weight, see runner.Owned", param.Name, have, d.level, weight, sh.elements)
	}
	if bytes := d.Space.Bytes(param.Weight); bytes != 4*int64(weight) && d.level > 0 && weight > 0 {
		return fmt.Errorf("the weight of %q has %d bytes for %d elements: Replicas.Shard %d gathers float32", param.Name, bytes, weight, d.level)
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

// globalRank returns the number, counted over all replicas, of a replica's rank.
func (d *replica[T]) globalRank(replica, rank int) int { return replica*d.Placement.Ranks + rank }

func (d *replica[T]) tag(content transport.Content, use effects.Use) transport.Tag {
	return transport.Tag{Step: d.step, Content: content, Stage: use.Stage, Param: use.Param}
}

// getOthers fills a whole parameter's buffer with the elements that the other replicas own. In each
// replica, the rank of the use exposes them.
func (d *replica[T]) getOthers(ctx context.Context, content transport.Content, use effects.Use, sh *shard, whole []byte) error {
	for other, owned := range sh.owned {
		if other == d.replica || owned.count == 0 {
			continue
		}
		if err := d.windows.Get(ctx, d.globalRank(other, d.rankOf(use)), d.tag(content, use), 0, elementsOf(whole, owned.first, owned.count)); err != nil {
			return err
		}
	}
	return nil
}

// elementsOf returns count float32 elements of b, starting at first.
func elementsOf(b []byte, first, count int) []byte { return b[4*first:][:4*count] }

// begin begins a step. If weights are sharded, it exposes the rank's weights to the other replicas.
func (d *replica[T]) begin() error {
	for _, l := range []*lane{d.reduces, d.gathers} {
		l.busy, l.waited = 0, 0
	}
	if d.level < 3 {
		return nil
	}
	return d.exposeWeights()
}

// makeWhole allocates the buffers for a stage's whole parameters, which the frames hold: gradients at
// ZERO_GRAD, weights at UNSHARD. It allocates none if the level does not shard them.
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

// close releases the buffers used for reductions.
func (d *replica[T]) close() (err error) {
	for _, h := range d.chunks {
		if _, failed := d.Space.Release(h); err == nil {
			err = failed
		}
	}
	d.chunks = nil
	return err
}
