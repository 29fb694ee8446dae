package transformer

import (
	"errors"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// Put fills an entry with the parts that [Parts] names: a token, its label and the weight
// of that in the loss for each position. They are copied to buffers of the device, which
// the entry owns. A part that no stage there reads is left out.
func Put(dev kernels.Device, entry *batchctx.Entry[kernels.Buffer], tokens, labels []int32, weights []float32) error {
	return errors.Join(
		put(dev, entry, 0, kernels.Int32, len(tokens), func(b kernels.Buffer) error { return dev.WriteInt32(b, tokens) }),
		put(dev, entry, 1, kernels.Int32, len(labels), func(b kernels.Buffer) error { return dev.WriteInt32(b, labels) }),
		put(dev, entry, 2, kernels.Float32, len(weights), func(b kernels.Buffer) error { return dev.WriteFloat32(b, weights) }))
}

func put(dev kernels.Device, entry *batchctx.Entry[kernels.Buffer], part int, t kernels.DType, n int, write func(kernels.Buffer) error) error {
	if !entry.Wants(part) {
		return nil
	}
	b, err := dev.Alloc(memory.Entry, t, n)
	if err != nil {
		return err
	}
	if err = write(b); err == nil {
		err = entry.Put(part, b)
	}
	if err != nil {
		_, _ = dev.Release(b) // The first error is the one to tell.
	}
	return err
}
