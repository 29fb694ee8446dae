package kerneltest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/weir-ml/weir/kernels"
)

// Case is one property that a device must have.
type Case struct {
	Name string
	// Null is set if a device that computes nothing must have the property too.
	Null bool
	// Check returns the faults that it finds in d, or nil. It needs a fresh device, and does
	// not close it.
	Check func(d kernels.Compute) error
}

// Cases returns all cases.
func Cases() []Case {
	return slices.Concat(
		memoryCases(), refusalCases(), elementwiseCases(), matrixCases(), normCases(),
		activationCases(), attentionCases(), embeddingCases(), headCases(), randomCases(),
		optimizerCases(), quantizationCases(), sliceCases(),
	)
}

// Run runs every case on a separate device, which it opens with open and closes.
func Run(t *testing.T, open func(t *testing.T) kernels.Compute) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) { run(t, c, open(t)) })
	}
}

// RunNull runs the cases that apply to a device that computes nothing.
func RunNull(t *testing.T, open func(t *testing.T) kernels.Compute) {
	for _, c := range Cases() {
		if c.Null {
			t.Run(c.Name, func(t *testing.T) { run(t, c, open(t)) })
		}
	}
}

func run(t *testing.T, c Case, d kernels.Compute) {
	if err := c.Check(d); err != nil {
		t.Errorf("%s: %v", d.Name(), err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("%s: Close: %v", d.Name(), err)
	}
}

// maxFaults is the number of faults after which a case gives up.
const maxFaults = 8

// gaveUp is the panic value of a lab that has found maxFaults faults, or whose must was given an
// error. lab.run recovers it.
type gaveUp struct{}

// newCase returns a case whose body runs in a lab.
func newCase(name string, null bool, body func(l *lab)) Case {
	return Case{Name: name, Null: null, Check: func(d kernels.Compute) error {
		l := newLab(d)
		l.run(body)
		return errors.Join(l.faults...)
	}}
}

// newBitCase returns a case whose body records results with the lab's methods keepNumbers,
// keepMatrix and keepTally. The body runs on a host in plain Go, then with the same draws on the
// device, where it must record the same bits.
func newBitCase(name string, body func(l *lab)) Case {
	return Case{Name: name, Check: func(d kernels.Compute) error {
		host, err := kernels.NewHost(kernels.HostConfig{Capacity: 64 << 20, Instructions: kernels.Portable})
		if err != nil {
			return err
		}
		defer host.Close()
		plain := newLab(host)
		plain.run(body)
		if len(plain.faults) > 0 {
			return fmt.Errorf("the host in plain Go: %w", errors.Join(plain.faults...))
		}
		l := newLab(d)
		l.want = plain.kept
		l.run(body)
		return errors.Join(l.faults...)
	}}
}

// run runs a case's body and, unless it gives up, releases all buffers and checks the book.
func (l *lab) run(body func(l *lab)) {
	defer func() {
		switch r := recover(); r {
		case nil, gaveUp{}:
		default:
			panic(r)
		}
	}()
	body(l)
	l.end()
}

// fault records a fault.
func (l *lab) fault(format string, args ...any) {
	l.faults = append(l.faults, fmt.Errorf(format, args...))
	if len(l.faults) >= maxFaults {
		panic(gaveUp{})
	}
}

// must ends the case if err is not nil.
func (l *lab) must(title string, err error) {
	if err != nil {
		l.faults = append(l.faults, fmt.Errorf("%s: %w", title, err))
		panic(gaveUp{})
	}
}
