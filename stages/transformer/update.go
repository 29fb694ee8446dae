package transformer

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule/runner"
)

// AdamW holds the parameters of an update by AdamW (Loshchilov and Hutter 2019). LearningRate and
// WeightDecay are used as given, so that a schedule may start at 0. If Beta1, Beta2 or Epsilon is
// 0, it defaults to 0.9, 0.999 or 1e-8.
type AdamW struct {
	LearningRate, Beta1, Beta2, Epsilon, WeightDecay float32
}

// Validate reports every parameter that is out of range.
func (o AdamW) Validate() error {
	var faults []error
	for _, n := range []struct {
		name  string
		value float32
		below float64
	}{
		{"LearningRate", o.LearningRate, math.Inf(1)}, {"WeightDecay", o.WeightDecay, math.Inf(1)},
		{"Epsilon", o.Epsilon, math.Inf(1)}, {"Beta1", o.Beta1, 1}, {"Beta2", o.Beta2, 1},
	} {
		if v := float64(n.value); !(v >= 0 && v < n.below) {
			faults = append(faults, fmt.Errorf("transformer: AdamW.%s is %v, want at least 0 and below %v", n.name, n.value, n.below))
		}
	}
	return errors.Join(faults...)
}

// withDefaults replaces zeros by the defaults.
func (o AdamW) withDefaults() AdamW {
	o.Beta1, o.Beta2, o.Epsilon = cmp.Or(o.Beta1, 0.9), cmp.Or(o.Beta2, 0.999), cmp.Or(o.Epsilon, 1e-8)
	return o
}

// Update consumes the factor of a step's result and updates every copy of every parameter that is
// not Frozen, in the order of Parameters. With Config.Shard each replica updates the elements
// that it owns; unless the weights are shards, the runner passes them to the other replicas. If
// result.GradNorm is above maxNorm, the gradient is scaled down to that norm; a maxNorm of 0
// disables scaling.
//
// The error wraps ErrUnrolled if the scales of the step were not rolled, runner.ErrNoUpdate if the
// step has no update, runner.ErrUpdated if the result was used before, and runner.ErrStaleResult if
// another training step has begun since. In these cases, and for parameters out of range, nothing
// has changed.
func (m *Model) Update(opt AdamW, result *runner.Result, maxNorm float64) error {
	if err := opt.Validate(); err != nil {
		return err
	}
	if !(maxNorm >= 0) {
		return fmt.Errorf("transformer: a maximum gradient norm of %v, want at least 0", maxNorm)
	}
	if err := m.scaling.unrolled(); err != nil && result.Outcome == loss.Stepped {
		return err
	}
	err := result.Update(func(factor float64) error {
		if maxNorm > 0 && result.GradNorm > maxNorm {
			factor *= maxNorm / result.GradNorm
		}
		return m.apply(opt.withDefaults(), factor)
	})
	if err != nil {
		return fmt.Errorf("transformer: update %d: %w", m.Updates+1, err)
	}
	m.Updates++
	return nil
}

// apply performs an AdamW update with gradients multiplied by factor.
func (m *Model) apply(opt AdamW, factor float64) error {
	for _, p := range m.parameters {
		if p.Frozen {
			continue
		}
		decay := opt.WeightDecay
		if !p.Decay {
			decay = 0
		}
		for c := range p.All() {
			weight, grad, err := c.Weight, c.Grad, error(nil)
			if m.shard > 0 && c.Count == 0 {
				continue
			}
			if m.shard > 0 {
				weight, err = c.Own(weight)
			}
			if m.shard > 0 && err == nil {
				grad, err = c.Own(grad)
			}
			if err != nil {
				return fmt.Errorf("%q: %w", p.Name, err)
			}
			err = c.Device.AdamW(kernels.AdamW{
				Weight: weight, Grad: grad, M: c.M, V: c.V, Factor: float32(factor),
				LearningRate: opt.LearningRate, Beta1: opt.Beta1, Beta2: opt.Beta2, Epsilon: opt.Epsilon,
				WeightDecay: decay, Step: m.Updates + 1,
			})
			if err != nil {
				return fmt.Errorf("%q: %w", p.Name, err)
			}
		}
	}
	return nil
}
