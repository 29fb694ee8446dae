package fit

import (
	"context"

	"github.com/weir-ml/weir/memory/cachingsim"
)

// maxReplayed is the approximate maximum number of allocations and releases that are replayed, over all
// ranks.
const maxReplayed = 1 << 21

// reserve sets the bytes that PyTorch's allocator would reserve on each rank of a device without a limit.
// The weights, gradients, optimizer state and other resident bytes take one buffer each, and the
// allocations of the step follow in the plan's order. If p.Gradients is set, the gradients are among
// these allocations instead. If a step has more than maxReplayed events, reserve leaves out equal
// repeats and sets Partial.
func (p *Prediction) reserve(ctx context.Context) error {
	for rank := range p.Ranks {
		one := &p.Ranks[rank]
		for expandable, to := range map[bool]*int64{false: &one.Native, true: &one.Expandable} {
			if err := ctx.Err(); err != nil {
				return err
			}
			a := cachingsim.New(cachingsim.Config{Expandable: expandable})
			before := one.Gradients
			if p.Gradients != nil { // They appear in the step.
				before = 0
			}
			for _, bytes := range []int64{one.Weights, before, one.Optimizer, one.Other} {
				if bytes == 0 {
					continue
				}
				if _, err := a.Malloc(cachingsim.Request{Bytes: bytes}); err != nil {
					return err
				}
			}
			changes, complete := withGradients(p.Gradients, p.Plan, p.Memory, rank)
			p.Partial = p.Partial || !complete
			live := map[int]int64{}
			for change := range changes {
				var err error
				if change.Alloc {
					live[change.Serial], err = a.Malloc(cachingsim.Request{Bytes: change.Bytes})
				} else {
					err = a.Free(live[change.Serial])
					delete(live, change.Serial)
				}
				if err != nil {
					return err
				}
			}
			*to = a.Stats().Reserved.Peak
		}
	}
	return nil
}
