package transformer

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// Weight is a weight on its way to somebody else, who generates with it. One of its two
// buffers is set. It is borrowed, and not to be written.
type Weight struct {
	Name   string
	Shape  []int           // the matrix of a linear layer is in×out
	Device kernels.Compute // where it lies
	// Float32 is the weight as it is.
	Float32 kernels.Buffer
	// Quantized is the matrix of a linear layer, transposed: out×in, with its scales along
	// in, as the left operand's rows meet it in a product.
	Quantized kernels.Quantized
}

// Weights iterates over the weights in the order of Parameters, one at a time. They are
// the model's own: nothing is copied, and nothing is kept of what the loop has passed.
// They hold until the next Update, Release or Close.
func (m *Model) Weights() iter.Seq[Weight] {
	return func(yield func(Weight) bool) {
		for _, p := range m.parameters {
			if !yield(p.handed()) {
				return
			}
		}
	}
}

// QuantizedWeights is Weights with the matrices of the blocks quantized, scaled by
// themselves and by powers of two; norms, biases and tables are as they are. A quantized
// weight ends when the loop goes on, so that there is never more than one. After an error
// the iteration ends.
func (m *Model) QuantizedWeights(encoding kernels.Encoding) iter.Seq2[Weight, error] {
	return func(yield func(Weight, error) bool) {
		for _, p := range m.parameters {
			w := p.handed()
			if p.linear() {
				if err := w.quantize(encoding); err != nil {
					yield(w, err)
					return
				}
			}
			more := yield(w, nil)
			if p.linear() {
				if _, err := w.Device.Release(w.Quantized.Data); err != nil && more {
					yield(w, fmt.Errorf("transformer: handing over %s: %w", w.Name, err))
					return
				}
			}
			if !more {
				return
			}
		}
	}
}

// handed is the parameter as it leaves.
func (p *Parameter) handed() Weight {
	return Weight{Name: p.Name, Shape: p.Shape, Device: p.Device, Float32: p.Weight}
}

// linear reports whether the parameter is the matrix of a linear layer, and no table.
func (p *Parameter) linear() bool { return len(p.Shape) == 2 && strings.HasPrefix(p.Name, "block") }

// quantize puts a quantized copy in the place of the weight.
func (w *Weight) quantize(encoding kernels.Encoding) error {
	in, out := w.Shape[0], w.Shape[1]
	bytes := encoding.Bytes(out, in)
	if bytes == 0 {
		return fmt.Errorf("transformer: handing over %s: %w: there is no %v", w.Name, kernels.ErrShape, encoding)
	}
	data, err := w.Device.Alloc(memory.FP8, kernels.Uint8, bytes)
	if err != nil {
		return fmt.Errorf("transformer: handing over %s: %w", w.Name, err)
	}
	q := kernels.Quantized{Data: data, Encoding: encoding, Rows: out, Cols: in}
	if err := w.Device.Quantize(kernels.Quantize{X: w.Float32, Rows: in, Cols: out, Columnwise: q}); err != nil {
		_, _ = w.Device.Release(data) // The first error is the one to tell.
		return fmt.Errorf("transformer: handing over %s: %w", w.Name, err)
	}
	w.Float32, w.Quantized = kernels.Buffer{}, q
	return nil
}

// Release hands memory of the model's devices back to the system between two steps, and
// keeps every address; see [memory.Scoped]. Scopes are memory.StepScope and
// memory.Gradients where none is named: they are dead then, and w may be nil. Copies of
// weights in low precision, saved activations and workspaces all lie in the step's scope,
// so that nothing else is to be cleared. What other scopes have is written to w, device
// after device. Until Restore a step fails, and so does the use of a buffer that was
// released.
//
// Where a device fails, those before it have released; Restore takes that back.
func (m *Model) Release(w io.Writer, scopes ...memory.Scope) error {
	if len(scopes) == 0 {
		scopes = []memory.Scope{memory.StepScope, memory.Gradients}
	}
	return m.eachScoped("releasing", func(dev memory.Scoped) error { return dev.ReleasePages(w, scopes...) })
}

// Restore takes back what Release handed back, with every page, and reads from r what it
// has written; r may be nil where it wrote nothing. It can be called again after an error.
func (m *Model) Restore(r io.Reader) error {
	return m.eachScoped("restoring", func(dev memory.Scoped) error { return dev.RestorePages(r) })
}

// eachScoped calls do for every device of the model, in the order of their first use.
func (m *Model) eachScoped(doing string, do func(memory.Scoped) error) error {
	var seen []kernels.Device
	for _, b := range m.buffers {
		if slices.Contains(seen, b.dev) {
			continue
		}
		seen = append(seen, b.dev)
		scoped, ok := b.dev.(memory.Scoped)
		if !ok {
			return fmt.Errorf("transformer: %s memory: %w: a %T keeps its pages", doing, errors.ErrUnsupported, b.dev)
		}
		if err := do(scoped); err != nil {
			return fmt.Errorf("transformer: %s memory of %s: %w", doing, b.dev.Name(), err)
		}
	}
	return nil
}
