package replicas

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/transport"
)

// Reduce runs REDUCE_GRAD: it exposes a stage's gradients to the other replicas, and starts their
// reduction.
func (d *Shared[T]) Reduce(ctx context.Context, s int) (err error) {
	for _, p := range d.byStage[s] {
		if !p.trains {
			continue
		}
		if p.gradient, err = d.movable.View(d.cfg.Frames.Grad(s, p.use.Param)); err != nil {
			return err
		}
		p.ownGradient = p.own.of(p.gradient)
		if d.cfg.Level >= 2 && p.own.count > 0 {
			if p.ownGradient, err = d.movable.View(p.declared.Grad); err != nil {
				return err
			}
		}
		if err := d.windows.Expose(d.tag(transport.Grads, p.use), p.gradient); err != nil {
			return err
		}
	}
	d.cfg.Frames.SetReduced(s)
	d.reduces.add(ctx, s)
	return nil
}

// sumStage sums a stage's gradients over the replicas, on the goroutine of d.reduces. At level 0 it
// also receives the sums that other replicas own. The sums of tied parameters are received only at
// step end.
func (d *Shared[T]) sumStage(ctx context.Context, s int) error {
	for _, p := range d.byStage[s] {
		if !p.trains || p.own.count == 0 {
			continue
		}
		if err := d.sum(ctx, p); err != nil {
			return err
		}
		if d.cfg.Level == 0 && !p.tied || p.tied && !p.owner {
			if err := d.windows.Expose(d.tag(transport.Sums, p.use), p.ownGradient); err != nil {
				return err
			}
		}
	}
	for _, p := range d.byStage[s] {
		if p.trains && d.cfg.Level == 0 && !p.tied {
			if err := d.getOthers(ctx, transport.Sums, p.use, p.owned, p.gradient); err != nil {
				return err
			}
		}
	}
	return nil
}

// sum adds up a gradient's owned elements over the replicas, in replica order, chunk by chunk. The
// sum goes into the replica's own gradient: sum adds up the elements of the earlier replicas, adds
// their total to the gradient, and then adds the later replicas one by one.
func (d *Shared[T]) sum(ctx context.Context, p *param[T]) error {
	owned, tag := p.own.of(p.gradient), d.tag(transport.Grads, p.use)
	for begin := 0; begin < len(owned); begin += len(d.buffers[0]) {
		chunk := owned[begin:min(begin+len(d.buffers[0]), len(owned))]
		earlier, offset := d.buffers[0][:len(chunk)], 4*p.own.first+begin
		for replica := range d.cfg.Replicas {
			var err error
			switch me := d.cfg.Replica; {
			case replica > me:
				err = d.add(ctx, replica, d.cfg.Rank, tag, offset, chunk)
			case replica == me && me > 0:
				addFloats(chunk, earlier)
			case replica < me && replica > 0:
				err = d.add(ctx, replica, d.cfg.Rank, tag, offset, earlier)
			case replica < me:
				err = d.get(ctx, replica, d.cfg.Rank, tag, offset, earlier)
			}
			if err != nil {
				return err
			}
		}
		if d.cfg.Level >= 2 {
			copy(p.ownGradient[begin:], chunk)
		}
	}
	return nil
}

// add adds to dst the values that a rank of a replica exposes under a tag.
func (d *Shared[T]) add(ctx context.Context, replica, rank int, tag transport.Tag, offset int, dst []byte) error {
	src := d.buffers[1][:len(dst)]
	if err := d.get(ctx, replica, rank, tag, offset, src); err != nil {
		return err
	}
	addFloats(dst, src)
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

// WaitReduced waits until a stage's reduction has ended, and returns its error.
func (d *Shared[T]) WaitReduced(s int) error { return d.reduces.wait(s) }

// WithdrawGradients waits until the other replicas have read a stage's gradients, which can then be
// released.
func (d *Shared[T]) WithdrawGradients(ctx context.Context, s int) error {
	for _, p := range d.byStage[s] {
		if !p.trains {
			continue
		}
		if err := d.windows.Withdraw(ctx, d.tag(transport.Grads, p.use), int64(len(p.gradient)-4*p.own.count)); err != nil {
			return err
		}
	}
	return nil
}

// AddTied adds the uses of each tied parameter, once all reductions have ended: the owner adds the
// elements that its replica owns, in stage order, and exposes the totals, which every use receives.
func (d *Shared[T]) AddTied(ctx context.Context) error {
	d.reduces.stop()
	for _, tie := range d.cfg.Ties {
		if owner := d.byUse[tie.Owner]; owner != nil {
			if err := d.addUse(ctx, tie.Use, owner.ownGradient); err != nil {
				return err
			}
		}
	}
	for _, p := range d.params {
		if p.tied && p.owner && p.own.count > 0 {
			if err := d.windows.Expose(d.tag(transport.Sums, p.use), p.ownGradient); err != nil {
				return err
			}
		}
	}
	for _, p := range d.params {
		if d.cfg.Level == 0 && p.tied && p.owner {
			if err := d.getOthers(ctx, transport.Sums, p.use, p.owned, p.gradient); err != nil {
				return err
			}
		}
	}
	for _, tie := range d.cfg.Ties {
		if use := d.byUse[tie.Use]; use != nil {
			if err := d.receiveTotal(ctx, tie.Owner, use); err != nil {
				return err
			}
		}
	}
	return nil
}

// addUse adds a use of a tied parameter to its owner's sums.
func (d *Shared[T]) addUse(ctx context.Context, use effects.Use, sums []byte) error {
	if here := d.byUse[use]; here != nil {
		addFloats(sums, here.ownGradient)
		return nil
	}
	for begin := 0; begin < len(sums); begin += len(d.buffers[1]) {
		chunk := sums[begin:min(begin+len(d.buffers[1]), len(sums))]
		if err := d.add(ctx, d.cfg.Replica, d.rankOf(use), d.tag(transport.Sums, use), begin, chunk); err != nil {
			return err
		}
	}
	return nil
}

// receiveTotal sets a use of a tied parameter to the owner's total.
func (d *Shared[T]) receiveTotal(ctx context.Context, owner effects.Use, p *param[T]) error {
	if here := d.byUse[owner]; here != nil {
		if d.cfg.Level == 0 {
			copy(p.gradient, here.gradient)
		} else {
			copy(p.ownGradient, here.ownGradient)
		}
		return nil
	}
	if p.own.count > 0 {
		if err := d.get(ctx, d.cfg.Replica, d.rankOf(owner), d.tag(transport.Sums, owner), 0, p.ownGradient); err != nil {
			return err
		}
	}
	if d.cfg.Level > 0 {
		return nil
	}
	return d.getOthers(ctx, transport.Sums, owner, p.owned, p.gradient)
}

// Measure appends measurements of the gradients of owners: first the number of parts of every gradient
// that the replica owns, and then the sums of squares of these parts.
func (d *Shared[T]) Measure(to []float64, owners []effects.Use) (_ []float64, err error) {
	for _, owner := range owners {
		to = append(to, float64(d.byUse[owner].parts.count))
	}
	for _, owner := range owners {
		p := d.byUse[owner]
		if p.parts.count == 0 {
			continue
		}
		grad := p.declared.Grad
		if d.cfg.Level < 2 {
			if grad, err = d.sharded.Slice(grad, p.own.first, p.own.count); err != nil {
				return to, err
			}
		}
		n := len(to)
		to = append(to, make([]float64, p.parts.count)...)
		if err := d.sharded.PartSquares(to[n:], grad, p.elements, p.parts.first); err != nil {
			return to, err
		}
	}
	return to, nil
}
