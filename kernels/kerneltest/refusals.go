package kerneltest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

func refusalCases() []Case {
	return []Case{
		newCase("refusals/buffers", true, refuseBuffers),
		newCase("refusals/dimensions", true, refuseDimensions),
		newCase("refusals/aliases", true, refuseAliases),
		newCase("workspaces", true, workspaces),
		newCase("repeatable", false, repeatable),
	}
}

// operand is a buffer of a call that a case may replace.
type operand struct {
	name     string
	at       *kernels.Buffer
	result   bool // the operation writes it
	scratch  bool // its content afterwards has no meaning
	roomy    bool // it may have more elements than the operation needs
	optional bool // it may be the zero Buffer
	free     bool // any number of elements is valid
	shared   bool // it is written, and may share memory with another operand
}

// trial is an operation with operands that fit.
type trial struct {
	name       string
	operands   []operand
	dimensions []*int
	run        func() error
}

// results returns the buffers that the operation writes, including scratch buffers if scratch
// is set.
func (t *trial) results(scratch bool) (b []kernels.Buffer) {
	for _, o := range t.operands {
		if o.result && (scratch || !o.scratch) {
			b = append(b, *o.at)
		}
	}
	return b
}

// refuseBuffers replaces one operand at a time by one that does not fit.
func refuseBuffers(l *lab) {
	foreign, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
	l.must("NewHost", err)
	defer foreign.Close()
	for i := range len(trials(l, plain)) {
		l.drop()
		t := trials(l, plain)[i]
		l.do(t.name, t.run, t.results(true)...)
		for _, o := range t.operands {
			was := *o.at
			replace := func(title string, want error, b kernels.Buffer) {
				*o.at = b
				l.refuse(fmt.Sprintf("%s with %s %s", t.name, o.name, title), want, t.run)
				*o.at = was
			}
			other := func(n int, t kernels.DType) kernels.Buffer {
				switch t {
				case kernels.Int32:
					return l.putInts("a buffer that does not fit", make([]int32, n))
				case kernels.Uint8:
					return l.putBytes("a buffer that does not fit", make([]uint8, n))
				}
				return l.result("a buffer that does not fit", n)
			}
			if !o.free && was.N > 1 {
				replace("one element short", kernels.ErrShape, other(was.N-1, was.Type))
			}
			if !o.free && !o.roomy {
				replace("one element long", kernels.ErrShape, other(was.N+1, was.Type))
			}
			replace("of another type", kernels.ErrShape, other(was.N, (was.Type+1)%2))
			lie := was
			lie.N--
			replace("whose handle has one element less than its memory", kernels.ErrShape, lie)
			switch {
			case o.optional:
			case o.free:
				replace("none", memory.ErrNone, kernels.Buffer{})
			default:
				replace("none", kernels.ErrShape, kernels.Buffer{})
			}
			stale, err := l.d.Alloc(memory.Saved, was.Type, was.N)
			l.must("Alloc", err)
			_, err = l.d.Release(stale)
			l.must("Release", err)
			replace("stale", memory.ErrStale, stale)
			elsewhere, err := foreign.Alloc(memory.Saved, was.Type, was.N)
			l.must("Alloc of another device", err)
			replace("of another device", memory.ErrOtherArena, elsewhere)
		}
	}
}

// refuseDimensions sets one dimension at a time to an invalid value.
func refuseDimensions(l *lab) {
	for i := range len(trials(l, plain)) {
		l.drop()
		t := trials(l, plain)[i]
		for k, d := range t.dimensions {
			was := *d
			for _, bad := range []int{0, -1, was + 1, math.MaxInt / 2} {
				*d = bad
				l.refuse(fmt.Sprintf("%s with dimension %d %d for %d", t.name, k, bad, was), kernels.ErrShape, t.run)
			}
			*d = was
		}
	}
}

// refuseAliases lets one operand at a time share the memory of a result. With dimensions of 1, most
// operands have the same size; with two columns, codes are as large as a float32.
func refuseAliases(l *lab) {
	ones := sizes{elements: 1, m: 1, n: 1, k: 1, deep: 1, tokens: 1, heads: 1, width: 1, vocabulary: 1}
	wider := ones
	wider.n, wider.deep = 2, 2
	for _, s := range []sizes{ones, wider} {
		for i := range len(trials(l, s)) {
			l.drop()
			t := trials(l, s)[i]
			for _, result := range t.operands {
				for _, o := range t.operands {
					was := *o.at
					if !result.result || result.shared || o.at == result.at || l.d.Bytes(was) != l.d.Bytes(*result.at) {
						continue
					}
					*o.at = kernels.Buffer{Handle: result.at.Handle, N: was.N, Type: was.Type}
					l.refuse(fmt.Sprintf("%s with %s that is %s", t.name, o.name, result.name), kernels.ErrShape, t.run)
					*o.at = was
				}
			}
		}
	}
}

// workspaces checks that the operations require exactly the sizes that the methods return: with
// one element less they fail, with more they compute. The numbers of tokens are around the tile
// sizes of devices.
func workspaces(l *lab) {
	for _, shape := range [][4]int{{1, 1, 1, 1}, {1, 2, 4, 7}, {5, 3, 8, 2}, {31, 2, 5, 33}, {64, 1, 16, 11}, {65, 2, 4, 19}, {130, 1, 7, 1100}, {300, 2, 2, 3}} {
		s := plain
		s.tokens, s.heads, s.width, s.vocabulary = shape[0], shape[1], shape[2], shape[3]
		forward, backward := l.d.AttentionWorkspace(s.tokens, s.heads, s.width)
		head := l.d.HeadWorkspace(s.tokens, s.width, s.vocabulary)
		if forward < 1 || backward < 1 || head < 1 {
			l.fault("the workspaces of attention and head for %v are %d, %d and %d", shape, forward, backward, head)
			return
		}
		for _, t := range trials(l, s) {
			for _, o := range t.operands {
				if !o.scratch {
					continue
				}
				need := o.at.N
				if need > 1 {
					*o.at = l.result("a workspace", need-1)
					l.refuse(t.name+" with a workspace of one element less", kernels.ErrShape, t.run)
				}
				for _, more := range []int{0, 3} {
					*o.at = l.result("a workspace", need+more)
					l.do(t.name, t.run, t.results(true)...)
				}
			}
		}
		l.drop()
	}
	const tokens, vocabulary = 8192, 1000
	if need := l.d.HeadWorkspace(tokens, 8, vocabulary); need > tokens*vocabulary/4 {
		l.fault("HeadWorkspace of %d tokens is %d elements, which is no tile of the %d logits", tokens, need, tokens*vocabulary)
	}
}

// repeatable runs each operation on the same operands at other addresses, and expects the same bits.
func repeatable(l *lab) {
	outcome := func(i int, shift int) (all [][]float32) {
		l.drop()
		l.rng = rand.New(rand.NewPCG(3, uint64(i)))
		for range shift {
			l.put("something in the way", make([]float32, 7))
		}
		t := trials(l, plain)[i]
		l.do(t.name, t.run, t.results(true)...)
		for _, b := range t.results(false) {
			all = append(all, l.content(b))
		}
		return all
	}
	for i := range len(trials(l, plain)) {
		first := outcome(i, 0)
		second := outcome(i, 3)
		for k := range first {
			if !equal(first[k], second[k]) {
				l.fault("%s: result %d differs in other buffers", trials(l, plain)[i].name, k)
			}
		}
	}
}
