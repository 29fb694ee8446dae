package gomlx

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
)

// stage runs a graph function of GoMLX as a stage of Weir.
type stage struct {
	def Stage
	stages.Decl[T]
	model   *Model
	device  *Device
	local   bool // its rank is one of this process
	last    bool
	inputs  []string // from the previous stage
	outputs []string
	parts   []batchctx.Part
	losses  []batchctx.Loss
	params  []batchctx.Param
	ticket  [2]batchctx.Slot // the variant of the microbatch: for the backward and for W
	kept    []batchctx.Slot
	carries []batchctx.Slot
	known   []*variant // the most recently used is at the end
}

// variant holds the programs of a stage for one set of input shapes.
type variant struct {
	in      []shapes.Shape
	joint   *joint
	kept    []*graph.Node // nodes that the forward keeps
	forI    []bool        // by kept node: I needs it; otherwise only W does
	byI     []*graph.Node // nodes that I computes
	carries []*graph.Node // nodes that I passes to W

	forward, evaluate, both, frozen, input, weight *program
	returned                                       []*graph.Node // kept nodes that the forward returns in addition to its outputs
}

// newVariant determines the inputs and outputs of the programs for these shapes. It compiles
// nothing.
func (s *stage) newVariant(in []shapes.Shape) (*variant, error) {
	j, err := s.differentiate(in)
	if err != nil {
		return nil, err
	}
	v := &variant{in: in, joint: j}
	forI, byI := reach(j.gradIn, j.given)
	v.byI = byI
	both, moved := reach(append(slices.Clone(j.gradIn), j.grads...), j.given)
	if err := s.movable(moved); err != nil {
		return nil, err
	}
	forW, _ := reach(j.grads, v.stopW)
	for _, n := range both {
		if keeps(n) {
			v.kept = append(v.kept, n)
			v.forI = append(v.forI, slices.Contains(forI, n))
		}
	}
	for _, n := range forW {
		taken := slices.Index(v.kept, n)
		if n.Id() >= j.first && n != j.seed || taken >= 0 && v.forI[taken] {
			v.carries = append(v.carries, n)
		}
	}
	return v, nil
}

// keeps reports whether an input node of a backward is kept from the forward; all other input nodes are
// variables, random state, or inputs of the action.
func keeps(n *graph.Node) bool {
	return n.Type() != graph.NodeTypeParameter || strings.HasPrefix(n.GetParameterName(), "#in")
}

// stopW reports whether a node is an input of W: it is an input of every backward, or I computes it
// and it is not cheap.
func (v *variant) stopW(n *graph.Node) bool {
	return v.joint.given(n) || n.NumOutputs() == 1 && !cheap(n) && slices.Contains(v.byI, n)
}

// variant returns the programs for the shapes of buffers.
func (s *stage) variant(buffers []T) (*variant, error) {
	same := func(v *variant) bool {
		return slices.EqualFunc(v.in, buffers, func(shape shapes.Shape, b T) bool { return shape.Equal(b.shape) })
	}
	if i := slices.IndexFunc(s.known, same); i >= 0 {
		v := s.known[i]
		if i < len(s.known)-1 {
			s.known = append(slices.Delete(s.known, i, i+1), v)
		}
		return v, nil
	}
	var in []shapes.Shape
	for _, b := range buffers {
		in = append(in, b.shape)
	}
	s.model.backend.build.Lock()
	defer s.model.backend.build.Unlock()
	if err := s.model.unchanged(); err != nil {
		return nil, err
	}
	v, err := s.newVariant(in)
	if err != nil {
		return nil, err
	}
	if len(v.kept) > len(s.kept) || len(v.carries) > len(s.carries) {
		return nil, s.refused("with inputs %v it keeps %d tensors and carries %d, but with the shapes of Config.Entry %d and %d: give Config.Entry the shapes that need most", in, len(v.kept), len(v.carries), len(s.kept), len(s.carries))
	}
	s.known = append(s.known, v)
	if len(s.known) > s.model.MaxShapes { // a microbatch in flight keeps its own
		s.known = slices.Delete(s.known, 0, 1)
	}
	return v, nil
}

// compileForward builds the forward again, with the same ids, and compiles it to return its
// outputs, the sum and the weight of each loss and, for training, the kept nodes that are neither
// inputs nor outputs. These nodes are the second result.
func (s *stage) compileForward(v *variant, training bool) (*program, []*graph.Node, error) {
	s.model.backend.build.Lock()
	defer s.model.backend.build.Unlock()
	f, err := s.trace(v.in, training)
	if err != nil {
		return nil, nil, err
	}
	out := slices.Clone(f.outputs)
	for _, l := range f.losses {
		out = append(out, l[0], l[1])
	}
	var returned []*graph.Node
	if training {
		for _, n := range v.kept {
			if n.Type() == graph.NodeTypeParameter {
				continue
			}
			same := f.graph.Nodes()[n.Id()]
			if same.Type() != n.Type() || !same.Shape().Equal(n.Shape()) {
				return nil, nil, s.refused("its graph function first made %s and now %s: it must make the same nodes every time", n, same)
			}
			if i := slices.Index(f.outputs, same); i < 0 {
				out, returned = append(out, same), append(returned, n)
			}
		}
	}
	p := &program{}
	for i := range f.graph.NumParameters() {
		p.feeds = append(p.feeds, f.graph.GetParameterByHandle(graph.ParameterHandle(i)))
	}
	err = exceptions.TryCatch[error](func() { p.executable, p.inside = s.model.compile(f.graph, out) })
	return p, returned, s.blame(err)
}

// call collects the inputs of a program for one action, and runs it.
type call struct {
	*stage
	mb     batchctx.Microbatch[T]
	given  map[*graph.Node]T // by node of the joint graph
	named  map[string]T
	owned  []T // released with the call
	donate map[T]bool
}

func (c *call) feed(n *graph.Node) T {
	if b, ok := c.given[n]; ok {
		return b
	}
	name := n.GetParameterName()
	if b, ok := c.named[name]; ok {
		return b
	}
	var b T
	switch name {
	case random:
		b = c.mb.Must(c.device.Put(memory.Workspace, c.draw(), n.Shape()))
		c.owned = append(c.owned, b)
	case "#seed":
		b = c.mb.Must(c.device.Put(memory.Workspace, []float32{c.mb.LossSeed(c.losses[0])}, n.Shape()))
		c.owned = append(c.owned, b)
	default:
		b = c.mb.Must(c.model.value(name))
	}
	c.named[name] = b
	return b
}

// draw returns the state of GoMLX's random numbers for this microbatch and stage (L9).
func (c *call) draw() []uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %d %s", c.mb.Seed(), c.mb.Step(), c.mb.Index(), c.def.Name))
	var state []uint64
	for i := range graph.RNGStateShape.Size() {
		state = append(state, binary.LittleEndian.Uint64(sum[8*i:]))
	}
	return state
}

func (c *call) run(p *program, accumulators []T, classes []memory.Class) []T {
	in := make([]T, 0, len(p.feeds)+len(accumulators))
	donate := make([]bool, len(p.feeds), cap(in))
	for i, n := range p.feeds {
		b := c.feed(n)
		in, donate[i] = append(in, b), c.donate[b]
	}
	for range accumulators {
		donate = append(donate, true)
	}
	in = append(in, accumulators...)
	defer func() {
		for _, b := range c.owned {
			c.mb.Release(b)
		}
	}()
	out, err := c.device.run(p.executable, in, donate, classes, accumulators)
	c.mb.Check(err)
	return out
}

func (s *stage) newCall(mb batchctx.Microbatch[T]) *call {
	return &call{stage: s, mb: mb, given: map[*graph.Node]T{}, named: map[string]T{}, donate: map[T]bool{}}
}

func repeat(class memory.Class, n int) []memory.Class { return slices.Repeat([]memory.Class{class}, n) }

// Forward computes outputs and losses and, except in Eval, keeps the nodes that the backward needs.
func (s *stage) Forward(_ context.Context, mb batchctx.Microbatch[T], in, out []T) error {
	buffers := slices.Clone(in)
	for _, part := range s.parts {
		buffers = append(buffers, mb.Part(part))
	}
	v, err := s.variant(buffers)
	if err != nil {
		return err
	}
	training := mb.Pass() != batchctx.Eval
	p := &v.forward
	if !training {
		p = &v.evaluate
	}
	if *p == nil {
		var returned []*graph.Node
		if *p, returned, err = s.compileForward(v, training); err != nil {
			return err
		}
		if training {
			v.returned = returned
		}
	}
	c := s.newCall(mb)
	for i, b := range buffers {
		c.named[v.joint.inputs[i].GetParameterName()] = b
	}
	scalars := 2 * len(s.losses)
	classes := append(repeat(memory.Activation, len(out)), repeat(memory.Workspace, scalars)...)
	if training {
		classes = append(classes, repeat(memory.Saved, len(v.returned))...)
	}
	made := c.run(*p, nil, classes)
	copy(out, made)
	made = made[len(out):]
	var numbers [2]float32
	for i, l := range s.losses {
		for k := range numbers {
			mb.Check(made[2*i+k].ToFlatData(numbers[k : k+1]))
			mb.Release(made[2*i+k])
		}
		mb.Loss(l, float64(numbers[0]), float64(numbers[1]))
	}
	if !training {
		return nil
	}
	ticket := &Buffer{backend: s.model.backend, device: s.device, class: memory.Saved, plain: 1, variant: v}
	if len(s.params) > 0 {
		mb.SaveFor(batchctx.ByWeight, s.ticket[1], mb.Retain(ticket))
	}
	mb.SaveFor(batchctx.ByBackward, s.ticket[0], ticket)
	made = made[scalars:]
	for i, n := range v.kept {
		var b T
		switch k := slices.Index(v.returned, n); {
		case k >= 0:
			b = made[k]
		case n.Type() == graph.NodeTypeParameter:
			b = mb.Retain(c.named[n.GetParameterName()])
		default:
			b = mb.Retain(out[slices.IndexFunc(v.joint.outputs, func(o *graph.Node) bool { return o == n })])
		}
		by := batchctx.ByWeight
		if v.forI[i] {
			by = batchctx.ByBackward
		}
		mb.SaveFor(by, s.kept[i], b)
	}
	return nil
}

func (c *call) take(n *graph.Node, slot batchctx.Slot) T {
	b := c.mb.Take(slot)
	c.given[n] = b
	c.donate[b] = b.plain+b.held == 1 && !b.shared // it has no other reader, and is released with the action
	return b
}

// Backward computes all gradients in one program.
func (s *stage) Backward(_ context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	c, v := s.newCall(mb), mb.Take(s.ticket[0]).variant
	if len(s.params) > 0 {
		mb.Take(s.ticket[1])
	}
	for i, n := range v.kept {
		c.take(n, s.kept[i])
	}
	grads, trains := c.accumulators()
	p, targets := &v.both, v.joint.grads
	if !trains {
		p, targets, grads = &v.frozen, nil, nil
	}
	mb.Check(v.joint.cut(p, "backward", v.joint.gradIn, targets, v.joint.given))
	c.backward(*p, v, gradOut, gradIn, grads, nil)
	return nil
}

func (c *call) accumulators() (grads []T, trains bool) {
	for _, p := range c.params {
		g, t := c.mb.Grad(p)
		grads, trains = append(grads, g), t
	}
	return grads, trains
}

func (c *call) backward(p *program, v *variant, gradOut, gradIn, grads []T, carries []*graph.Node) []T {
	if p.executable == nil {
		return nil
	}
	for i, n := range v.joint.gradOut {
		c.given[n] = gradOut[i]
	}
	classes := append(repeat(memory.ActGrad, len(v.joint.gradIn)), repeat(memory.Carry, len(carries))...)
	made := c.run(p, grads, classes)
	for i, b := range made[:len(v.joint.gradIn)] {
		if gradIn == nil {
			c.mb.Release(b)
		} else {
			gradIn[i] = b
		}
	}
	return made[len(v.joint.gradIn):]
}

// BackwardInput computes the gradients of the inputs, and saves for W the nodes that both need.
func (s *stage) BackwardInput(_ context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	c, v := s.newCall(mb), mb.Take(s.ticket[0]).variant
	for i, n := range v.kept {
		if v.forI[i] {
			c.take(n, s.kept[i])
		}
	}
	for i, n := range v.carries {
		if b, ok := c.given[n]; ok { // kept by the forward for both
			c.donate[b] = false
			mb.Save(s.carries[i], mb.Retain(b))
		}
	}
	var made []*graph.Node
	for _, n := range v.carries {
		if c.given[n] == nil && n.Type() != graph.NodeTypeParameter {
			made = append(made, n)
		}
	}
	mb.Check(v.joint.cut(&v.input, "input", append(slices.Clone(v.joint.gradIn), made...), nil, v.joint.given))
	out := c.backward(v.input, v, gradOut, gradIn, nil, made)
	for i, n := range v.carries {
		if k := slices.Index(made, n); k >= 0 {
			mb.Save(s.carries[i], out[k])
		} else if k := slices.Index(v.joint.gradOut, n); k >= 0 {
			mb.Save(s.carries[i], mb.Retain(gradOut[k]))
		}
	}
	return nil
}

// BackwardWeight adds to the gradients of the variables.
func (s *stage) BackwardWeight(_ context.Context, mb batchctx.Microbatch[T]) error {
	c, v := s.newCall(mb), mb.Take(s.ticket[1]).variant
	for i, n := range v.kept {
		if !v.forI[i] {
			c.take(n, s.kept[i])
		}
	}
	for i, n := range v.carries {
		c.take(n, s.carries[i])
	}
	mb.Check(v.joint.cut(&v.weight, "weight", nil, v.joint.grads, v.stopW))
	grads, _ := c.accumulators()
	c.run(v.weight, grads, nil)
	return nil
}

// Params returns the uses of variables, each with the buffer that the variable has now: New
// initializes them when all stages are declared.
func (s *stage) Params() []batchctx.Use[T] {
	uses := slices.Clone(s.Decl.Params())
	for i := range uses {
		uses[i].Weight, _ = s.model.value(uses[i].Name) // a step says why there is none
	}
	return uses
}

var _ stages.SplitBackward[T] = (*stage)(nil)
