package runner

import (
	"context"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/memory"
)

// sourceCheck holds the digests of parts with which a step checks the contract of an Indexed or IndexedShapes source.
// They are indexed by part; the digest is 0 if the source has not made the part.
type sourceCheck struct {
	made []uint64 // made before the step, from all microbatches; nil if the source is not checked
	due  []uint64 // made before the step, from the microbatches whose part the rank reads
	read []uint64 // made during the step, from the same microbatches
}

// checkSource has a source made by Indexed or IndexedShapes make every part of every microbatch of the
// replica before the step begins, if sources are checked. It releases each part immediately, so that the
// memory plan need not include it. It sets begun once the frames may hold buffers.
func (r *worker[T]) checkSource(ctx context.Context, plan *program, begun *bool) (err error) {
	r.running.sourceCheck = sourceCheck{}
	switch ofRank(r.calls.Source, r.global-r.cfg.Topology.First).(type) {
	case *indexed[T], *indexedShapes[T]:
	default:
		return nil
	}
	space, able := r.calls.Space.(memory.Hasher[T])
	if !able || !r.cfg.CheckSource && !invariants.Enabled {
		return nil
	}
	c := sourceCheck{made: make([]uint64, len(r.calls.Parts)), due: make([]uint64, len(r.calls.Parts)), read: make([]uint64, len(r.calls.Parts))}
	*begun = true
	r.begin(plan)
	r.running.action = plan.first
	defer r.calls.Frames.Recover(&err)
	for batchIndex := range plan.Microbatches {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.calls.Frames.TryEntry(batchIndex, func(part int, h T) error {
			hash, err := space.Hash(h)
			frames.Digest(&c.made[part], hash)
			if plan.extent.WantedParts(batchIndex)>>part&1 == 1 {
				frames.Digest(&c.due[part], hash)
			}
			return err
		})
		if err := r.calls.Frames.EndEntry(r.calls.Source.Next(ctx, batchctx.Entry[T](r.calls.Frames.EntryView()))); err != nil {
			return r.sourceError(batchIndex, err)
		}
	}
	if err := r.calls.Frames.Audit(frames.Counts{}); err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	r.running.sourceCheck, r.running.action = c, 0
	return nil
}

// checkEntry adds the parts of an entry that was made during the step to the digests.
func (r *worker[T]) checkEntry(batchIndex int) error {
	space := r.calls.Space.(memory.Hasher[T])
	for part := range r.calls.Parts {
		if h, held := r.calls.Frames.EntryPart(batchIndex, part); held {
			hash, err := space.Hash(h)
			if err != nil {
				return err
			}
			frames.Digest(&r.running.sourceCheck.read[part], hash)
		}
	}
	return nil
}

// checkSourceAgain compares the parts that the source made during the step with those it made before.
func (r *worker[T]) checkSourceAgain() error {
	for part, sum := range r.running.sourceCheck.read {
		if sum != r.running.sourceCheck.due[part] {
			return fmt.Errorf("%w: %s makes a different %q the second time for the same microbatch: draw by Entry.Index, as rand.NewPCG(seed, index) does, or use runner.Stream for data that is read in order",
				ErrIndexed, r.name(), r.calls.Parts[part])
		}
	}
	return nil
}

// checkAgreement compares another rank's digests with this rank's, for the parts that both have made.
func (r *worker[T]) checkAgreement(rank int, parts []uint64) error {
	if len(parts) != len(r.running.sourceCheck.made) || rank/r.calls.Placement.Ranks != r.replica {
		return nil // one of the sources is not checked, or the other replica has other microbatches
	}
	for part, sum := range parts {
		if mine := r.running.sourceCheck.made[part]; mine != sum && mine != 0 && sum != 0 {
			return fmt.Errorf("%w: ranks %d and %d make different %q of the same microbatch: draw by Entry.Index alone, as rand.NewPCG(seed, index) does, or use runner.Stream for data that is read in order",
				ErrIndexed, min(rank, r.global), max(rank, r.global), r.calls.Parts[part])
		}
	}
	return nil
}
