package frames_test

import (
	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
)

// view is a Microbatch that returns the error of a refused call instead of unwinding.
type view[T any] struct {
	batchctx.Microbatch[T]
	frames *frames.Frames[T]
}

func viewOf[T any](f *frames.Frames[T], stage, microbatch int, kind frames.Call) view[T] {
	return view[T]{batchctx.Microbatch[T](f.Call(stage, microbatch, kind).View()), f}
}

// Call begins a call, and returns its view.
func (r *rig) Call(stage, microbatch int, kind frames.Call) view[memory.Handle] {
	return viewOf(r.Frames, stage, microbatch, kind)
}

// pullWith pulls an entry that fill puts the parts of.
func (r *rig) pullWith(item int, fill func() error) error {
	if err := r.BeginEntry(item); err != nil {
		return err
	}
	return r.EndEntry(fill())
}

func (v view[T]) refused(err *error) {
	switch failure := recover().(type) {
	case nil:
	case *frames.Unwinding:
		*err = failure.Err
		v.frames.Forget()
	default:
		panic(failure)
	}
}

func (v view[T]) Part(read int) (h T, err error) {
	defer v.refused(&err)
	return v.Microbatch.Part(batchctx.Part(read + 1)), nil
}

func (v view[T]) Release(h T) (err error) {
	defer v.refused(&err)
	v.Microbatch.Release(h)
	return nil
}

func (v view[T]) Save(slot int, by frames.Consumer, h T) (err error) {
	defer v.refused(&err)
	v.SaveFor(by, batchctx.Slot(slot+1), h)
	return nil
}

func (v view[T]) Take(slot int) (h T, err error) {
	defer v.refused(&err)
	return v.Microbatch.Take(batchctx.Slot(slot + 1)), nil
}

func (v view[T]) End(slot int) (err error) {
	defer v.refused(&err)
	v.Microbatch.ReleaseSaved(batchctx.Slot(slot + 1))
	return nil
}

func (v view[T]) Loss(l int, sum, weight float64) (err error) {
	defer v.refused(&err)
	v.Microbatch.Loss(batchctx.Loss(l+1), sum, weight)
	return nil
}

func (v view[T]) LossSeed(l int) (seed float32, err error) {
	defer v.refused(&err)
	return v.Microbatch.LossSeed(batchctx.Loss(l + 1)), nil
}

func (v view[T]) Grad(param int) (g T, write frames.Write, err error) {
	defer v.refused(&err)
	g, write = v.GradFirst(batchctx.Param(param + 1))
	return g, write, nil
}

func (v view[T]) WeightCopy(i int) (h T, err error) {
	defer v.refused(&err)
	return v.Microbatch.WeightCopy(batchctx.Copy(i + 1)), nil
}

// put puts a copy of a weight by its index.
func put[T any](f *frames.Frames[T], call batchctx.Quantization[T], i int, h T) (err error) {
	defer view[T]{frames: f}.refused(&err)
	call.Put(batchctx.Copy(i+1), h)
	return nil
}
