//go:build linux

package cublas_test

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/kernels/cuda/cublas"
	"github.com/weir-ml/weir/kernels/cuda/driver"
)

func ExampleOpen() {
	_, err := cublas.Open(nil, "/nowhere/libcublas.so")
	fmt.Println(errors.Is(err, driver.ErrNoDevice))
	// Output: true
}
