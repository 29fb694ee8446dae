//go:build cuda

package libcuda_test

import (
	"fmt"

	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/libcuda"
)

func ExampleOpen() {
	driver, err := libcuda.Open(0)
	if err != nil {
		fmt.Println(err)
		return
	}
	dev, err := cuda.Open(driver, cuda.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(dev.Close())
	// Output: <nil>
}
