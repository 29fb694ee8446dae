package transformer

import (
	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// Put makes those of Parts that the rank of an entry wants, on the rank's device, and hands
// them over.
func Put(dev kernels.Device, entry batchctx.Entry[kernels.Buffer], tokens, labels []int32, weights []float32) {
	for i, ids := range [...][]int32{tokens, labels} {
		if entry.Wants(Parts[i]) {
			b := entry.Must(dev.Alloc(memory.Entry, kernels.Int32, len(ids)))
			entry.Check(dev.WriteInt32(b, ids))
			entry.Put(Parts[i], b)
		}
	}
	if entry.Wants(Parts[2]) {
		b := entry.Must(dev.Alloc(memory.Entry, kernels.Float32, len(weights)))
		entry.Check(dev.WriteFloat32(b, weights))
		entry.Put(Parts[2], b)
	}
}
