package runner

import (
	"context"
	"fmt"

	"github.com/weir-ml/weir/transport"
)

// gather runs UNSHARD: it begins to gather the weights of a stage into buffers that the frames hold.
func (d *replica[T]) gather(ctx context.Context, s int) (err error) {
	for p := range d.shards[s] {
		if d.shards[s][p].weight, err = d.space.View(d.Frames.Weight(s, p)); err != nil {
			return err
		}
	}
	d.gathers.add(ctx, s)
	return nil
}

// gatherStage gathers the weights of a stage, on the goroutine of d.gathers.
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

// gathersWeights reports whether Update exchanges weights between replicas.
func (r *Runner[T]) gathersWeights() bool {
	return r.cfg.Replicas.Shard == 1 || r.cfg.Replicas.Shard == 2
}

// gatherWeights completes the weights of the ranks of this process after an update, in three phases.
// Afterwards no other rank reads them. If the update has failed, it ends the wait of the other
// replicas.
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
				failed = w.shards.withdrawWeights(context.Background())
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

// withdrawWeights waits until the other replicas have read the elements that this one exposes.
func (d *replica[T]) withdrawWeights(ctx context.Context) error {
	for _, use := range d.uses {
		if sh := d.shard(use); sh.count > 0 {
			if err := d.windows.Withdraw(ctx, d.tag(transport.Weights, use.Stage, use.Param), int64(d.count-1)*int64(4*sh.count)); err != nil {
				return err
			}
		}
	}
	return nil
}
