package kerneltest

import (
	"fmt"
	"math"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// slicer is a device that has views of parts of its buffers. For other devices the cases in this file do nothing.
type slicer interface {
	Parts(n int) int
	Bound(n, part int) int
	PartSquares(sums []float64, g kernels.Buffer, n, part int) error
	New(class memory.Class, like kernels.Buffer, n int) (kernels.Buffer, error)
}

func sliceCases() []Case {
	sliced := func(body func(l *lab, d slicer)) func(l *lab) {
		return func(l *lab) {
			if d, ok := l.d.(slicer); ok {
				body(l, d)
			}
		}
	}
	return []Case{
		newCase("slices/parts", false, sliced(partSums)),
		newCase("slices/operands", false, sliced(slicedOperands)),
		newCase("slices/sequences", false, packedSequences),
		newCase("slices/refusals", true, sliced(refuseSlices)),
	}
}

// slice returns a view.
func (l *lab) slice(b kernels.Buffer, first, n int) kernels.Buffer {
	v, err := l.d.Slice(b, first, n)
	l.must("Slice", err)
	if v.N != n || l.d.Bytes(v) != 4*int64(n) || l.d.Class(v) != l.d.Class(b) {
		l.fault("Slice of %d elements has %d elements, %d bytes and class %s", n, v.N, l.d.Bytes(v), l.d.Class(v))
	}
	return v
}

// sharded lists numbers of elements: small ones, and large ones that do and do not divide evenly.
var sharded = []int{1, 63, 1000, 131071, 131072, 200003}

// owned calls f with the parts and the elements of each of several replicas that owns any.
func owned(d slicer, n, replicas int, f func(part, parts, first, elements int)) {
	for r := range replicas {
		parts := d.Parts(n)
		begin, end := parts*r/replicas, parts*(r+1)/replicas
		if begin < end {
			f(begin, end-begin, d.Bound(n, begin), d.Bound(n, end)-d.Bound(n, begin))
		}
	}
}

// partSums checks that the sums of parts add up to SumSquares, to the bit, however the parts are
// divided.
func partSums(l *lab, d slicer) {
	for _, n := range sharded {
		x := l.put("x", l.normal(n, 1e3))
		want, err := l.d.SumSquares(x)
		l.must("SumSquares", err)
		for _, replicas := range []int{1, 2, 3, 64, 100} {
			title := fmt.Sprintf("%d replicas of %d", replicas, n)
			var sum float64
			next, until := 0, 0
			owned(d, n, replicas, func(part, parts, first, elements int) {
				if part != next || first != until {
					l.fault("%s: part %d begins at %d, want part %d at %d", title, part, first, next, until)
				}
				sums := make([]float64, parts)
				v := l.slice(x, first, elements)
				l.do("PartSquares", func() error { return d.PartSquares(sums, v, n, part) })
				for _, s := range sums {
					sum += s
				}
				next, until = part+parts, first+elements
			})
			if next != d.Parts(n) || until != n || math.Float64bits(sum) != math.Float64bits(want) {
				l.fault("%s: %d parts of %d elements have the sum of squares %v, SumSquares is %v", title, next, until, sum, want)
			}
		}
		l.drop()
	}
}

// slicedOperands checks that operations on the views of all parts give the same bits as the
// operation on the whole, and write nothing else.
func slicedOperands(l *lab, d slicer) {
	for _, n := range sharded {
		a, b := l.normal(n, 1), l.normal(n, 1)
		whole := [5]kernels.Buffer{l.put("a", a), l.put("b", b), l.put("c", b), l.put("d", make([]float32, n)), l.put("e", make([]float32, n))}
		parts := [5]kernels.Buffer{l.put("a", a), l.put("b", b), l.put("c", b), l.put("d", make([]float32, n)), l.put("e", make([]float32, n))}
		for _, op := range []struct {
			name string
			run  func(x [5]kernels.Buffer) error
		}{
			{"Add", func(x [5]kernels.Buffer) error { return l.d.Add(x[0], x[1]) }},
			{"Sum", func(x [5]kernels.Buffer) error { return l.d.Sum(x[2], x[0], x[2]) }},
			{"AdamW", func(x [5]kernels.Buffer) error {
				return l.d.AdamW(kernels.AdamW{Weight: x[0], Grad: x[2], M: x[3], V: x[4], Factor: 0.5, LearningRate: 0.1, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 0.1, Step: 3})
			}},
			{"Copy", func(x [5]kernels.Buffer) error { return l.d.Copy(x[1], x[3]) }},
			{"Zero", func(x [5]kernels.Buffer) error { return l.d.Zero(x[4]) }},
		} {
			l.do(op.name, func() error { return op.run(whole) }, whole[:]...)
			owned(d, n, 3, func(_, _, first, elements int) {
				var views [5]kernels.Buffer
				for i := range parts {
					views[i] = l.slice(l.slice(parts[i], first, n-first), 0, elements) // a view of a view
				}
				l.do(op.name+" of views", func() error { return op.run(views) }, parts[:]...)
			})
			for i := range parts {
				l.exactly(fmt.Sprintf("%s of %d in views", op.name, n), l.read(parts[i]), l.read(whole[i]))
			}
		}
		v := l.slice(parts[0], n/2, n-n/2)
		l.exactly("ReadFloat32 of a view", l.read(v), l.read(parts[0])[n/2:])
		l.do("WriteFloat32 of a view", func() error { return l.d.WriteFloat32(v, b[n/2:]) }, parts[0])
		l.exactly("WriteFloat32 of a view", l.read(parts[0]), append(l.read(whole[0])[:n/2], b[n/2:]...))
		if lender, ok := l.d.(kernels.Lender); ok {
			data, err := lender.Lend(v)
			l.must("Lend of a view", err)
			if len(data) != 4*(n-n/2) {
				l.fault("Lend of a view of %d elements returned %d bytes", n-n/2, len(data))
			}
		}
		made, err := d.New(memory.Unsharded, v, 7)
		l.must("New", err)
		if made.N != 7 || made.Type != v.Type || l.d.Class(made) != memory.Unsharded {
			l.fault("New of 7 elements returned %+v of class %s", made, l.d.Class(made))
		}
		_, err = l.d.Release(made)
		l.must("Release", err)
		l.drop()
	}
}

// refuseSlices checks that views keep no buffer alive, have no references, and end with their
// buffer.
func refuseSlices(l *lab, d slicer) {
	const n = 100
	x, y := l.put("x", l.normal(n, 1)), l.put("y", l.normal(n, 1))
	for _, bad := range [][2]int{{-1, 2}, {0, n + 1}, {n, 1}, {99, 2}, {3, 0}, {3, -1}, {1, math.MaxInt}, {math.MaxInt, 1}, {math.MinInt, 1}} {
		l.refuse(fmt.Sprintf("Slice of %d elements from %d of %d", bad[1], bad[0], n), kernels.ErrShape, func() error { _, err := l.d.Slice(x, bad[0], bad[1]); return err })
	}
	v := l.slice(x, 10, 20)
	l.refuse("Slice past the end of a view", kernels.ErrShape, func() error { _, err := l.d.Slice(v, 5, 16); return err })
	longer := v
	longer.N = 91
	l.refuse("Zero of a view that is longer than its memory", kernels.ErrShape, func() error { return l.d.Zero(longer) })
	for name, call := range map[string]func(b kernels.Buffer) error{
		"Retain":  l.d.Retain,
		"Release": func(b kernels.Buffer) error { _, err := l.d.Release(b); return err },
		"Hold":    func(b kernels.Buffer) error { _, err := l.d.Hold(b); return err },
		"Unhold":  func(b kernels.Buffer) error { _, err := l.d.Unhold(b); return err },
	} {
		l.refuse(name+" of a view", kernels.ErrView, func() error { return call(v) })
	}
	if fused, ok := l.d.(memory.HoldReleaser[kernels.Buffer]); ok {
		l.refuse("HoldWithClass of a view", kernels.ErrView, func() error { _, _, err := fused.HoldWithClass(v); return err })
		l.refuse("UnholdAndRelease of a view", kernels.ErrView, func() error { _, _, _, err := fused.UnholdAndRelease(v); return err })
	}
	next, across := l.slice(x, 30, 20), l.slice(x, 29, 20)
	l.do("Add of neighbouring views", func() error { return l.d.Add(v, next) }, x)
	l.refuse("Add of views that overlap", kernels.ErrShape, func() error { return l.d.Add(v, across) })
	l.refuse("Dropout of views that overlap", kernels.ErrShape, func() error { return l.d.Dropout(v, across, 0.5, kernels.Key{}) })
	l.refuse("AddRow of views that overlap", kernels.ErrShape, func() error { return l.d.AddRow(v, across, 1, 20) })
	l.do("AddRow of neighbouring views", func() error { return l.d.AddRow(v, next, 1, 20) }, x)
	long := l.put("long", l.normal(131072, 1))
	sums := make([]float64, 2)
	for _, bad := range []struct {
		title string
		g     kernels.Buffer
		n     int
		part  int
	}{
		{"an element less", l.slice(long, 0, d.Bound(131072, 2)-1), 131072, 0},
		{"the whole buffer", long, 131072, 0},
		{"a part less than 0", l.slice(long, 0, d.Bound(131072, 2)), 131072, -1},
		{"a part past the last", l.slice(long, 0, d.Bound(131072, 2)), 131072, 63},
		{"two parts of a short parameter", x, n, 0},
	} {
		l.refuse("PartSquares of "+bad.title, kernels.ErrShape, func() error { return d.PartSquares(sums, bad.g, bad.n, bad.part) })
	}
	w := l.slice(y, 1, 98)
	freed, err := l.d.Release(y)
	l.must("Release", err)
	if freed != 4*n {
		l.fault("Release of a buffer that has a view freed %d bytes, want %d", freed, 4*n)
	}
	for i := range l.buffers {
		if l.buffers[i].buffer == y {
			l.buffers = append(l.buffers[:i], l.buffers[i+1:]...)
			break
		}
	}
	l.refuse("Zero of a view of a released buffer", memory.ErrStale, func() error { return l.d.Zero(w) })
	l.refuse("Slice of a released buffer", memory.ErrStale, func() error { _, err := l.d.Slice(y, 1, 2); return err })
	if l.d.Bytes(w) != 0 {
		l.fault("a view of a released buffer has %d bytes", l.d.Bytes(w))
	}
}
