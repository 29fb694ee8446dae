package gomlx

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
)

// ErrKept is returned, with several ranks, if buffers that were created through GoMLX in a step still
// exist, for instance buffers of a dataset, or of a loss kept as a tensor. The books of the ranks do
// not contain them.
var ErrKept = errors.New("gomlx: buffers are kept")

// part is a tensor of a batch on the host.
type part struct {
	name  string
	shape shapes.Shape
	flat  any
}

// Dataset returns a source of the batches of ds, one per microbatch, epoch after epoch. The
// inputs of a batch are the parts with the given names, and its labels the parts named by
// Config.Labels. A batch is copied to the ranks that read it and finalized immediately. Dataset
// reads the first batch, because some datasets move their data to the backend when they are first
// read.
func (m *Model) Dataset(ds train.Dataset, inputs ...string) runner.Source[T] {
	b := &batches{model: m, ds: ds, inputs: len(inputs), names: slices.Concat(inputs, m.Labels)}
	b.next, b.stop = iter.Pull2(ds.Iter())
	m.reading = append(m.reading, b)
	first, err := b.read()
	return runner.Stream(func(context.Context) (parts []part, failed error) {
		if first != nil || err != nil {
			parts, failed, first, err = first, err, nil, nil
			return parts, failed
		}
		before := m.backend.model.Live()
		parts, failed = b.read()
		if kept := m.backend.model.Live() - before; m.Ranks > 1 && kept > 0 { // with one rank, the books see it
			return nil, fmt.Errorf("%w: %s kept %d bytes when it read a batch: finalize the tensors that it does not yield", ErrKept, ds.Name(), kept)
		}
		return parts, failed
	}, func(parts []part, e batchctx.Entry[T]) error {
		for _, p := range parts {
			if e.Wants(p.name) {
				e.Put(p.name, e.Must(m.Devices[e.Rank()].Put(memory.Entry, p.flat, p.shape)))
			}
		}
		return nil
	})
}

// Close stops the iteration over datasets, and finalizes the accumulators of gradients. Variables
// stay in the store. Close the runner first.
func (m *Model) Close() {
	for _, b := range m.reading {
		b.stop()
	}
	for _, g := range m.sums {
		_ = g.Finalize() // memory.ErrStale if Close was called before
	}
}

// batches reads a dataset.
type batches struct {
	model  *Model
	ds     train.Dataset
	inputs int
	names  []string
	next   func() (train.Batch, error, bool)
	stop   func()
}

func (b *batches) read() ([]part, error) {
	batch, err, ok := b.next()
	if !ok { // begin the next epoch
		b.stop()
		b.next, b.stop = iter.Pull2(b.ds.Iter())
		if batch, err, ok = b.next(); !ok {
			err = errors.New("it has no batch")
		}
	}
	all := slices.Concat(batch.Inputs, batch.Labels)
	if err == nil && (len(batch.Inputs) != b.inputs || len(all) != len(b.names)) {
		err = fmt.Errorf("it yields %d inputs and %d labels: %d inputs are named and %d Config.Labels", len(batch.Inputs), len(batch.Labels), b.inputs, len(b.names)-b.inputs)
	}
	parts := make([]part, len(all))
	for i, t := range all {
		if err == nil {
			parts[i] = part{name: b.names[i], shape: t.Shape()}
			parts[i].flat, err = copied(t)
		}
	}
	if err = errors.Join(err, batch.Finalize()); err != nil {
		return nil, fmt.Errorf("gomlx: data set %s: %w", b.ds.Name(), err)
	}
	return parts, nil
}

// copied returns the values of a tensor in a new slice.
func copied(t *tensors.Tensor) (flat any, err error) {
	local, err := t.LocalClone()
	if err == nil {
		err = local.ConstFlatData(func(values any) { flat = values }) // the clone is not shared
	}
	return flat, err
}
