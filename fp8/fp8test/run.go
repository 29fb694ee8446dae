package fp8test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// Case is one comparison of a device with the host.
type Case struct {
	Name string
	// Check returns what is wrong with d, nil where nothing is. It leaves no buffer on d,
	// and does not close it. The same seed draws the same numbers and shapes.
	Check func(d kernels.Compute, seed uint64) error
}

// Cases returns all cases.
func Cases() (all []Case) {
	for _, r := range Recipes() {
		all = append(all,
			Case{r.Name + "/quantize", func(d kernels.Compute, seed uint64) error { return compare(d, seed, r.quantize) }},
			Case{r.Name + "/product", func(d kernels.Compute, seed uint64) error { return compare(d, seed, r.product) }},
		)
	}
	return append(all, Case{"mixed/product", func(d kernels.Compute, seed uint64) error { return compare(d, seed, mixed) }})
}

// Run runs every case on a device of its own, which open returns and Run closes.
func Run(t *testing.T, open func() kernels.Compute) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			const seed = 1
			d := open()
			if err := c.Check(d, seed); err != nil {
				t.Errorf("%s: %v", d.Name(), err)
			}
			if err := d.Close(); err != nil {
				t.Errorf("%s: Close: %v", d.Name(), err)
			}
		})
	}
}

// compare runs a body with the device beside the host.
func compare(d kernels.Compute, seed uint64, body func(p *pair)) error {
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 256 << 20, Instructions: kernels.Portable})
	if err != nil {
		return err
	}
	p := &pair{device: d, host: host, rng: rand.New(rand.NewPCG(seed, 1))}
	before := d.Live()
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(gaveUp{}) {
				panic(r)
			}
		}()
		body(p)
	}()
	p.drop()
	if live := d.Live(); live != before && p.faults == nil {
		p.faults = append(p.faults, fmt.Errorf("%d bytes are live that were not", live-before))
	}
	return errors.Join(append(p.faults, host.Close())...)
}

// pair is a device and the host, with the same buffers on both.
type pair struct {
	device kernels.Compute
	host   *kernels.Host
	rng    *rand.Rand
	held   []twin
	faults []error
}

// twin is a buffer on the device, and the same on the host.
type twin struct{ device, host kernels.Buffer }

// gaveUp is thrown where a case cannot go on, or has seen enough.
type gaveUp struct{}

func (p *pair) fault(format string, args ...any) {
	const enough = 8
	p.faults = append(p.faults, fmt.Errorf(format, args...))
	if len(p.faults) == enough {
		panic(gaveUp{})
	}
}

func (p *pair) must(err error) {
	if err != nil {
		p.faults = append(p.faults, err)
		panic(gaveUp{})
	}
}

// alloc makes a buffer on both.
func (p *pair) alloc(t kernels.DType, n int) (b twin) {
	var err error
	b.device, err = p.device.Alloc(memory.Workspace, t, n)
	p.must(err)
	p.held = append(p.held, b)
	b.host, err = p.host.Alloc(memory.Workspace, t, n)
	p.must(err)
	p.held[len(p.held)-1] = b
	return b
}

// drop releases all buffers.
func (p *pair) drop() {
	for _, b := range p.held {
		if _, err := p.device.Release(b.device); err != nil {
			p.faults = append(p.faults, err)
		}
		if b.host != (kernels.Buffer{}) {
			_, _ = p.host.Release(b.host)
		}
	}
	p.held = p.held[:0]
}

// floats, ints and bytes make buffers with the same content on both.
func (p *pair) floats(x []float32) twin {
	b := p.alloc(kernels.Float32, len(x))
	p.must(p.device.WriteFloat32(b.device, x))
	p.must(p.host.WriteFloat32(b.host, x))
	return b
}

func (p *pair) ints(x []int32) twin {
	b := p.alloc(kernels.Int32, len(x))
	p.must(p.device.WriteInt32(b.device, x))
	p.must(p.host.WriteInt32(b.host, x))
	return b
}

func (p *pair) bytes(x []byte) twin {
	b := p.alloc(kernels.Uint8, len(x))
	p.must(p.device.WriteUint8(b.device, x))
	p.must(p.host.WriteUint8(b.host, x))
	return b
}
