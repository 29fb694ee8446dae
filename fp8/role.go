package fp8

import "fmt"

// Role is the purpose of a tensor in the layer that quantizes it.
type Role uint8

// The roles of the tensors of a layer.
const (
	Input Role = iota
	Weight
	Output
	GradOutput
	GradInput

	numRoles = iota
)

// String returns the role's name in lower case.
func (r Role) String() string {
	if r < numRoles {
		return [...]string{"input", "weight", "output", "grad_output", "grad_input"}[r]
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// backward reports whether the tensor is a gradient.
func (r Role) backward() bool { return r == GradOutput || r == GradInput }
