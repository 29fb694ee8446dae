package transport

import (
	"errors"
	"fmt"
)

// ErrRanks is returned if the ranks do not run the same step: if they begin different
// ones, or report different things of it at step end.
var ErrRanks = errors.New("transport: the ranks do not run the same step")

// TagError is returned by Recv for a message that is not the one it is to receive.
// The sender's next call for the link returns it too.
type TagError struct {
	From, To            int // ranks
	Sent, Expected      Tag
	Tensors, ExpectedOf int // how many tensors were sent, and how many expected
}

// Error says what was sent and what was expected.
func (e *TagError) Error() string {
	return fmt.Sprintf("transport: rank %d sent %v with %d tensors to rank %d, which expected %v with %d: send and receive in the same order",
		e.From, e.Sent, e.Tensors, e.To, e.Expected, e.ExpectedOf)
}
