package stagetest_test

import (
	"context"
	"errors"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
)

func (p *product) Backward(_ context.Context, mb *view, gradOut, gradIn []handle) error {
	p.calls++
	if mb.Index() == 0 {
		p.dirty = false
	}
	if p.is("saves for nobody") {
		h, _, err := p.alloc(memory.Saved, 1)
		if err != nil {
			return err
		}
		return mb.Save(1, batchctx.ByBackward, h)
	}
	if p.is("takes unsaved") {
		if _, err := mb.Take(2); err != nil {
			return err
		}
	}
	hx, err := mb.Take(0)
	if p.is("ignores errors") {
		if errors.Is(err, batchctx.ErrEmpty) {
			gradIn[0], _, err = p.alloc(memory.ActGrad, 1)
			return err
		}
	}
	if err != nil {
		return err
	}
	if p.is("state in fields") {
		hx = p.kept
	}
	hm, err := mb.Take(1)
	if err != nil {
		return err
	}
	if p.is("takes twice") {
		if _, err := mb.Take(1); err != nil {
			return err
		}
	}
	if p.is("releases taken") {
		if err := mb.Release(hm); err != nil {
			return err
		}
	}
	if p.is("keeps taken") {
		p.kept = mb.Retain(hx)
	}
	if p.is("keeps gradOut") {
		p.kept = mb.Retain(gradOut[0])
	}
	if _, err := mb.Part(0); err != nil {
		return err
	}
	if p.is("reads late") {
		if _, err := mb.Part(1); err != nil {
			return err
		}
	}
	if p.is("records late") {
		if err := mb.Loss(0, 1, 1); err != nil {
			return err
		}
	}
	x, err := p.floats(hx)
	if err != nil {
		return err
	}
	mask, err := p.floats(hm)
	if err != nil {
		return err
	}
	dy, err := p.floats(gradOut[0])
	if err != nil {
		return err
	}
	if gradIn != nil || p.is("gradIn unwanted") {
		if err := p.gradIn(mb, gradIn, gradOut[0], dy, mask); err != nil {
			return err
		}
	}
	if p.is("mutates gradOut") {
		dy[0]++
	}
	return p.contribute(mb, x, mask, dy)
}

func (p *product) gradIn(mb *view, gradIn []handle, gradOut handle, dy, mask []float32) error {
	if p.is("gradIn missing") {
		return nil
	}
	if p.is("returns borrowed gradient") {
		gradIn[0] = gradOut
		return nil
	}
	h, dx, err := p.alloc(memory.ActGrad, len(dy))
	if err != nil {
		return err
	}
	for i := range dx {
		dx[i] = dy[i] * p.weight[i%width] * mask[i]
	}
	gradIn[0] = h
	if p.is("gradIn of NoGrad") {
		gradIn[1], _, err = p.alloc(memory.ActGrad, 1)
	}
	if p.is("keeps gradIn") {
		p.kept = mb.Retain(h)
	}
	return err
}

func (p *product) contribute(mb *view, x, mask, dy []float32) error {
	if p.is("contributes never") && mb.Index() == 1 {
		return nil
	}
	g, write, err := mb.Grad(0)
	if err != nil {
		return err
	}
	if p.is("contributes twice") {
		if _, _, err := mb.Grad(0); err != nil {
			return err
		}
	}
	switch {
	case p.is("writes frozen"):
		g = p.grads[0]
	case write == batchctx.Skip && !p.is("ignores frozen"):
		return nil
	}
	grad, err := p.floats(g)
	if err != nil {
		return err
	}
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
	if mb.Index()%2 == 1 && !mb.Frozen(1) {
		return p.contributeOdd(mb, dy)
	}
	return nil
}

// contributeOdd is the contribution of odd microbatches to the other weight.
func (p *product) contributeOdd(mb *view, dy []float32) error {
	g, write, err := mb.Grad(1)
	if err != nil {
		return err
	}
	grad, err := p.floats(g)
	if err != nil {
		return err
	}
	if write == batchctx.First {
		clear(grad)
	}
	grad[0] += dy[0]
	return nil
}

// splitProduct computes its backward in two calls, too.
type splitProduct struct{ *product }

// BackwardInput computes gradIn and carries x, mask and dy to W.
func (p splitProduct) BackwardInput(_ context.Context, mb *view, gradOut, gradIn []handle) error {
	hx, err := mb.Take(0)
	if err != nil {
		return err
	}
	hm, err := mb.Take(1)
	if err != nil {
		return err
	}
	x, err := p.floats(hx)
	if err != nil {
		return err
	}
	mask, err := p.floats(hm)
	if err != nil {
		return err
	}
	dy, err := p.floats(gradOut[0])
	if err != nil {
		return err
	}
	carry, c, err := p.alloc(memory.Carry, 3*len(x))
	if err != nil {
		return err
	}
	copy(c, x)
	copy(c[len(x):], mask)
	copy(c[2*len(x):], dy)
	if p.is("split differs") {
		c[0]++
	}
	if p.is("I keeps in a field") {
		p.fields = append(p.fields[:min(len(p.fields), 1)], c) // room for two microbatches, not more
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
	if err := mb.Save(2, batchctx.ByWeight, carry); err != nil && !p.is("I ignores errors") {
		return err
	}
	if err := mb.End(0); err != nil { // its content is in the carry
		return err
	}
	if gradIn == nil && !p.is("I has an unwanted gradIn") {
		return nil
	}
	return p.gradIn(mb, gradIn, gradOut[0], dy, mask)
}

func (p splitProduct) BackwardWeight(_ context.Context, mb *view) error {
	if mb.Index() == 0 {
		p.dirty = false
	}
	if p.is("W allocates") {
		p.scratch = make([]byte, 100)
	}
	slot := 2
	if p.is("split takes what I took") {
		slot = 0
	}
	h, err := mb.Take(slot)
	if p.is("I ignores errors") && errors.Is(err, batchctx.ErrEmpty) {
		return p.contribute(mb, nil, nil, []float32{0})
	}
	if err != nil {
		return err
	}
	c, err := p.floats(h)
	if err != nil {
		return err
	}
	if p.is("I keeps in a field") {
		c, p.fields = p.fields[0], p.fields[1:]
	}
	n := len(c) / 3
	return p.contribute(mb, c[:n], c[n:2*n], c[2*n:])
}
