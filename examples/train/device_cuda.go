//go:build cuda

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/cublas"
	"github.com/weir-ml/weir/kernels/cuda/libcuda"
	"github.com/weir-ml/weir/trainer/job"
)

// openCUDA opens a GPU by its number, with the settings of -products and -plain-launches.
func openCUDA(number int, o *options) (job.Local, error) {
	driver, err := libcuda.Open(number)
	if err != nil {
		return nil, fmt.Errorf("-device cuda: %w", err)
	}
	cfg := cuda.Config{Plain: o.plain}
	if strings.HasSuffix(o.products, "bfloat16") {
		cfg.Products = cuda.BFloat16
	}
	if strings.HasPrefix(o.products, "cublas") {
		if cfg.Library, err = cublas.Open(driver, ""); err != nil {
			return nil, errors.Join(fmt.Errorf("-products %s: %w", o.products, err), driver.Close())
		}
	}
	return cuda.Open(driver, cfg)
}
