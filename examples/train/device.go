package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/trainer/job"
)

// products are the values of -products.
var products = []string{"float32", "bfloat16", "cublas", "cublas-bfloat16"}

// cudaNumber returns the number of the first GPU named by -device, and whether it names a GPU.
func (o *options) cudaNumber() (number int, cuda bool, err error) {
	name, text, numbered := strings.Cut(o.device, ":")
	if numbered {
		number, err = strconv.Atoi(text)
	}
	switch {
	case o.device == "host":
		return 0, false, nil
	case name != "cuda" || err != nil || number < 0:
		return 0, false, fmt.Errorf("-device is %q, want host, cuda, or cuda:2 for GPU number 2", o.device)
	}
	return number, true, nil
}

// open opens the device of the nth rank of this process.
func (t *trainer) open(n int) (job.Local, error) {
	number, cuda, err := t.opts.cudaNumber()
	switch {
	case err != nil:
		return nil, err
	case cuda:
		return openCUDA(number+n, t.opts)
	}
	return kernels.NewHost(kernels.HostConfig{Alone: t.opts.Ranks == 1 && t.session.Process == nil && t.opts.Audit == 0})
}
