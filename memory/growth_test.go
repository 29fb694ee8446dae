package memory_test

import (
	"fmt"

	"github.com/weir-ml/weir/memory"
)

func ExampleGrowth() {
	fmt.Println(memory.Growth{Audited: true}, memory.Growth{Bytes: 64, Audited: true}, memory.Growth{Bytes: 64}, memory.Growth{})
	// Output: 0 bytes 64 bytes 64 bytes not audited
}
