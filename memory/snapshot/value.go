package snapshot

// kind is what a value is.
type kind uint8

const (
	null kind = iota
	boolean
	integer
	float
	text
	array
	dict
	tuple
)

func (k kind) String() string {
	return [...]string{"nothing", "a truth value", "a number", "a fraction", "a text", "a list", "a dict", "a tuple"}[k]
}

// value is one value of a pickle: a number in itself, or the place of a text or of a
// container.
type value struct {
	kind kind
	ref  uint32
	bits int64
}
