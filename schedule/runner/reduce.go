package runner

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport"
)

// replica is what a rank of one of several replicas needs beyond its pipeline. A replica owns a range
// of every parameter (Owned). REDUCE_GRAD exposes the gradients of a stage to the other replicas
// (transport.Windows), and a goroutine of the rank adds the pieces of the range that this replica
// owns, in the order of the replicas, while the rank continues. The goroutines touch bytes only:
// operations of a device are for the goroutine of its rank.
type replica[T any] struct {
	*worker[T]
	space   memory.Movable[T]
	windows transport.Windows
	count   int       // of replicas
	shards  [][]shard // by stage and parameter; nil for a stage of another rank
	uses    []effects.Use
	chunks  []T // two, of class Resident
	buffers [2][]byte
	reduces *lane // of gradients
	gathers *lane // of weights
}

// shard is a use of a parameter by a stage of the rank.
type shard struct {
	name         string
	elements     int     // of the whole parameter
	part, parts  int     // that the replica owns, see Sharded
	first, count int     // elements that the replica owns
	owned        []piece // by replica
	tied, owner  bool
	trains       bool
	// whole is the gradient that the stage adds to, and own the owned elements of the sum, as bytes.
	whole, own []byte
	// weight is the gathered weight, and part of it the owned elements.
	weight, ownWeight []byte
}

// piece is a range of the elements of a parameter.
type piece struct{ first, count int }

// maxChunk is the largest number of elements that are added at once.
const maxChunk = 1 << 16

// resolveReplica makes the replica of the rank, if there are several and the rank has parameters to
// share.
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
			sh.owned = append(sh.owned, piece{first, count})
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

// checkSizes compares the sizes of a use with those that the level asks for.
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
		return fmt.Errorf("the gradient of %q has %d elements, and Replicas.Shard %d needs %d of %d: see runner.Owned", sh.name, have, d.level, grad, sh.elements)
	}
	if have := d.sharded.Elements(param.Weight); have != weight && d.level > 0 && weight > 0 {
		return fmt.Errorf("the weight of %q has %d elements, and Replicas.Shard %d needs %d of %d: set Use.Weight, see runner.Owned", sh.name, have, d.level, weight, sh.elements)
	}
	if bytes := d.Space.Bytes(param.Weight); bytes != 4*int64(weight) && d.level > 0 && weight > 0 {
		return fmt.Errorf("the weight of %q has %d bytes for %d elements: Replicas.Shard %d gathers float32", sh.name, bytes, weight, d.level)
	}
	return nil
}

// stop ends the goroutines. If the step has failed, the transport has ended their calls.
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

// elements returns the number of elements of a whole parameter.
func (r *worker[T]) elements(param *frames.Use[T]) int {
	if param.Elements > 0 {
		return param.Elements
	}
	return max(r.sharded.Elements(param.Grad), r.sharded.Elements(param.Weight))
}

func (d *replica[T]) shard(use effects.Use) *shard { return &d.shards[use.Stage][use.Param] }

// at returns a rank of the pipeline of a replica, counted over all replicas.
func (d *replica[T]) at(replica, rank int) int { return replica*d.Placement.Ranks + rank }

func (d *replica[T]) tag(content transport.Content, stage, param int) transport.Tag {
	return transport.Tag{Step: d.step, Content: content, Stage: stage, Param: param}
}

// reduce begins the reduction of the gradients of a stage.
func (d *replica[T]) reduce(ctx context.Context, s int) (err error) {
	for p := range d.shards[s] {
		sh := &d.shards[s][p]
		if !sh.trains {
			continue
		}
		if sh.whole, err = d.space.View(d.Frames.Grad(s, p)); err != nil {
			return err
		}
		sh.own = elementsOf(sh.whole, sh.first, sh.count)
		if d.level >= 2 && sh.count > 0 {
			if sh.own, err = d.space.View(d.Stages[s].Params[p].Grad); err != nil {
				return err
			}
		}
		if err := d.windows.Expose(d.tag(transport.Grads, s, p), sh.whole); err != nil {
			return err
		}
	}
	d.Frames.SetReduced(s)
	d.reduces.add(ctx, s)
	return nil
}

// elementsOf returns count elements of float32 from first on, as bytes.
func elementsOf(b []byte, first, count int) []byte { return b[4*first:][:4*count] }

// sumStage adds the gradients of a stage over the replicas, on the goroutine of reductions. At level 0
// it also receives the sums that the others own. Those of tied parameters follow at step end.
func (d *replica[T]) sumStage(ctx context.Context, s int) error {
	for p := range d.shards[s] {
		sh := &d.shards[s][p]
		if !sh.trains || sh.count == 0 {
			continue
		}
		if err := d.sum(ctx, s, p, sh); err != nil {
			return err
		}
		if d.level == 0 && !sh.tied || sh.tied && !sh.owner {
			if err := d.windows.Expose(d.tag(transport.Sums, s, p), sh.own); err != nil {
				return err
			}
		}
	}
	for p := range d.shards[s] {
		if sh := &d.shards[s][p]; sh.trains && d.level == 0 && !sh.tied {
			if err := d.getOthers(ctx, d.Rank, d.tag(transport.Sums, s, p), sh, sh.whole); err != nil {
				return err
			}
		}
	}
	return nil
}

// sum adds the pieces of the elements that the replica owns, in the order of the replicas. The own
// piece gets the sum of those before it, which is the same sum, and then each one after it.
func (d *replica[T]) sum(ctx context.Context, s, p int, sh *shard) error {
	all, tag := elementsOf(sh.whole, sh.first, sh.count), d.tag(transport.Grads, s, p)
	for at := 0; at < len(all); at += len(d.buffers[0]) {
		piece := all[at:min(at+len(d.buffers[0]), len(all))]
		before, next := d.buffers[0][:len(piece)], d.buffers[1][:len(piece)]
		for other := range d.count {
			if other == d.replica {
				if other > 0 {
					addFloats(piece, before)
				}
				continue
			}
			to := next
			if other == 0 {
				to = before
			}
			if err := d.windows.Get(ctx, d.at(other, d.Rank), tag, int64(4*sh.first+at), to); err != nil {
				return err
			}
			switch {
			case other > d.replica:
				addFloats(piece, next)
			case other > 0:
				addFloats(before, next)
			}
		}
		if d.level >= 2 {
			copy(sh.own[at:], piece)
		}
	}
	return nil
}

// getOthers fills a buffer of a whole parameter with the elements that the other replicas own, which
// they expose on a rank of their pipeline.
func (d *replica[T]) getOthers(ctx context.Context, rank int, tag transport.Tag, sh *shard, whole []byte) error {
	for other, own := range sh.owned {
		if other != d.replica && own.count > 0 {
			if err := d.windows.Get(ctx, d.at(other, rank), tag, 0, elementsOf(whole, own.first, own.count)); err != nil {
				return err
			}
		}
	}
	return nil
}

// addFloats adds src to dst, both float32 in the order of bytes of the host.
func addFloats(dst, src []byte) {
	src = src[:len(dst)]
	for i := 0; i+4 <= len(dst); i += 4 {
		sum := math.Float32frombits(binary.NativeEndian.Uint32(dst[i:])) + math.Float32frombits(binary.NativeEndian.Uint32(src[i:]))
		binary.NativeEndian.PutUint32(dst[i:], math.Float32bits(sum))
	}
}

// waitReduced returns when the reduction of a stage is over, and the other replicas have read the
// gradients of the stage, so that they can be released.
func (d *replica[T]) waitReduced(ctx context.Context, s int) error {
	if err := d.reduces.wait(s); err != nil {
		return d.locate(schedule.Act(schedule.ReduceGrad, s, 0), err)
	}
	for p := range d.shards[s] {
		sh := &d.shards[s][p]
		if !sh.trains {
			continue
		}
		if err := d.windows.Withdraw(ctx, d.tag(transport.Grads, s, p), int64(len(sh.whole)-4*sh.count)); err != nil {
			return err
		}
	}
	return nil
}

// finish completes all reductions, and adds the uses of tied parameters: the owner of a parameter
// adds the elements that its replica owns, in the order of the stages, and exposes the sums.
func (d *replica[T]) finish(ctx context.Context) error {
	for s := range d.shards {
		if err := d.reduces.wait(s); err != nil {
			return d.locate(schedule.Act(schedule.ReduceGrad, s, 0), err)
		}
	}
	d.reduces.stop()
	for _, tie := range d.tied {
		if d.rankOf(tie.Owner) != d.Rank {
			continue
		}
		if err := d.addUse(ctx, tie, d.shard(tie.Owner).own); err != nil {
			return err
		}
	}
	for _, use := range d.uses {
		if sh := d.shard(use); sh.tied && sh.owner && sh.count > 0 {
			if err := d.windows.Expose(d.tag(transport.Sums, use.Stage, use.Param), sh.own); err != nil {
				return err
			}
		}
	}
	for _, use := range d.uses {
		if sh := d.shard(use); d.level == 0 && sh.tied && sh.owner {
			if err := d.getOthers(ctx, d.Rank, d.tag(transport.Sums, use.Stage, use.Param), sh, sh.whole); err != nil {
				return err
			}
		}
	}
	if d.Placement.Ranks == 1 { // only the first use has the total
		return nil
	}
	for _, tie := range d.tied {
		if d.rankOf(tie.Use) != d.Rank {
			continue
		}
		sh, rank, tag := d.shard(tie.Use), d.rankOf(tie.Owner), d.tag(transport.Sums, tie.Owner.Stage, tie.Owner.Param)
		if rank == d.Rank {
			copy(sh.own, d.shard(tie.Owner).own)
		} else if sh.count > 0 {
			if err := d.windows.Get(ctx, d.base+rank, tag, 0, sh.own); err != nil {
				return err
			}
		}
		if d.level == 0 {
			if err := d.getOthers(ctx, rank, tag, sh, sh.whole); err != nil {
				return err
			}
		}
	}
	return nil
}

// addUse adds a use of a tied parameter to the sums of its owner.
func (d *replica[T]) addUse(ctx context.Context, tie effects.Tie, sums []byte) error {
	if rank := d.rankOf(tie.Use); rank != d.Rank {
		for at := 0; at < len(sums); at += len(d.buffers[0]) {
			piece := d.buffers[0][:min(len(d.buffers[0]), len(sums)-at)]
			if err := d.windows.Get(ctx, d.base+rank, d.tag(transport.Sums, tie.Use.Stage, tie.Use.Param), int64(at), piece); err != nil {
				return err
			}
			addFloats(sums[at:][:len(piece)], piece)
		}
		return nil
	}
	addFloats(sums, d.shard(tie.Use).own)
	return nil
}

// squares appends, for each parameter with its first use on this rank, the number of parts that the
// replica owns, and their sums of squares.
func (d *replica[T]) squares(to []float64) ([]float64, error) {
	for _, owner := range d.owners {
		if d.rankOf(owner) != d.Rank {
			continue
		}
		sh := d.shard(owner)
		to = append(to, float64(sh.parts))
		if sh.parts == 0 {
			continue
		}
		grad, err := d.gradient(owner), error(nil)
		if d.level < 2 {
			if grad, err = d.sharded.Slice(grad, sh.first, sh.count); err != nil {
				return to, err
			}
		}
		n := len(to)
		to = append(to, make([]float64, sh.parts)...)
		if err := d.sharded.PartSquares(to[n:], grad, sh.elements, sh.part); err != nil {
			return to, err
		}
	}
	return to, nil
}

// begin exposes the weights of the rank to the others, if weights are sharded.
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

// gather begins to gather the weights of a stage into buffers that the frames hold.
func (d *replica[T]) gather(ctx context.Context, s int) (err error) {
	for p := range d.shards[s] {
		if d.shards[s][p].weight, err = d.space.View(d.Frames.Weight(s, p)); err != nil {
			return err
		}
	}
	d.gathers.add(ctx, s)
	return nil
}

// gatherStage gathers the weights of a stage, on the goroutine of gathers.
func (d *replica[T]) gatherStage(ctx context.Context, s int) error {
	for p := range d.shards[s] {
		sh := &d.shards[s][p]
		copy(elementsOf(sh.weight, sh.first, sh.count), sh.ownWeight)
		if err := d.getOthers(ctx, d.Rank, d.tag(transport.Weights, s, p), sh, sh.weight); err != nil {
			return err
		}
	}
	return nil
}

// exposeWeights exposes the elements of the rank's weights that the replica has updated.
func (d *replica[T]) exposeWeights() error {
	for _, use := range d.uses {
		weight, err := d.space.View(d.Stages[use.Stage].Params[use.Param].Weight)
		if err != nil {
			return err
		}
		sh := d.shard(use)
		if sh.weight = weight; sh.count > 0 {
			if err := d.windows.Expose(d.tag(transport.Weights, use.Stage, use.Param), elementsOf(weight, sh.first, sh.count)); err != nil {
				return err
			}
		}
	}
	return nil
}

// getWeights receives the elements that the other replicas have updated.
func (d *replica[T]) getWeights(ctx context.Context) error {
	for _, use := range d.uses {
		sh := d.shard(use)
		if err := d.getOthers(ctx, d.Rank, d.tag(transport.Weights, use.Stage, use.Param), sh, sh.weight); err != nil {
			return err
		}
	}
	return nil
}

// readWeights returns when the other replicas have read the elements that this one exposes.
func (d *replica[T]) readWeights(ctx context.Context) error {
	for _, use := range d.uses {
		if sh := d.shard(use); sh.count > 0 {
			if err := d.windows.Withdraw(ctx, d.tag(transport.Weights, use.Stage, use.Param), int64(d.count-1)*int64(4*sh.count)); err != nil {
				return err
			}
		}
	}
	return nil
}

// gathersWeights reports whether Update exchanges weights between replicas.
func (r *Runner[T]) gathersWeights() bool {
	return r.cfg.Replicas.Shard == 1 || r.cfg.Replicas.Shard == 2
}

// gatherWeights completes the weights of the ranks of this process after an update. Afterwards no
// other rank reads them. If the update has failed, the other replicas do not wait for it.
func (r *Runner[T]) gatherWeights(failed error) error {
	if !r.gathersWeights() {
		return failed
	}
	for phase := 0; phase < 3 && failed == nil; phase++ {
		for _, w := range r.workers {
			if w.shards == nil || failed != nil {
				continue
			}
			switch phase {
			case 0:
				failed = w.shards.exposeWeights()
			case 1:
				failed = w.shards.getWeights(context.Background())
			default:
				failed = w.shards.readWeights(context.Background())
			}
			if failed != nil {
				failed = fmt.Errorf("runner: %s, weights after an update: %w", w.name(), failed)
			}
		}
	}
	if failed != nil {
		for _, w := range r.workers {
			w.leave(failed)
		}
	}
	return failed
}
