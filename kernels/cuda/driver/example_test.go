package driver_test

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/kernels/cuda/driver"
)

func ExampleError() {
	var err error = &driver.Error{Call: "Load", Code: 218, Text: "invalid PTX", Log: "line 7: unknown symbol", Kind: driver.ErrRefused}
	fmt.Println(err)
	fmt.Println(errors.Is(err, driver.ErrRefused))
	// Output:
	// the CUDA driver refuses the PTX: Load: invalid PTX (CUDA error 218)
	// line 7: unknown symbol
	// true
}
