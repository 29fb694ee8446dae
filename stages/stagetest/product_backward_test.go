package stagetest_test

import (
	"context"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
)

func (p *product) Backward(_ context.Context, mb view, gradOut, gradIn []handle) error {
	p.calls++
	if mb.Index() == 0 {
		p.dirty = false
	}
	if p.is("saves without a consumer") {
		h, _ := p.alloc(mb, memory.Saved, 1)
		mb.Save(2, h)
		return nil
	}
	if p.is("takes unsaved") {
		_ = mb.Take(3)
	}
	hx := mb.Take(1)
	if p.is("state in fields") {
		hx = p.kept
	}
	hm := mb.Take(2)
	if p.is("takes twice") {
		_ = mb.Take(2)
	}
	if p.is("releases taken") {
		mb.Release(hm)
	}
	if p.is("keeps taken") {
		p.kept = mb.Retain(hx)
	}
	if p.is("keeps gradOut") {
		p.kept = mb.Retain(gradOut[0])
	}
	_ = mb.Part(1)
	if p.is("reads late") {
		_ = mb.Part(2)
	}
	if p.is("records late") {
		mb.Loss(1, 1, 1)
	}
	x, mask, dy := p.floats(mb, hx), p.floats(mb, hm), p.floats(mb, gradOut[0])
	if gradIn != nil || p.is("gradIn unwanted") {
		p.gradIn(mb, gradIn, gradOut[0], dy, mask)
	}
	if p.is("mutates gradOut") {
		dy[0]++
	}
	p.contribute(mb, x, mask, dy)
	return nil
}

// swallow calls f, and recovers its failure if the stage has this fault.
func (p *product) swallow(fault string, f func()) {
	if p.is(fault) {
		defer func() { _ = recover() }()
	}
	f()
}

func (p *product) gradIn(mb view, gradIn []handle, gradOut handle, dy, mask []float32) {
	if p.is("gradIn missing") {
		return
	}
	if p.is("returns borrowed gradient") {
		gradIn[0] = gradOut
		return
	}
	h, dx := p.alloc(mb, memory.ActGrad, len(dy))
	for i := range dx {
		dx[i] = dy[i] * p.weight[i%width] * mask[i]
	}
	gradIn[0] = h
	if p.is("gradIn of NoGrad") {
		gradIn[1], _ = p.alloc(mb, memory.ActGrad, 1)
	}
	if p.is("keeps gradIn") {
		p.kept = mb.Retain(h)
	}
}

func (p *product) contribute(mb view, x, mask, dy []float32) {
	if p.is("contributes never") && mb.Index() == 1 {
		return
	}
	g, write := mb.GradFirst(1)
	if p.is("contributes twice") {
		mb.GradFirst(1)
	}
	switch {
	case p.is("writes frozen"):
		g = p.grads[0]
	case write == batchctx.Skip && !p.is("ignores frozen"):
		return
	}
	grad := p.floats(mb, g)
	switch {
	case p.is("ignores First"):
	case p.is("ignores First by a factor") && write == batchctx.First:
		for i := range grad {
			grad[i] *= 0
		}
	case write == batchctx.First, p.is("ignores Add"):
		clear(grad)
	}
	for i := range x {
		grad[i%width] += x[i] * mask[i] * dy[i]
	}
	if mb.Index()%2 == 1 && !mb.Frozen(1) { // the other weight
		g, write := mb.GradFirst(2)
		odd := p.floats(mb, g)
		if write == batchctx.First {
			clear(odd)
		}
		odd[0] += dy[0]
	}
}

// splitProduct also computes its backward in two calls.
type splitProduct struct{ *product }

// BackwardInput computes gradIn and carries x, mask and dy to W.
func (p splitProduct) BackwardInput(_ context.Context, mb view, gradOut, gradIn []handle) error {
	x, mask, dy := p.floats(mb, mb.Take(1)), p.floats(mb, mb.Take(2)), p.floats(mb, gradOut[0])
	carry, c := p.alloc(mb, memory.Carry, 3*len(x))
	copy(c, x)
	copy(c[len(x):], mask)
	copy(c[2*len(x):], dy)
	if p.is("split differs") {
		c[0]++
	}
	if p.is("I keeps in a field") {
		p.fields = append(p.fields[:min(len(p.fields), 1)], c) // space for two microbatches, not more
	}
	if p.is("I keeps gradOut") {
		p.kept = mb.Retain(gradOut[0])
	}
	if p.is("cancelled between I and W") && mb.Index() == 0 {
		if p.dirty {
			p.weight[0]++
		}
		p.dirty = true
	}
	mb.Save(3, carry)
	mb.ReleaseSaved(1) // its content is in the carry
	if gradIn != nil || p.is("I has an unwanted gradIn") {
		p.gradIn(mb, gradIn, gradOut[0], dy, mask)
	}
	return nil
}

func (p splitProduct) BackwardWeight(_ context.Context, mb view) error {
	if mb.Index() == 0 {
		p.dirty = false
	}
	if p.is("W allocates") {
		p.scratch = make([]byte, 100)
	}
	slot := batchctx.Slot(3)
	if p.is("split takes again") {
		slot = 1
	}
	c := p.floats(mb, mb.Take(slot))
	if p.is("I keeps in a field") {
		c, p.fields = p.fields[0], p.fields[1:]
	}
	n := len(c) / 3
	p.contribute(mb, c[:n], c[n:2*n], c[2*n:])
	return nil
}
