package runner

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport"
)

// reduce runs REDUCE_GRAD: it exposes a stage's gradients to the other replicas, and starts their
// reduction.
func (d *replica[T]) reduce(ctx context.Context, s int) (err error) {
	for _, sh := range d.byStage[s] {
		if !sh.trains {
			continue
		}
		if sh.whole, err = d.space.View(d.Frames.Grad(s, sh.use.Param)); err != nil {
			return err
		}
		sh.own = elementsOf(sh.whole, sh.first, sh.count)
		if d.level >= 2 && sh.count > 0 {
			if sh.own, err = d.space.View(d.gradient(sh.use)); err != nil {
				return err
			}
		}
		if err := d.windows.Expose(d.tag(transport.Grads, sh.use), sh.whole); err != nil {
			return err
		}
	}
	d.Frames.SetReduced(s)
	d.reduces.add(ctx, s)
	return nil
}

// sumStage sums a stage's gradients over the replicas, on the goroutine of d.reduces. At level 0 it
// also receives the sums that other replicas own. The sums of tied parameters are received only at
// step end.
func (d *replica[T]) sumStage(ctx context.Context, s int) error {
	for _, sh := range d.byStage[s] {
		if !sh.trains || sh.count == 0 {
			continue
		}
		if err := d.sum(ctx, sh); err != nil {
			return err
		}
		if d.level == 0 && !sh.tied || sh.tied && !sh.owner {
			if err := d.windows.Expose(d.tag(transport.Sums, sh.use), sh.own); err != nil {
				return err
			}
		}
	}
	for _, sh := range d.byStage[s] {
		if sh.trains && d.level == 0 && !sh.tied {
			if err := d.getOthers(ctx, transport.Sums, sh.use, sh, sh.whole); err != nil {
				return err
			}
		}
	}
	return nil
}

// sum adds up a gradient's owned elements over the replicas, in replica order, chunk by chunk. The
// sum goes into the replica's own gradient: sum adds up the elements of the earlier replicas, adds
// their total to the gradient, and then adds the later replicas one by one.
func (d *replica[T]) sum(ctx context.Context, sh *shard) error {
	owned, tag := elementsOf(sh.whole, sh.first, sh.count), d.tag(transport.Grads, sh.use)
	for offset := 0; offset < len(owned); offset += len(d.buffers[0]) {
		chunk := owned[offset:min(offset+len(d.buffers[0]), len(owned))]
		earlier, next := d.buffers[0][:len(chunk)], d.buffers[1][:len(chunk)]
		for other := range d.count {
			if other == d.replica {
				if other > 0 {
					addFloats(chunk, earlier)
				}
				continue
			}
			to := next
			if other == 0 {
				to = earlier
			}
			if err := d.windows.Get(ctx, d.globalRank(other, d.Rank), tag, int64(4*sh.first+offset), to); err != nil {
				return err
			}
			switch {
			case other > d.replica:
				addFloats(chunk, next)
			case other > 0:
				addFloats(earlier, next)
			}
		}
		if d.level >= 2 {
			copy(sh.own[offset:], chunk)
		}
	}
	return nil
}

// addFloats adds src to dst; both hold float32 values in the host's byte order.
func addFloats(dst, src []byte) {
	src = src[:len(dst)]
	for i := 0; i+4 <= len(dst); i += 4 {
		sum := math.Float32frombits(binary.NativeEndian.Uint32(dst[i:])) + math.Float32frombits(binary.NativeEndian.Uint32(src[i:]))
		binary.NativeEndian.PutUint32(dst[i:], math.Float32bits(sum))
	}
}

// waitReduced waits until a stage's reduction has ended and the other replicas have read its
// gradients, which can then be released.
func (d *replica[T]) waitReduced(ctx context.Context, s int) error {
	if err := d.reduces.wait(s); err != nil {
		return d.locate(schedule.Act(schedule.ReduceGrad, s, 0), err)
	}
	for _, sh := range d.byStage[s] {
		if !sh.trains {
			continue
		}
		if err := d.windows.Withdraw(ctx, d.tag(transport.Grads, sh.use), int64(len(sh.whole)-4*sh.count)); err != nil {
			return err
		}
	}
	return nil
}

// finish completes all reductions. Then it adds the uses of each tied parameter: the owner adds the
// elements that its replica owns, in stage order, and exposes the totals, which every use receives.
func (d *replica[T]) finish(ctx context.Context) error {
	for s := range d.byStage {
		if err := d.reduces.wait(s); err != nil {
			return d.locate(schedule.Act(schedule.ReduceGrad, s, 0), err)
		}
	}
	d.reduces.stop()
	for _, tie := range d.tied {
		if d.rankOf(tie.Owner) != d.Rank {
			continue
		}
		if err := d.addUse(ctx, tie.Use, d.byUse[tie.Owner].own); err != nil {
			return err
		}
	}
	for _, sh := range d.shards {
		if sh.tied && sh.owner && sh.count > 0 {
			if err := d.windows.Expose(d.tag(transport.Sums, sh.use), sh.own); err != nil {
				return err
			}
		}
	}
	for _, sh := range d.shards {
		if d.level == 0 && sh.tied && sh.owner {
			if err := d.getOthers(ctx, transport.Sums, sh.use, sh, sh.whole); err != nil {
				return err
			}
		}
	}
	for _, tie := range d.tied {
		if d.rankOf(tie.Use) != d.Rank {
			continue
		}
		sh := d.byUse[tie.Use]
		if owner := d.byUse[tie.Owner]; owner != nil { // on this rank
			if d.level == 0 {
				copy(sh.whole, owner.whole)
			} else {
				copy(sh.own, owner.own)
			}
			continue
		}
		if sh.count > 0 {
			if err := d.windows.Get(ctx, d.base+d.rankOf(tie.Owner), d.tag(transport.Sums, tie.Owner), 0, sh.own); err != nil {
				return err
			}
		}
		if d.level == 0 {
			if err := d.getOthers(ctx, transport.Sums, tie.Owner, sh, sh.whole); err != nil {
				return err
			}
		}
	}
	return nil
}

// addUse adds a use of a tied parameter to its owner's sums.
func (d *replica[T]) addUse(ctx context.Context, use effects.Use, sums []byte) error {
	rank := d.rankOf(use)
	if rank == d.Rank {
		addFloats(sums, d.byUse[use].own)
		return nil
	}
	for offset := 0; offset < len(sums); offset += len(d.buffers[0]) {
		chunk := d.buffers[0][:min(len(d.buffers[0]), len(sums)-offset)]
		if err := d.windows.Get(ctx, d.base+rank, d.tag(transport.Sums, use), int64(offset), chunk); err != nil {
			return err
		}
		addFloats(sums[offset:][:len(chunk)], chunk)
	}
	return nil
}

// measure is like worker.measure, but for the parts of the gradients that the replica owns.
func (d *replica[T]) measure(to []float64) ([]float64, error) {
	for _, owner := range d.measured {
		to = append(to, float64(d.byUse[owner].parts))
	}
	for _, owner := range d.measured {
		sh := d.byUse[owner]
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
