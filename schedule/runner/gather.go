package runner

import (
	"context"
	"fmt"

	"github.com/weir-ml/weir/transport"
)

// gather runs UNSHARD: it starts gathering a stage's weights into buffers that the frames hold.
func (d *replica[T]) gather(ctx context.Context, s int) (err error) {
	for _, sh := range d.byStage[s] {
		if sh.weight, err = d.space.View(d.Frames.Weight(s, sh.use.Param)); err != nil {
			return err
		}
	}
	d.gathers.add(ctx, s)
	return nil
}

// gatherStage gathers a stage's weights, on the goroutine of d.gathers.
func (d *replica[T]) gatherStage(ctx context.Context, s int) error {
	for _, sh := range d.byStage[s] {
		copy(elementsOf(sh.weight, sh.first, sh.count), sh.ownWeight)
	}
	return d.getWeights(ctx, d.byStage[s])
}

// gathersWeights reports whether Update exchanges weights between replicas.
func (r *Runner[T]) gathersWeights() bool {
	return r.cfg.Replicas.Shard == 1 || r.cfg.Replicas.Shard == 2
}

// gatherWeights completes the weights of the ranks of this process after an update, in three phases.
// Once it returns, no other rank reads them. If the update has failed, gatherWeights instead makes
// the other replicas stop waiting.
func (r *Runner[T]) gatherWeights(failed error) error {
	if !r.gathersWeights() {
		return failed
	}
	for _, phase := range []func(d *replica[T]) error{
		(*replica[T]).exposeWeights,
		func(d *replica[T]) error { return d.getWeights(context.Background(), d.shards) },
		(*replica[T]).withdrawWeights,
	} {
		for _, w := range r.workers {
			if w.shards == nil || failed != nil {
				continue
			}
			if failed = phase(w.shards); failed != nil {
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

// exposeWeights exposes the elements of the rank's weights that the replica owns.
func (d *replica[T]) exposeWeights() (err error) {
	for _, sh := range d.shards {
		if d.level == 3 && sh.count == 0 {
			continue // the rank has no buffer for the weight
		}
		if sh.ownWeight, err = d.space.View(d.param(sh.use).Weight); err != nil {
			return err
		}
		if d.level < 3 { // the rank has the whole weight
			sh.weight, sh.ownWeight = sh.ownWeight, elementsOf(sh.ownWeight, sh.first, sh.count)
		}
		if sh.count > 0 {
			if err := d.windows.Expose(d.tag(transport.Weights, sh.use), sh.ownWeight); err != nil {
				return err
			}
		}
	}
	return nil
}

// getWeights receives the elements of whole weights that the other replicas own.
func (d *replica[T]) getWeights(ctx context.Context, shards []*shard) error {
	for _, sh := range shards {
		if err := d.getOthers(ctx, transport.Weights, sh.use, sh, sh.weight); err != nil {
			return err
		}
	}
	return nil
}

// withdrawWeights waits until the other replicas have read the elements that this replica exposes.
func (d *replica[T]) withdrawWeights() error {
	for _, sh := range d.shards {
		if sh.count > 0 {
			if err := d.windows.Withdraw(context.Background(), d.tag(transport.Weights, sh.use), int64(d.count-1)*int64(4*sh.count)); err != nil {
				return err
			}
		}
	}
	return nil
}
