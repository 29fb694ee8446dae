package stagetest_test

import (
	"context"
	"errors"
	"unsafe"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
)

type (
	handle = memory.Handle
	view   = batchctx.Microbatch[handle]
)

// product is the stage from which the mutants are made. For rows as wide as the weight w, and a mask that
// drops one element in four by keyed draws, it computes
//
//	y = x·w·mask + bias part
//
// It saves x and the mask, and records the sum of y as a metric. If broken is not "" it has one
// fault.
type product struct {
	arena   *memory.Arena
	weights handle
	weight  []float32 // in weights
	grads   [2]handle // of the weight, and of a weight that is declared and used Sometimes
	broken  string
	tied    bool // another stage has the same parameters

	// For mutants.
	kept    handle
	last    view
	hasLast bool
	calls   uint64
	scratch []byte
	dirty   bool // in the first microbatch, between forward and backward, or I and W
	fields  [][]float32
}

const width = 4

func (p *product) is(broken string) bool { return p.broken == broken }

func (p *product) Spec() stages.Spec {
	spec := stages.Spec{
		Name:   "product",
		Inputs: []stages.Port{{Name: "x"}, {Name: "index", NoGrad: true}},
		Outputs: []stages.Port{
			{Name: "x"}, {Name: "index", NoGrad: true},
		},
		Reads:  []stages.Read{{Part: "bias", At: batchctx.AtForward | batchctx.AtBackward}, {Part: "labels"}},
		Slots:  []string{"x", "mask", "carry"},
		Losses: []string{"sum"}, Metrics: []string{"sum"},
	}
	if p.is("spec changes") && p.calls > 3 {
		spec.Slots = append(spec.Slots, "more")
	}
	if p.is("bad spec") {
		spec.Name = ""
	}
	spec.Frozen = p.is("frozen but for its parameters")
	return spec
}

func (p *product) Params() []batchctx.Use[handle] {
	params := []batchctx.Use[handle]{
		{Name: "w", Grad: p.grads[0], Weight: p.weights, Tied: p.tied},
		{Name: "odd", Grad: p.grads[1], Contributes: batchctx.Sometimes, Tied: p.tied},
	}
	if p.is("params change") && p.calls > 3 {
		params[0].Name = "v"
	}
	return params
}

// view returns the numbers of a tensor.
func (p *product) view(h handle) ([]float32, error) {
	data, err := p.arena.Data(h)
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4), err
}

// floats is view for calls of the stage: an error ends the call.
func (p *product) floats(mb view, h handle) []float32 {
	x, err := p.view(h)
	mb.Check(err)
	return x
}

func (p *product) alloc(mb view, class memory.Class, n int) (handle, []float32) {
	h := mb.Must(p.arena.Alloc(class, int64(4*n)))
	return h, p.floats(mb, h)
}

// mask returns element i of the mask, drawn by seed, step, microbatch and element.
func (p *product) mask(mb view, i int) float32 {
	key := mb.Seed()<<48 ^ uint64(mb.Step())<<32 ^ uint64(mb.Index())<<16 ^ uint64(i)
	switch {
	case p.is("draws by a counter"):
		key = p.calls<<16 ^ uint64(i)
	case p.is("draws not in Eval") && mb.Pass() == batchctx.Eval:
		return 1
	case p.is("draws again in a recompute") && mb.Pass() == batchctx.Recompute:
		key ^= 1 << 60
	}
	key = (key + 1) * 0x9e3779b97f4a7c15
	if key>>62 == 0 {
		return 0
	}
	return 1
}

var unrepeatable float32

func (p *product) Forward(_ context.Context, mb view, in, out []handle) error {
	p.calls++
	if p.is("keeps view") {
		if p.hasLast {
			p.last.Take(1)
		}
		p.last, p.hasLast = mb, true
	}
	if p.is("cancelled in between") && mb.Pass() == batchctx.Train && mb.Index() == 0 {
		if p.dirty {
			p.weight[0]++
		}
		p.dirty = true
	}
	if p.is("panics") {
		panic("on purpose")
	}
	if p.is("fails") {
		return errors.New("on purpose")
	}
	x, part := p.floats(mb, in[0]), mb.Part(1)
	bias := p.floats(mb, part)
	if p.is("undeclared read") {
		_ = mb.Part(3)
	}
	if p.is("contributes in forward") {
		mb.GradFirst(1)
	}
	hm, mask := p.alloc(mb, memory.Saved, len(x))
	hy, y := p.alloc(mb, memory.Activation, len(x))
	hw, work := p.alloc(mb, memory.Workspace, len(x))
	var sum float64
	for i := range x {
		mask[i] = p.mask(mb, i)
		work[i] = x[i] * p.weight[i%width]
		y[i] = work[i]*mask[i] + bias[i%len(bias)]
		if p.is("depends on the pass in Eval") && mb.Pass() == batchctx.Eval {
			y[i]++
		}
		if p.is("not repeatable") {
			unrepeatable++
			y[i] += unrepeatable
		}
		sum += float64(y[i])
	}
	if p.is("mutates input") {
		x[0]++
	}
	if p.is("mutates part") {
		bias[0]++
	}
	if p.is("allocates") {
		p.scratch = make([]byte, 100)
	}
	if p.is("releases input") {
		mb.Release(in[0])
	}
	if p.is("releases input on its own") {
		_, err := p.arena.Release(in[0])
		mb.Check(err)
	}
	if !p.is("unreleased workspace") && !(p.is("unreleased in Eval") && mb.Pass() == batchctx.Eval) {
		mb.Release(hw)
	}
	p.save(mb, in[0], hm)
	if p.is("takes in forward") {
		_ = mb.Take(1)
	}
	if p.is("keeps input") {
		p.kept = mb.Retain(in[1])
	}
	if p.is("keeps part") {
		p.kept = mb.Retain(part)
	}
	if p.is("keeps output") {
		p.kept = mb.Retain(hy)
	}
	if p.is("state in fields") {
		p.kept = in[0]
	}
	out[0], out[1] = hy, in[1]
	if !p.is("returns borrowed") {
		mb.Retain(in[1])
	}
	if p.is("unfilled output") {
		out[0] = handle{}
		mb.Release(hy)
		return nil
	}
	if p.is("returns ended") {
		mb.Release(hy)
	}
	mb.Loss(1, sum, float64(len(y)))
	return nil
}

func (p *product) save(mb view, x, mask handle) {
	if !p.is("saves borrowed") && !p.is("ignores refused save") {
		mb.Retain(x)
	}
	if p.is("keeps saved") {
		p.kept = mb.Retain(mask)
	}
	p.swallow("ignores refused save", func() { mb.Save(1, x) })
	slot := batchctx.Slot(2)
	if p.is("saves twice") {
		slot = 1
	}
	if p.is("saves undeclared") {
		slot = 4
	}
	if p.is("saves without a consumer") {
		mb.Release(mask)
		return
	}
	mb.Save(slot, mask)
}
