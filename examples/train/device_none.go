//go:build !cuda

package main

import (
	"errors"

	"github.com/weir-ml/weir/trainer/job"
)

// openCUDA returns an error: this program was built without CUDA.
func openCUDA(int, *options) (job.Local, error) {
	return nil, errors.New("-device cuda: this program was built without CUDA; kernels/cuda/build.sh builds one with it (go build -tags cuda ./examples/train)")
}
