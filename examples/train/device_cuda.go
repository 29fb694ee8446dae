//go:build cuda

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/cublas"
	"github.com/weir-ml/weir/kernels/cuda/libcuda"
)

// openCUDA makes a device of a GPU by its number, which multiplies as -products says.
func openCUDA(number int, products string) (local, error) {
	driver, err := libcuda.Open(number)
	if err != nil {
		return nil, fmt.Errorf("-device cuda: %w", err)
	}
	cfg := cuda.Config{}
	if strings.HasSuffix(products, "bfloat16") {
		cfg.Products = cuda.BFloat16
	}
	if strings.HasPrefix(products, "cublas") {
		if cfg.Library, err = cublas.Open(driver, ""); err != nil {
			return nil, errors.Join(fmt.Errorf("-products %s: %w", products, err), driver.Close())
		}
	}
	return cuda.Open(driver, cfg)
}
