package transport_test

import (
	"fmt"

	"github.com/weir-ml/weir/transport"
)

// A tag names a message, and the actions of the plan that send and receive it.
func Example() {
	tag := transport.Tag{Step: 7, Content: transport.Gradient, Stage: 2, Microbatch: 5}
	fmt.Println(tag)
	fmt.Println(tag.Sends(), tag.Receives(), tag.Backward())
	// Output:
	// 2SEND_B5 of step 7
	// 2SEND_B5 1RECV_B5 true
}
