package gomlx

import "github.com/gomlx/compute/shapes"

// Program is what a stage has compiled for one set of input shapes. Sizes are bytes.
type Program struct {
	Stage string
	In    []shapes.Shape
	Kept  int64 // from the forward of a microbatch to its backward, inputs included
	// Forward, Backward, Input and Weight are the most that the nodes of each need inside, in
	// the order in which they were made, in addition to what they take and return; 0 where it has
	// not run. They are no buffers between executions, and in no book.
	Forward, Backward, Input, Weight int64
}

// Programs returns what the stages have compiled and still have, and how many executables
// were compiled since New: a number that grows with steps says that MaxShapes is too small.
func (m *Model) Programs() (all []Program, compiled int) {
	inside := func(p *program) int64 {
		if p == nil {
			return 0
		}
		return p.inside
	}
	for _, s := range m.stages {
		for _, v := range s.known {
			p := Program{Stage: s.def.Name, In: v.in, Forward: inside(v.forward), Backward: inside(v.both), Input: inside(v.input), Weight: inside(v.weight)}
			for _, n := range v.kept {
				p.Kept += n.Shape().ByteSize()
			}
			all = append(all, p)
		}
	}
	return all, int(m.compiled.Load())
}
