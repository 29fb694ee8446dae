package transport

import (
	"errors"
	"fmt"
)

// ErrRanks is returned if the ranks do not run the same step: their hellos differ, or their reports
// at step end contradict each other.
var ErrRanks = errors.New("transport: the ranks do not run the same step")

// ErrWindow is returned for memory that a rank does not expose: for a range outside the exposed
// memory, or for a tag that the rank has withdrawn, has already exposed or cannot expose.
var ErrWindow = errors.New("transport: memory is not exposed")

// TagError is returned by Recv for a message whose tag or number of tensors is not the expected one.
// The sender's next call on the link returns it, too.
type TagError struct {
	From, To            int // ranks
	Sent, Expected      Tag
	Tensors, ExpectedOf int // number of tensors sent, and number expected
}

// Error describes the message that was sent and the one that was expected.
func (e *TagError) Error() string {
	return fmt.Sprintf("transport: rank %d sent %v with %d tensors to rank %d, which expected %v with %d: send and receive in the same order",
		e.From, e.Sent, e.Tensors, e.To, e.Expected, e.ExpectedOf)
}
