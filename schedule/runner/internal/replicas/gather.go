package replicas

import (
	"context"

	"github.com/weir-ml/weir/transport"
)

// Weights are exposed by the replica that owns them, and read by all others. At level 3 a rank has only
// the elements that its replica owns: they are exposed for the whole step, and the weights of a stage
// are gathered between UNSHARD and RESHARD. At levels 1 and 2 a rank has whole weights, of which its
// replica updates the elements that it owns: the others are gathered after an update.

// Gather runs UNSHARD: at level 3 it starts gathering a stage's weights into the buffers that the frames
// hold. At lower levels it does nothing.
func (d *Shared[T]) Gather(ctx context.Context, s int) (err error) {
	if d.cfg.Level < 3 {
		return nil
	}
	for _, p := range d.byStage[s] {
		if p.weight, err = d.movable.View(d.cfg.Frames.Weight(s, p.use.Param)); err != nil {
			return err
		}
	}
	d.gathers.add(ctx, s)
	return nil
}

// gatherStage gathers a stage's weights, on the goroutine of d.gathers.
func (d *Shared[T]) gatherStage(ctx context.Context, s int) error {
	for _, p := range d.byStage[s] {
		copy(p.own.of(p.weight), p.ownWeight)
	}
	return d.getWeights(ctx, d.byStage[s])
}

// WaitGathered waits until a stage's weights are gathered.
func (d *Shared[T]) WaitGathered(s int) error { return d.gathers.wait(s) }

// ExposeWeights lets the other replicas read the elements of the rank's weights that this replica owns,
// in the given step.
func (d *Shared[T]) ExposeWeights(step int64) (err error) {
	d.step = step
	for _, p := range d.params {
		if d.cfg.Level == 3 && p.own.count == 0 {
			continue // the rank has no buffer for the weight
		}
		if p.ownWeight, err = d.movable.View(p.declared.Weight); err != nil {
			return err
		}
		if d.cfg.Level < 3 { // the rank has the whole weight
			p.weight, p.ownWeight = p.ownWeight, p.own.of(p.ownWeight)
		}
		if p.own.count > 0 {
			if err := d.windows.Expose(d.tag(transport.Weights, p.use), p.ownWeight); err != nil {
				return err
			}
		}
	}
	return nil
}

// GetWeights receives the elements of the rank's whole weights that the other replicas own.
func (d *Shared[T]) GetWeights(ctx context.Context) error { return d.getWeights(ctx, d.params) }

func (d *Shared[T]) getWeights(ctx context.Context, params []*param[T]) error {
	for _, p := range params {
		if err := d.getOthers(ctx, transport.Weights, p.use, p.owned, p.weight); err != nil {
			return err
		}
	}
	return nil
}

// WithdrawWeights waits until the other replicas have read the elements that this replica exposes.
func (d *Shared[T]) WithdrawWeights(ctx context.Context) error {
	for _, p := range d.params {
		if p.own.count > 0 {
			if err := d.windows.Withdraw(ctx, d.tag(transport.Weights, p.use), int64(d.cfg.Replicas-1)*int64(4*p.own.count)); err != nil {
				return err
			}
		}
	}
	return nil
}
