package transformer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// Weight is a weight for an engine that generates text. Exactly one of Float32 and Quantized is
// set. Its buffer is borrowed, and must not be modified.
type Weight struct {
	Name   string
	Shape  []int           // in×out for the matrix of a linear layer
	Device kernels.Compute // the device that holds the buffer
	// Float32 is the weight in float32.
	Float32 kernels.Buffer
	// Quantized is the matrix of a linear layer, transposed: out×in, with its scales along in,
	// as operand B of a kernels.QuantizedMatMul.
	Quantized kernels.Quantized
}

// Weights iterates over the weights in the order of Parameters. Their buffers belong to the model
// and are not copied. They are valid until the next Update, Release or Close.
func (m *Model) Weights() iter.Seq[Weight] {
	return func(yield func(Weight) bool) {
		for _, p := range m.parameters {
			if !yield(p.asWeight()) {
				return
			}
		}
	}
}

// SHA256 returns the SHA-256 hash of all weights in hexadecimal. It hashes their elements as
// little-endian float32, in the order of their names. Models with the same weights have the same
// hash, however they are split. The weights must not be shards (Config.Shard 3).
func (m *Model) SHA256() (string, error) {
	if m.shard == 3 {
		return "", fmt.Errorf("transformer: the hash of weights that are shards: %w: gather them first", errors.ErrUnsupported)
	}
	hash := sha256.New()
	for _, w := range slices.SortedFunc(m.Weights(), func(a, b Weight) int { return strings.Compare(a.Name, b.Name) }) {
		values := make([]float32, w.Float32.N)
		if err := w.Device.ReadFloat32(values, w.Float32); err != nil {
			return "", fmt.Errorf("transformer: the hash of %s: %w", w.Name, err)
		}
		_ = binary.Write(hash, binary.LittleEndian, values) // hash.Hash never returns an error
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// QuantizedWeights is like Weights, but quantizes the matrices of the blocks. Their scales are
// powers of two and depend only on the matrix; norms, biases and tables are unchanged. A
// quantized weight is released as soon as the loop continues, so at most one exists at a time.
// The iteration ends after an error.
func (m *Model) QuantizedWeights(encoding kernels.Encoding) iter.Seq2[Weight, error] {
	return func(yield func(Weight, error) bool) {
		for _, p := range m.parameters {
			w := p.asWeight()
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

// asWeight returns the parameter as a Weight.
func (p *Parameter) asWeight() Weight {
	return Weight{Name: p.Name, Shape: p.Shape, Device: p.Device, Float32: p.Weight}
}

// linear reports whether the parameter is the matrix of a linear layer, and not a table.
func (p *Parameter) linear() bool { return len(p.Shape) == 2 && strings.HasPrefix(p.Name, "block") }

// quantize replaces the weight by a quantized copy.
func (w *Weight) quantize(encoding kernels.Encoding) error {
	in, out := w.Shape[0], w.Shape[1]
	bytes := encoding.Bytes(out, in)
	if bytes == 0 {
		return fmt.Errorf("transformer: handing over %s: %w: no such encoding: %v", w.Name, kernels.ErrShape, encoding)
	}
	data, err := w.Device.Alloc(memory.FP8, kernels.Uint8, bytes)
	if err != nil {
		return fmt.Errorf("transformer: handing over %s: %w", w.Name, err)
	}
	q := kernels.Quantized{Data: data, Encoding: encoding, Rows: out, Cols: in}
	if err := w.Device.Quantize(kernels.Quantize{X: w.Float32, Rows: in, Cols: out, Columnwise: q}); err != nil {
		_, _ = w.Device.Release(data) // the first error is reported
		return fmt.Errorf("transformer: handing over %s: %w", w.Name, err)
	}
	w.Float32, w.Quantized = kernels.Buffer{}, q
	return nil
}

// Release returns memory of the model's devices to the system between two steps, but keeps every
// address; see [memory.Scoped]. If no scopes are given, they default to memory.StepScope and
// memory.Gradients, which are not read between steps, and w may be nil. Low-precision copies of
// weights, saved activations and workspaces are all in the step's scope, so nothing else has to
// be cleared. The contents of other scopes are written to w, device after device. Until Restore
// is called, steps fail, and so does any use of a released buffer.
//
// Release checks all devices before the first one releases: if a step or a transfer is in
// progress on any of them, it releases nothing, and the error wraps memory.ErrLive and names the
// owners on every device. If w fails, the devices already processed have released their memory;
// Restore undoes that.
func (m *Model) Release(w io.Writer, scopes ...memory.Scope) error {
	if len(scopes) == 0 {
		scopes = []memory.Scope{memory.StepScope, memory.Gradients}
	}
	devices, err := m.scoped("releasing")
	if err != nil {
		return err
	}
	var refusals []error
	for _, dev := range devices {
		refusals = append(refusals, dev.failed("releasing", dev.ReleasePages(nil)))
	}
	if err := errors.Join(refusals...); err != nil {
		return err
	}
	for _, dev := range devices {
		if err := dev.failed("releasing", dev.ReleasePages(w, scopes...)); err != nil {
			return err
		}
	}
	return nil
}

// Restore restores every page that Release released, and reads their contents from r, which may
// be nil if Release wrote nothing. It can be called again after an error.
func (m *Model) Restore(r io.Reader) error {
	devices, err := m.scoped("restoring")
	if err != nil {
		return err
	}
	for _, dev := range devices {
		if err := dev.failed("restoring", dev.RestorePages(r)); err != nil {
			return err
		}
	}
	return nil
}

// scopedDevice is a device that can release pages.
type scopedDevice struct {
	memory.Scoped
	name string
}

// failed returns the error for an operation on the device's memory.
func (d *scopedDevice) failed(doing string, err error) error {
	if err != nil {
		err = fmt.Errorf("transformer: %s memory of %s: %w", doing, d.name, err)
	}
	return err
}

// scoped returns the devices of the model, in the order of their first use. It returns an error
// if a device cannot release pages.
func (m *Model) scoped(doing string) (devices []*scopedDevice, err error) {
	var seen []kernels.Device
	for _, b := range m.buffers {
		if slices.Contains(seen, b.dev) {
			continue
		}
		seen = append(seen, b.dev)
		scoped, ok := b.dev.(memory.Scoped)
		if !ok {
			return nil, fmt.Errorf("transformer: %s memory: %w: a %T keeps its pages", doing, errors.ErrUnsupported, b.dev)
		}
		devices = append(devices, &scopedDevice{scoped, b.dev.Name()})
	}
	return devices, nil
}
