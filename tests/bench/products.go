package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// product is the shape of a matrix product.
type product struct {
	M          int  `json:"m,omitempty"`
	N          int  `json:"n,omitempty"`
	K          int  `json:"k,omitempty"`
	TransA     bool `json:"transposed_a"`
	TransB     bool `json:"transposed_b"`
	Accumulate bool `json:"accumulate"`
}

// shapes lists shapes for which other projects publish figures, and the shapes of the forward, the gradient
// of the input and the gradient of the weight in training, both large ones and those of examples/train.
var shapes = []product{
	{M: 512, N: 512, K: 512},
	{M: 1024, N: 1024, K: 1024},
	{M: 768, N: 3072, K: 768},
	{M: 768, N: 768, K: 3072},
	{M: 256, N: 50257, K: 256, TransB: true},
	{M: 256, N: 1024, K: 256},
	{M: 256, N: 256, K: 1024, TransB: true},
	{M: 256, N: 1024, K: 256, TransA: true, Accumulate: true},
	{M: 64, N: 1024, K: 256},
	{M: 64, N: 256, K: 1024, TransB: true},
	{M: 256, N: 1024, K: 64, TransA: true, Accumulate: true},
	{M: 64, N: 1536, K: 384},
	{M: 64, N: 384, K: 1536, TransB: true},
	{M: 384, N: 1536, K: 64, TransA: true, Accumulate: true},
	{M: 32, N: 256, K: 64},
	{M: 32, N: 64, K: 256, TransB: true},
	{M: 64, N: 256, K: 32, TransA: true, Accumulate: true},
}

// name returns a short name such as "64×384×1536 Bᵀ".
func (p product) name() string {
	name := fmt.Sprintf("%d×%d×%d", p.M, p.N, p.K)
	if p.TransA {
		name += " Aᵀ"
	}
	if p.TransB {
		name += " Bᵀ"
	}
	return name
}

// products returns all products.
func products() (all []subject) {
	for _, p := range shapes {
		all = append(all, subject{Kind: "product", Name: p.name(), product: p})
	}
	return all
}

// measureProduct repeats a product for the given time, and for at least three samples. A sample contains
// so many calls that the cost of reading the clock is negligible.
func measureProduct(j job) (m measurement, err error) {
	p := j.product
	host, err := j.host()
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	buffer := func(n int) (b kernels.Buffer) {
		if err == nil {
			b, err = host.Alloc(memory.Workspace, kernels.Float32, n)
		}
		if err == nil {
			err = host.Normal(b, 1, kernels.Key{Seed: 1})
		}
		return b
	}
	op := kernels.MatMul{
		A: buffer(p.M * p.K), B: buffer(p.K * p.N), C: buffer(p.M * p.N),
		M: p.M, N: p.N, K: p.K, TransA: p.TransA, TransB: p.TransB, Accumulate: p.Accumulate,
	}
	flops := 2 * float64(p.M) * float64(p.N) * float64(p.K)
	calls := 1 + int(2e7/flops)
	var rates []float64
	now := j.clock()
	for begin := time.Now(); err == nil && (len(rates) < 4 || time.Since(begin).Seconds() < j.Time); {
		start := now()
		for range calls {
			if e := host.MatMul(op); e != nil {
				err = e
			}
		}
		rates = append(rates, flops*float64(calls)/float64((now()-start).Nanoseconds()))
	}
	if err != nil {
		return m, err
	}
	rates = rates[1:] // the first sample includes page faults
	slices.Sort(rates)
	return measurement{Steps: len(rates), Best: rates[len(rates)-1], Median: rates[len(rates)/2]}, nil
}
