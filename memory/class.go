package memory

import "errors"

// Class is the purpose of a buffer. A buffer has exactly one class, given at allocation, so that the two
// books can be compared class by class.
type Class uint8

// The classes, in the order of the memory log.
const (
	Resident   Class = iota // weights, gradients, optimizer state: live as long as the model
	Entry                   // parts of a batch entry: live until last read on this rank
	Activation              // result of a stage's Forward: live until the next stage has read it
	ActGrad                 // result of a stage's Backward: live until the previous stage has read it
	Saved                   // saved by Forward for a later action
	Carry                   // saved by I for W
	Transfer                // buffers in flight between ranks
	Workspace               // scratch within one call of a stage
	Loss                    // device cells of losses: live as long as the runner
	FP8                     // low-precision copies and their scales
	Unsharded               // weights gathered from their shards

	NumClasses = int(Unsharded) + 1
)

var classNames = [NumClasses]string{
	"resident", "entry", "activation", "actgrad", "saved", "carry",
	"transfer", "workspace", "loss", "fp8", "unsharded",
}

// Lasting reports whether buffers of the class exist before and after a step, and thus are not placed by
// layouts.
func (c Class) Lasting() bool { return c == Resident || c == Loss }

// String returns the name that the memory log uses.
func (c Class) String() string {
	if int(c) < NumClasses {
		return classNames[c]
	}
	return "class(?)"
}

// ParseClass is the reverse of String. It returns false for an unknown name.
func ParseClass(name string) (Class, bool) {
	for i, n := range classNames {
		if n == name {
			return Class(i), true
		}
	}
	return 0, false
}

// MarshalText returns the name.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (c *Class) UnmarshalText(name []byte) error {
	class, known := ParseClass(string(name))
	if !known {
		return errors.New("expected a class of memory, such as saved or workspace")
	}
	*c = class
	return nil
}

// ByClass is a number of bytes for each class.
type ByClass [NumClasses]int64

// Total returns the sum over all classes, in bytes.
func (b *ByClass) Total() int64 {
	var total int64
	for _, n := range b {
		total += n
	}
	return total
}

// Named returns the positive numbers of bytes, keyed by class name.
func (b *ByClass) Named() map[string]int64 {
	named := map[string]int64{}
	for class, bytes := range b {
		if bytes > 0 {
			named[Class(class).String()] = bytes
		}
	}
	return named
}
