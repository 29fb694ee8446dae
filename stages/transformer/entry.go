package transformer

import (
	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// Parts names the entry parts that the stages read: the tokens and their labels (int32, below
// Config.Vocabulary), and the weights of the labels in the loss (float32, at least 0). Each has
// one element per token. Parts must not be modified.
var Parts = []string{"tokens", "labels", "weights"}

// Put allocates the Parts that the entry's rank needs on dev, which is the rank's device, and
// passes them to the entry.
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
