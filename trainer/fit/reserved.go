package fit

import "github.com/weir-ml/weir/memory/cachingsim"

// reserve sets the bytes that PyTorch's allocator would reserve on each rank of a device without
// a limit. The weights, gradients, optimizer state and other resident bytes take one buffer each,
// and the allocations of the step follow in the plan's order.
func (p *Prediction) reserve() error {
	for rank := range p.Ranks {
		one := &p.Ranks[rank]
		for expandable, to := range map[bool]*int64{false: &one.Native, true: &one.Expandable} {
			a := cachingsim.New(cachingsim.Config{Expandable: expandable})
			for _, bytes := range []int64{one.Weights, one.Gradients, one.Optimizer, one.Other} {
				if bytes == 0 {
					continue
				}
				if _, err := a.Malloc(cachingsim.Request{Bytes: bytes}); err != nil {
					return err
				}
			}
			live := map[int]int64{}
			for change := range p.Memory.All(rank) {
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
