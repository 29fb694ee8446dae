package caching_test

import (
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/layout"
)

// model describes a pipeline of transformer blocks, with the sizes of its saved tensors, workspaces and
// low-precision copies.
type model struct {
	layers    int   // per stage
	hidden    int64 // elements
	ffn       int64
	heads     int64
	words     int64 // of the vocabulary
	precision precision
	recompute bool // stages save only their input, and run their forward again
}

// precision describes the elements.
type precision struct {
	name string
	act  int64 // bytes of an activation's element
	// size of an element of a weight gradient that is computed separately and added to a float32 one; 0
	// if gradients are accumulated in place
	grad int64
	fp8  bool // inputs of products are saved by row and by column in one byte, with scales
}

var (
	float32s = precision{name: "float32", act: 4}
	mixed    = precision{name: "mixed", act: 2, grad: 2}
	fp8      = precision{name: "FP8", act: 2, grad: 2, fp8: true}
)

// profile returns the profile of a number of stages, with a shape class for each length.
func (m model) profile(stages int, lengths ...int64) *layout.Profile {
	t := &layout.Profile{}
	for _, tokens := range lengths {
		var shape layout.ShapeProfile
		for s := range stages {
			w := &writer{model: m, tokens: tokens, first: s == 0, last: s == stages-1}
			shape.Stages = append(shape.Stages, w.stage())
		}
		t.Shapes = append(t.Shapes, shape)
	}
	return t
}

// writer writes the profile of one stage.
type writer struct {
	model
	tokens      int64
	first, last bool
	t           layout.StageProfile
	call        *layout.Call
}

func (w *writer) alloc(name string, class memory.Class, bytes int64) layout.Ref {
	w.t.Buffers = append(w.t.Buffers, layout.Buffer{Name: name, Class: class, Bytes: bytes})
	ref := layout.Ref{Kind: layout.Own, Index: len(w.t.Buffers) - 1}
	w.event(layout.Alloc, ref)
	return ref
}

func (w *writer) event(op layout.Op, refs ...layout.Ref) {
	for _, ref := range refs {
		w.call.Events = append(w.call.Events, layout.RefChange{Op: op, Ref: ref})
	}
}

func (w *writer) release(refs ...layout.Ref) { w.event(layout.Release, refs...) }

// wide returns the size of an activation with the given number of elements per token.
func (w *writer) wide(elements int64) int64 { return w.tokens * elements * w.precision.act }

// scratch allocates and releases a workspace.
func (w *writer) scratch(name string, bytes int64) { w.release(w.alloc(name, memory.Workspace, bytes)) }

// product saves the input of a matrix product, or its two copies in low precision.
func (w *writer) product(name string, x layout.Ref, elements int64) []layout.Ref {
	if !w.precision.fp8 {
		return []layout.Ref{x}
	}
	var copies []layout.Ref
	for _, side := range []string{" by row", " by column"} {
		copies = append(copies,
			w.alloc(name+side, memory.FP8, w.tokens*elements),
			w.alloc(name+side+", scales", memory.FP8, max(4, w.tokens*elements/128*4)))
	}
	w.release(x)
	return copies
}

// gradient allocates and releases a weight's gradient before it is added.
func (w *writer) gradient(name string, elements int64) {
	if w.precision.grad > 0 {
		w.scratch(name, elements*w.precision.grad)
	}
}

// kept holds the tensors that the backward of a block takes.
type kept struct {
	input, middle           layout.Ref
	rstd1, rstd2            layout.Ref
	qkv, attended, lse, up  layout.Ref
	normed1, normed2, gated []layout.Ref
	projected               []layout.Ref
}

// block writes the forward of one block. Its input x becomes one of the kept tensors.
func (w *writer) block(x layout.Ref) (layout.Ref, kept) {
	h, f := w.hidden, w.ffn
	k := kept{input: x}
	norm := func(name string) (layout.Ref, layout.Ref) {
		return w.alloc(name, memory.Saved, w.wide(h)), w.alloc("rstd", memory.Saved, 4*w.tokens)
	}
	normed, rstd := norm("norm 1")
	k.rstd1, k.normed1 = rstd, w.product("norm 1", normed, h)
	k.qkv = w.alloc("qkv", memory.Saved, w.wide(3*h))
	k.attended, k.lse = w.alloc("attended", memory.Saved, w.wide(h)), w.alloc("lse", memory.Saved, 4*w.tokens*w.heads)
	w.scratch("attention", 32<<20)
	if w.precision.fp8 {
		w.event(layout.Retain, k.attended)
		k.projected = w.product("attended", k.attended, h)
	}
	projected := w.alloc("projected", memory.Workspace, w.wide(h))
	k.middle = w.alloc("middle", memory.Saved, w.wide(h))
	w.release(projected)
	normed, rstd = norm("norm 2")
	k.rstd2, k.normed2 = rstd, w.product("norm 2", normed, h)
	k.up = w.alloc("up", memory.Saved, w.wide(2*f))
	k.gated = w.product("gated", w.alloc("gated", memory.Saved, w.wide(f)), f)
	down := w.alloc("down", memory.Workspace, w.wide(h))
	y := w.alloc("output", memory.Activation, w.wide(h))
	w.release(down)
	return y, k
}

// all returns all kept tensors except the input.
func (k *kept) all() []layout.Ref {
	refs := []layout.Ref{k.middle, k.rstd1, k.rstd2, k.qkv, k.attended, k.lse, k.up}
	for _, more := range [][]layout.Ref{k.normed1, k.normed2, k.gated, k.projected} {
		refs = append(refs, more...)
	}
	return refs
}

// backward writes the backward of one block. It releases the kept tensors, and its own
// gradients except the one that it returns.
func (w *writer) backward(k kept, dy layout.Ref) layout.Ref {
	h, f := w.hidden, w.ffn
	quantize := func(x layout.Ref, elements int64) {
		if w.precision.fp8 {
			w.event(layout.Retain, x)
			w.release(w.product("gradient", x, elements)...)
		}
	}
	d := func(name string, elements int64) layout.Ref { return w.alloc(name, memory.Workspace, w.wide(elements)) }
	quantize(dy, h)
	dgated := d("gradient of gated", f)
	w.gradient("gradient of down's weight", f*h)
	w.release(k.gated...)
	dup := d("gradient of up", 2*f)
	w.release(dgated, k.up)
	quantize(dup, 2*f)
	dnormed := d("gradient of norm 2", h)
	w.gradient("gradient of up's weight", 2*f*h)
	w.release(dup)
	w.release(k.normed2...)
	dmiddle := d("gradient of middle", h)
	w.release(dnormed, k.rstd2, k.middle)
	if dy.Kind == layout.Own {
		w.release(dy)
	}
	quantize(dmiddle, h)
	dattended := d("gradient of attended", h)
	w.gradient("gradient of the projection's weight", h*h)
	w.release(k.projected...)
	dqkv := d("gradient of qkv", 3*h)
	w.scratch("attention", 64<<20)
	w.release(dattended, k.attended, k.lse, k.qkv)
	quantize(dqkv, 3*h)
	dnormed = d("gradient of norm 1", h)
	w.gradient("gradient of qkv's weight", 3*h*h)
	w.release(dqkv)
	w.release(k.normed1...)
	dx := w.alloc("gradient", memory.ActGrad, w.wide(h))
	w.release(dnormed, dmiddle, k.rstd1, k.input)
	return dx
}

// stage writes both calls of the stage.
func (w *writer) stage() layout.StageProfile {
	w.t.Stage = "blocks"
	w.t.Forward = &layout.Call{}
	w.call = w.t.Forward
	x := layout.Ref{Kind: layout.In}
	if w.first {
		x = w.alloc("embedded", memory.Activation, w.wide(w.hidden))
	} else {
		w.event(layout.Retain, x)
	}
	input, y, saved := x, x, []kept(nil)
	for i := range w.layers {
		next, k := w.block(y)
		if w.recompute {
			w.release(k.all()...)
			if i > 0 {
				w.release(k.input)
			}
		} else {
			saved = append(saved, k)
		}
		y = next
	}
	top := y
	if !w.last {
		w.call.Out = []layout.Ref{y}
	}

	w.t.Whole = &layout.Call{}
	w.call = w.t.Whole
	if w.recompute {
		saved, y = nil, input
		for range w.layers {
			next, k := w.block(y)
			saved = append(saved, k)
			y = next
		}
		if !w.last {
			w.release(y)
		}
	}
	dy := layout.Ref{Kind: layout.GradOut}
	if w.last {
		if w.recompute {
			w.release(top)
		}
		logits := w.alloc("logits", memory.Workspace, w.tokens*w.words*w.precision.act)
		dy = w.alloc("gradient", memory.ActGrad, w.wide(w.hidden))
		w.gradient("gradient of the head", w.words*w.hidden)
		w.release(logits, y)
	}
	for i := len(saved) - 1; i >= 0; i-- {
		dy = w.backward(saved[i], dy)
	}
	if w.first {
		w.release(dy)
	} else {
		w.call.Out = []layout.Ref{dy}
	}
	return w.t
}
