package fp8test_test

import (
	"fmt"

	"github.com/weir-ml/weir/fp8/fp8test"
	"github.com/weir-ml/weir/kernels"
)

// Outside of a test the cases can be run one by one.
func Example() {
	d, err := kernels.NewHost(kernels.HostConfig{Capacity: 64 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	for _, c := range fp8test.Cases() {
		if c.Name == "mxfp8/product" {
			fmt.Println(c.Check(d, 1))
		}
	}
	// Output: <nil>
}
