package gomlx

import "github.com/gomlx/compute/shapes"

// Program describes the executables that a stage has compiled for one set of input shapes.
// Sizes are in bytes.
type Program struct {
	Stage string
	In    []shapes.Shape
	Kept  int64 // kept from the forward of a microbatch to its backward, including inputs
	// Forward, Backward, Input (I) and Weight (W) are the maximum memory of the nodes of each
	// executable, in the order of their creation, in addition to inputs and outputs; 0 if it has
	// not been compiled. It exists only during an execution, and no book contains it.
	Forward, Backward, Input, Weight int64
}

// Programs returns the programs of the stages, and the number of executables compiled since New.
// If that number grows with the number of steps, MaxShapes is too small.
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
