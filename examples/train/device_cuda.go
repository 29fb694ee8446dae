//go:build cuda

package main

import (
	"fmt"

	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/libcuda"
)

// openCUDA makes a device of a GPU by its number, which multiplies as -products says.
func openCUDA(number int, products string) (local, error) {
	driver, err := libcuda.Open(number)
	if err != nil {
		return nil, fmt.Errorf("-device cuda: %w", err)
	}
	cfg := cuda.Config{}
	if products == "bfloat16" {
		cfg.Products = cuda.BFloat16
	}
	return cuda.Open(driver, cfg)
}
