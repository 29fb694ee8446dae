package runner

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport"
)

// reduce runs REDUCE_GRAD: it exposes the gradients of a stage to the other replicas, and begins
// their reduction.
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

// sumStage adds the gradients of a stage over the replicas, on the goroutine of d.reduces. At level 0
// it also receives the sums that other replicas own. The sums of tied parameters follow at step end.
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

// sum adds the owned elements of a gradient over the replicas, in their order, chunk by chunk. The
// sum goes into the replica's own gradient: sum adds the elements of the earlier replicas to each
// other, then adds the total to the gradient, and then adds the later replicas one after the other.
func (d *replica[T]) sum(ctx context.Context, s, p int, sh *shard) error {
	owned, tag := elementsOf(sh.whole, sh.first, sh.count), d.tag(transport.Grads, s, p)
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

// getOthers fills a buffer of a whole parameter with the elements that the other replicas own and
// that the given rank of their pipelines exposes.
func (d *replica[T]) getOthers(ctx context.Context, rank int, tag transport.Tag, sh *shard, whole []byte) error {
	for other, owned := range sh.owned {
		if other != d.replica && owned.count > 0 {
			if err := d.windows.Get(ctx, d.globalRank(other, rank), tag, 0, elementsOf(whole, owned.first, owned.count)); err != nil {
				return err
			}
		}
	}
	return nil
}

// addFloats adds src to dst, both float32 in the byte order of the host.
func addFloats(dst, src []byte) {
	src = src[:len(dst)]
	for i := 0; i+4 <= len(dst); i += 4 {
		sum := math.Float32frombits(binary.NativeEndian.Uint32(dst[i:])) + math.Float32frombits(binary.NativeEndian.Uint32(src[i:]))
		binary.NativeEndian.PutUint32(dst[i:], math.Float32bits(sum))
	}
}

// elementsOf returns count float32 elements of b, beginning with first.
func elementsOf(b []byte, first, count int) []byte { return b[4*first:][:4*count] }

// waitReduced waits until the reduction of a stage has ended and the other replicas have read its
// gradients. They can then be released.
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

// finish completes all reductions. Then it adds the uses of each tied parameter: the owner adds the
// elements that its replica owns, in the order of the stages, and exposes the totals. With several
// ranks every use receives the totals; with one rank only the owner has them.
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
	if d.Placement.Ranks == 1 {
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
	rank := d.rankOf(tie.Use)
	if rank == d.Rank {
		addFloats(sums, d.shard(tie.Use).own)
		return nil
	}
	for offset := 0; offset < len(sums); offset += len(d.buffers[0]) {
		chunk := d.buffers[0][:min(len(d.buffers[0]), len(sums)-offset)]
		if err := d.windows.Get(ctx, d.base+rank, d.tag(transport.Sums, tie.Use.Stage, tie.Use.Param), int64(offset), chunk); err != nil {
			return err
		}
		addFloats(sums[offset:][:len(chunk)], chunk)
	}
	return nil
}

// squares appends, for each parameter whose owner is on this rank, the number of parts that the
// replica owns, and the sum of squares of each part.
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
