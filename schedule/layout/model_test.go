package layout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lower"
)

// The model of the tests: an embedding, blocks and a head, cut into stages. A block
// allocates the buffers of a transformer block; n is the number of bytes of its hidden states.

// writer writes the profile of one stage.
type writer struct {
	t    layout.StageProfile
	call *layout.Call
}

func own(i int) layout.Ref  { return layout.Ref{Kind: layout.Own, Index: i} }
func in(i int) layout.Ref   { return layout.Ref{Kind: layout.In, Index: i} }
func grad(i int) layout.Ref { return layout.Ref{Kind: layout.GradOut, Index: i} }
func part(i int) layout.Ref { return layout.Ref{Kind: layout.PartRead, Index: i} }

func (w *writer) begin() *layout.Call {
	w.call = &layout.Call{}
	return w.call
}

func (w *writer) alloc(name string, class memory.Class, bytes int64) layout.Ref {
	w.t.Buffers = append(w.t.Buffers, layout.Buffer{Name: name, Bytes: bytes, Class: class})
	ref := own(len(w.t.Buffers) - 1)
	w.call.Events = append(w.call.Events, layout.RefChange{Op: layout.Alloc, Ref: ref})
	return ref
}

func (w *writer) retain(refs ...layout.Ref) {
	for _, ref := range refs {
		w.call.Events = append(w.call.Events, layout.RefChange{Op: layout.Retain, Ref: ref})
	}
}

func (w *writer) release(refs ...layout.Ref) {
	for _, ref := range refs {
		w.call.Events = append(w.call.Events, layout.RefChange{Op: layout.Release, Ref: ref})
	}
}

// taken releases references that end slots.
func (w *writer) taken(refs ...layout.Ref) {
	w.release(refs...)
	w.call.Taken = len(refs)
}

// norm allocates the output of a norm and its statistics.
func (w *writer) norm(class memory.Class, name string, n, rows int64) (out layout.Ref, statistics []layout.Ref) {
	out = w.alloc(name, class, n)
	return out, []layout.Ref{w.alloc("mean", memory.Workspace, rows), w.alloc("rstd", memory.Workspace, rows)}
}

// saved holds the buffers that one block keeps.
type saved struct{ input, qkv, attended, lse, middle, up layout.Ref }

// stage returns the profile of a stage with this number of blocks.
func stage(name string, blocks int, first, last bool, tokens, width int64) layout.StageProfile {
	w := &writer{t: layout.StageProfile{Stage: name}}
	n, rows := 4*tokens*width, 4*tokens
	forward := func() (layout.Ref, []saved) {
		x := in(0)
		if first {
			x = w.alloc("embedded", memory.Activation, n)
		}
		var kept []saved
		for range blocks {
			s := saved{input: x}
			s.qkv = w.alloc("qkv", memory.Saved, 3*n)
			normed, statistics := w.norm(memory.Workspace, "normed", n, rows)
			w.release(statistics...)
			w.release(normed)
			s.attended, s.lse = w.alloc("attended", memory.Saved, n), w.alloc("lse", memory.Saved, 4*rows)
			scratch := w.alloc("scratch", memory.Workspace, 4*tokens*16)
			w.release(scratch)
			s.middle = w.alloc("middle", memory.Saved, n)
			w.retain(x)
			s.up = w.alloc("up", memory.Saved, 4*n)
			normed, statistics = w.norm(memory.Workspace, "normed", n, rows)
			w.release(statistics...)
			w.release(normed)
			wide := w.alloc("wide", memory.Workspace, 4*n)
			y := w.alloc("output", memory.Activation, n)
			w.release(wide)
			if x != in(0) {
				w.release(x)
			}
			x = y
			kept = append(kept, s)
		}
		return x, kept
	}
	// finish hands the output over, or computes the loss from it.
	finish := func(x layout.Ref) {
		if !last {
			w.call.Out = []layout.Ref{x}
			if x == in(0) {
				w.retain(x)
			}
			return
		}
		scratch := w.alloc("logits", memory.Workspace, 4*tokens*64)
		w.release(scratch)
	}

	w.t.Eval = w.begin()
	x, kept := forward()
	finish(x)
	if last && x != in(0) {
		w.release(x)
	}
	for _, s := range kept {
		w.taken(s.qkv, s.attended, s.lse, s.middle, s.up, s.input)
	}
	w.call.Taken = 6 * len(kept)

	w.t.Forward = w.begin()
	x, kept = forward()
	finish(x)
	if first {
		w.retain(part(0))
	}
	headInput := x
	if last && x == in(0) {
		w.retain(x)
	}

	backward := func(split bool) (left []layout.Ref) {
		class := memory.Workspace
		if split {
			class = memory.Carry
		}
		leave := func(refs ...layout.Ref) {
			if split {
				left = append(left, refs...)
			} else {
				w.release(refs...)
			}
		}
		dy := grad(0)
		if last {
			scratch := w.alloc("logits", memory.Workspace, 4*tokens*64)
			dy = w.alloc("gradient", memory.ActGrad, n)
			w.release(scratch, headInput)
		}
		for i := len(kept) - 1; i >= 0; i-- {
			s := kept[i]
			wide := w.alloc("wide", class, 4*n)
			if split {
				w.retain(dy)
				left = append(left, dy)
			}
			leave(s.up)
			normed, statistics := w.norm(class, "gradient of norm2", n, rows)
			leave(wide)
			dmiddle := w.alloc("gradient of middle", class, n)
			w.release(statistics...)
			leave(normed, s.middle)
			dattended := w.alloc("gradient of attended", memory.Workspace, n)
			dqkv := w.alloc("gradient of qkv", class, 3*n)
			scratch := w.alloc("scratch", memory.Workspace, 8*tokens*16)
			w.release(scratch, dattended)
			leave(s.attended)
			w.release(s.lse, s.qkv)
			normed, statistics = w.norm(class, "gradient of norm1", n, rows)
			leave(dqkv)
			dx := w.alloc("gradient", memory.ActGrad, n)
			w.release(statistics...)
			leave(normed)
			leave(s.input)
			if dy != grad(0) {
				w.release(dy)
			}
			leave(dmiddle)
			dy = dx
		}
		if first {
			leave(part(0))
			if dy != grad(0) {
				w.release(dy)
			}
			return left
		}
		if dy == grad(0) {
			w.retain(dy)
		}
		w.call.Out = []layout.Ref{dy}
		return left
	}
	w.t.Whole = w.begin()
	backward(false)
	w.t.Input = w.begin()
	left := backward(true)
	w.t.Weight = w.begin()
	if len(left) > 0 {
		normed := w.alloc("normed", memory.Workspace, n)
		w.release(normed)
	}
	w.taken(left...)
	return w.t
}

// model returns a profile with this number of stages and of blocks in each, an embedding in
// the first stage and a head in the last, for microbatches of these numbers of tokens.
func model(stages, blocks int, width int64, tokens ...int64) *layout.Profile {
	t := &layout.Profile{Parts: []string{"tokens", "labels", "weights"}}
	for _, n := range tokens {
		s := layout.ShapeProfile{Name: "tokens"}
		for parts := range uint64(8) {
			e := layout.EntryProfile{Parts: parts}
			for i := range 3 {
				if parts>>i&1 == 0 {
					e.Out = append(e.Out, layout.Ref{})
					continue
				}
				e.Buffers = append(e.Buffers, layout.Buffer{Bytes: 4 * n, Class: memory.Entry})
				ref := own(len(e.Buffers) - 1)
				e.Events = append(e.Events, layout.RefChange{Op: layout.Alloc, Ref: ref})
				e.Out = append(e.Out, ref)
			}
			s.Entries = append(s.Entries, e)
		}
		for i := range stages {
			s.Stages = append(s.Stages, stage("blocks", blocks, i == 0, i == stages-1, n, width))
		}
		t.Shapes = append(t.Shapes, s)
	}
	for i := range stages {
		params := []layout.Param{{Name: string(rune('a' + i)), Bytes: 4096}}
		if i == 0 || i == stages-1 {
			params = append(params, layout.Param{Name: "table", Bytes: 64})
		}
		t.Params = append(t.Params, params)
	}
	return t
}

// facts returns the facts of the model: the embedding reads tokens at F and W, and the head
// always reads labels and weights.
func facts(p schedule.Placement, split bool) []schedule.StageInfo {
	list := make([]schedule.StageInfo, p.Stages())
	for s := range list {
		list[s].Split = split
		if p.First(s) {
			for _, kind := range []schedule.Kind{schedule.F, schedule.B, schedule.W} {
				list[s].Reads[kind] |= 1
			}
		}
		if p.Last(s) {
			for _, kind := range []schedule.Kind{schedule.F, schedule.B, schedule.I, schedule.W} {
				list[s].Reads[kind] |= 6
			}
		}
	}
	return list
}

// planned returns the plan of a schedule, ready to run.
func planned(t testing.TB, name string, ranks, m int, mode schedule.Mode) *schedule.Plan {
	t.Helper()
	plan, err := tryPlanned(name, ranks, m, mode)
	require.NoError(t, err, name)
	return plan
}

func tryPlanned(name string, ranks, m int, mode schedule.Mode) (*schedule.Plan, error) {
	s, err := schedule.Find(name)
	if err != nil {
		return nil, err
	}
	params := schedule.Params{Microbatches: m, Mode: mode}
	if params.Placement, err = s.Place(ranks, ranks*s.PerRank); err != nil {
		return nil, err
	}
	if name == "seq1f1b" {
		params.Slices = 2
	}
	plan, err := s.Rule(params)
	if err != nil {
		return nil, err
	}
	return lower.Prepare(plan, lower.Passes{StageInfo: facts(params.Placement, s.Split), Parts: 3, Capacity: 1})
}
