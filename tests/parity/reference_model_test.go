package parity

import (
	"fmt"
	"math"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// Config is the configuration of the model. Seed is the seed of the initial weights.
type Config struct {
	Vocabulary, Width, Layers, Heads, Context int
	Dropout                                   float32
	Untied                                    bool
	Seed                                      uint64
}

// Parameter is a parameter: weight, gradient and moments.
type Parameter struct {
	Name               string
	Weight, Grad, M, V kernels.Buffer
	decay              bool
}

// Model holds the parameters by name and in order.
type Model struct {
	Parameters []*Parameter

	cfg      Config
	dev      kernels.Compute
	byName   map[string]*Parameter
	headGrad kernels.Buffer // the accumulator of the table's use by the head
	updates  int64
}

// New makes the model. Its buffers are released with the device.
func New(dev kernels.Compute, cfg Config) (*Model, error) {
	m := &Model{cfg: cfg, dev: dev, byName: map[string]*Parameter{}}
	w := cfg.Width
	projection := 0.02 / math.Sqrt(2*float64(cfg.Layers))
	var err error
	add := func(name string, n int, deviation float64) {
		if err == nil {
			err = m.parameter(name, n, deviation)
		}
	}
	norm := func(name string) {
		add(name+".weight", w, ones)
		add(name+".bias", w, 0)
	}
	linear := func(name string, in, out int, deviation float64) {
		add(name+".weight", in*out, deviation)
		add(name+".bias", out, 0)
	}
	add("embedding.weight", cfg.Vocabulary*w, 0.02)
	add("positions.weight", cfg.Context*w, 0.02)
	for i := range cfg.Layers {
		block := fmt.Sprintf("block%d", i)
		norm(block + ".norm1")
		linear(block+".attention.qkv", w, 3*w, 0.02)
		linear(block+".attention.output", w, w, projection)
		norm(block + ".norm2")
		linear(block+".mlp.up", w, 4*w, 0.02)
		linear(block+".mlp.down", 4*w, w, projection)
	}
	norm("norm")
	if cfg.Untied {
		add("head.weight", cfg.Vocabulary*w, 0.02)
	}
	if err != nil {
		return nil, err
	}
	if m.headGrad, err = dev.Alloc(memory.Resident, kernels.Float32, cfg.Vocabulary*w); err != nil {
		return nil, err
	}
	return m, nil
}

// ones stands for the deviation of a parameter whose elements start at 1.
const ones = -1

// parameter adds a parameter of n elements: normal draws keyed by its name, or zeros if the
// deviation is 0. Drawn parameters decay.
func (m *Model) parameter(name string, n int, deviation float64) error {
	p := &Parameter{Name: name, decay: deviation > 0}
	for _, b := range []*kernels.Buffer{&p.Weight, &p.Grad, &p.M, &p.V} {
		var err error
		if *b, err = m.dev.Alloc(memory.Resident, kernels.Float32, n); err != nil {
			return err
		}
		if err := m.dev.Zero(*b); err != nil {
			return err
		}
	}
	m.Parameters, m.byName[name] = append(m.Parameters, p), p
	switch {
	case deviation == ones:
		values := make([]float32, n)
		for i := range values {
			values[i] = 1
		}
		return m.dev.WriteFloat32(p.Weight, values)
	case deviation > 0:
		return m.dev.Normal(p.Weight, float32(deviation), kernels.Key{Seed: m.cfg.Seed, Op: kernels.OpKey(name)})
	}
	return nil
}

func (m *Model) weight(name string) kernels.Buffer { return m.byName[name].Weight }
func (m *Model) grad(name string) kernels.Buffer   { return m.byName[name].Grad }
