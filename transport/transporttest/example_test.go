package transporttest_test

import (
	"fmt"
	"time"

	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/local"
	"github.com/weir-ml/weir/transport/transporttest"
)

// The transport reports a wrong capacity. In a test, call Run with the test instead of Check.
func Example() {
	subject := cells(func(e *local.Endpoint[cell]) transport.Transport[cell] { return boasting{e} })
	subject.Capacities, subject.Patience = []int{1}, time.Minute
	for _, fault := range transporttest.Check(subject) {
		fmt.Println(fault)
	}
	// Output:
	// capacity (capacity 1, rank 0): Capacity returns 7
	// capacity (capacity 1, rank 1): Capacity returns 7
}

type boasting struct{ *local.Endpoint[cell] }

func (boasting) Capacity() int { return 7 }
