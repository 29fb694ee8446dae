package kerneltest

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// lab is a device together with its buffers and their expected contents.
type lab struct {
	d       kernels.Compute
	rng     *rand.Rand
	buffers []expected
	faults  []error
	// silent is set if the device keeps no contents, as Null does. The case "memory/copies" detects
	// a device that is silent but must not be.
	silent bool
	// kept holds the bits of the results that the case recorded, and want those that plain Go
	// recorded, or nil if this is plain Go.
	kept, want [][]uint32
}

// expected is a buffer and its expected content.
type expected struct {
	name    string
	buffer  kernels.Buffer
	content []float32
}

// newLab seeds the draws with a constant, so that a case is the same in every run.
func newLab(d kernels.Compute) *lab {
	l := &lab{d: d, rng: rand.New(rand.NewPCG(1, 2))}
	l.guard()
	l.silent = l.read(l.buffers[0].buffer)[0] == 0
	return l
}

// unwritten is the value that results have before an operation: a NaN that no computation produces.
var unwritten = math.Float32frombits(0x7fc0dead)

// guard allocates a buffer with known content next to the others.
func (l *lab) guard() {
	content := make([]float32, 16)
	for i := range content {
		content[i] = float32(1000 + i)
	}
	l.hold("the buffer next to it", memory.Workspace, kernels.Float32, len(content), func(b kernels.Buffer) error { return l.d.WriteFloat32(b, content) })
}

// hold allocates a buffer, and fills it by calling write.
func (l *lab) hold(name string, class memory.Class, t kernels.DType, n int, write func(b kernels.Buffer) error) kernels.Buffer {
	b, err := l.d.Alloc(class, t, n)
	l.must("Alloc", err)
	l.must("a write", write(b))
	l.buffers = append(l.buffers, expected{name, b, l.content(b)})
	return b
}

// put allocates a buffer with the given content.
func (l *lab) put(name string, content []float32) kernels.Buffer {
	defer l.guard()
	return l.hold(name, memory.Saved, kernels.Float32, len(content), func(b kernels.Buffer) error { return l.d.WriteFloat32(b, content) })
}

// result allocates a buffer of n unwritten elements.
func (l *lab) result(name string, n int) kernels.Buffer {
	content := make([]float32, n)
	for i := range content {
		content[i] = unwritten
	}
	return l.put(name, content)
}

// sum allocates the buffer of a sum of n elements: unwritten, or if accumulate is set with random
// numbers, which it also returns.
func (l *lab) sum(name string, n int, accumulate bool) (b kernels.Buffer, before []float32) {
	if !accumulate {
		return l.result(name, n), nil
	}
	before = l.normal(n, 5)
	return l.put(name, before), before
}

// putInts allocates a buffer of int32 with the given content.
func (l *lab) putInts(name string, content []int32) kernels.Buffer {
	defer l.guard()
	return l.hold(name, memory.Entry, kernels.Int32, len(content), func(b kernels.Buffer) error { return l.d.WriteInt32(b, content) })
}

// putBytes allocates a buffer of uint8 with the given content.
func (l *lab) putBytes(name string, content []uint8) kernels.Buffer {
	defer l.guard()
	return l.hold(name, memory.FP8, kernels.Uint8, len(content), func(b kernels.Buffer) error { return l.d.WriteUint8(b, content) })
}

// read returns the content of a buffer.
func (l *lab) read(b kernels.Buffer) []float32 {
	x := make([]float32, b.N)
	l.must("ReadFloat32", l.d.ReadFloat32(x, b))
	return x
}

// content returns the content of a buffer of any type: uint8 as numbers of the same value, and int32
// as numbers with the same bits.
func (l *lab) content(b kernels.Buffer) (x []float32) {
	switch b.Type {
	case kernels.Uint8:
		data := make([]uint8, b.N)
		l.must("ReadUint8", l.d.ReadUint8(data, b))
		for _, v := range data {
			x = append(x, float32(v))
		}
	case kernels.Int32:
		data := make([]int32, b.N)
		l.must("ReadInt32", l.d.ReadInt32(data, b))
		for _, v := range data {
			x = append(x, math.Float32frombits(uint32(v)))
		}
	default:
		return l.read(b)
	}
	return x
}

// normal returns n draws of mean 0 and the given standard deviation.
func (l *lab) normal(n int, std float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(std * l.rng.NormFloat64())
	}
	return x
}

// ids returns n draws from 0 to vocabulary-1.
func (l *lab) ids(n, vocabulary int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(l.rng.IntN(vocabulary))
	}
	return x
}

// do runs an operation, which must write only the given results.
func (l *lab) do(title string, f func() error, results ...kernels.Buffer) {
	var before, after memory.Stats
	l.d.Stats(&before)
	l.must(title, f())
	l.must("Sync", l.d.Sync())
	l.d.Stats(&after)
	if before.Live != after.Live || before.Allocs != after.Allocs || before.Frees != after.Frees {
		l.fault("%s: an operation allocated or freed: live %d bytes before, %d after; %d buffers more, %d fewer",
			title, before.Live, after.Live, after.Allocs-before.Allocs, after.Frees-before.Frees)
	}
	l.unchanged(title, results...)
}

// refuse runs an operation, which must return an error that wraps want and must write nothing.
func (l *lab) refuse(title string, want error, f func() error) {
	if err := f(); !errors.Is(err, want) {
		l.fault("%s: the error is %v, want one that wraps %q", title, err, want)
	}
	l.unchanged(title)
}

// unchanged requires that the content of every buffer except results is as expected. From then on it
// expects the present contents.
func (l *lab) unchanged(title string, results ...kernels.Buffer) {
	if l.silent {
		return
	}
	for i := range l.buffers {
		h := &l.buffers[i]
		x := l.content(h.buffer)
		if !equal(x, h.content) && !slices.Contains(results, h.buffer) {
			l.fault("%s: it wrote to %s", title, h.name)
		}
		h.content = x
	}
}

// drop releases all buffers, and allocates a new guard.
func (l *lab) drop() {
	for _, h := range l.buffers {
		freed, err := l.d.Release(h.buffer)
		l.must("Release of "+h.name, err)
		if want := int64(h.buffer.N) * h.buffer.Type.Bytes(); freed != want {
			l.fault("Release of %s freed %d bytes, want %d", h.name, freed, want)
		}
	}
	l.buffers = nil
	l.guard()
}

// end releases all buffers and checks the book.
func (l *lab) end() {
	l.drop()
	_, err := l.d.Release(l.buffers[0].buffer)
	l.must("Release", err)
	var s memory.Stats
	l.d.Stats(&s)
	if s.Live != 0 || l.d.Live() != 0 || s.Classes != (memory.ByClass{}) || s.Allocs != s.Frees {
		l.fault("after every buffer was released %d bytes are live (%v), %d buffers were allocated and %d freed", s.Live, s.Classes, s.Allocs, s.Frees)
	}
}

// equal compares bits.
func equal(x, y []float32) bool {
	return slices.EqualFunc(x, y, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })
}

// exactly requires bit-equal numbers.
func (l *lab) exactly(title string, got, want []float32) {
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			l.fault("%s: element %d is %v, want exactly %v", title, i, got[i], want[i])
			return
		}
	}
}

// near requires |got - want| <= bound·max|want|.
func (l *lab) near(title string, got []float32, want []float64, bound float64) {
	var largest float64
	for _, w := range want {
		largest = max(largest, math.Abs(w))
	}
	for i, w := range want {
		if d := math.Abs(float64(got[i]) - w); !(d <= bound*largest) {
			l.fault("%s: element %d is %v, want %v within %.3g", title, i, got[i], w, bound*largest)
			return
		}
	}
}

// inBounds requires |got - want| <= bound, with a bound for each element.
func (l *lab) inBounds(title string, got []float32, want, bound []float64) {
	for i, w := range want {
		if d := math.Abs(float64(got[i]) - w); !(d <= bound[i]) {
			l.fault("%s: element %d is %v, want %v within %.3g", title, i, got[i], w, bound[i])
			return
		}
	}
}

// wide converts to float64.
func wide(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// dot returns Σ x·y.
func dot(x, y []float64) float64 {
	var s float64
	for i, v := range x {
		s += v * y[i]
	}
	return s
}

// gradientBound is the bound on the error of gradients, relative to the largest gradient.
const gradientBound = 0x1p-14

// slopes compares a gradient with central differences of f at x, in up to 24 elements: the
// first, the last, and random ones. before is the content that the gradient was added to; nil
// means zeros.
func (l *lab) slopes(title string, got, before []float32, x []float64, f func(x []float64) float64) {
	const samples, h = 24, 1e-5
	at := []int{0, len(x) - 1}
	for len(at) < min(samples, len(x)) {
		at = append(at, l.rng.IntN(len(x)))
	}
	want := make([]float64, len(at))
	var largest float64
	for k, i := range at {
		was := x[i]
		x[i] = was + h
		above := f(x)
		x[i] = was - h
		below := f(x)
		x[i] = was
		want[k] = (above - below) / (2 * h)
		if before != nil {
			want[k] += float64(before[i])
		}
		largest = max(largest, math.Abs(want[k]))
	}
	for k, i := range at {
		if d := math.Abs(float64(got[i]) - want[k]); !(d <= gradientBound*largest+h*h) {
			l.fault("%s: element %d is %v, want %v within %.3g", title, i, got[i], want[k], gradientBound*largest+h*h)
			return
		}
	}
}
