//go:build cuda

package main

import (
	"fmt"

	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/libcuda"
)

// openCUDA makes a device of a GPU by its number.
func openCUDA(number int) (local, error) {
	driver, err := libcuda.Open(number)
	if err != nil {
		return nil, fmt.Errorf("-device cuda: %w", err)
	}
	return cuda.Open(driver, cuda.Config{})
}
