package stagetest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	batchctx "github.com/weir-ml/weir/context"
)

// The check by finite differences. A stage whose losses have seeds s and sums l, and whose outputs y have
// gradients g, computes the gradient of
//
//	L = Σ s·l + Σ g·y
//
// with respect to its weights and its inputs. Along a direction d, this gradient must equal (L(x+h·d) -
// L(x-h·d)) / 2h, up to errors of order h² and rounding errors. Two step sizes tell these apart.

const (
	differenceSeed  = 3       // exponent of the seeds: 8 rather than 1
	differenceStep  = 1. / 64 // the first step size, relative to the root mean square
	differenceTries = 4       // number of step sizes, each a quarter of the previous one
	// The relative error of a gradient may be up to tolerance; a step size is good if its
	// relative error is at most goodStep. The sum of both is less than 1 %.
	tolerance, goodStep = 0.004, 0.002
	// rounding is the relative rounding error of a sum of numbers in float32.
	rounding = 1. / (1 << 24)
)

// differences holds the state of the check for one trial.
type differences[T any] struct {
	*trial[T]
	set   setting[T]
	shift func(at tensorKey, x []float64) (moved bool) // moves an input; nil moves none
	err   error                                        // from reading or writing a tensor

	// Results of the last step.
	values, gradIns, outputs map[tensorKey][]float64 // unmoved inputs, gradients of inputs, and outputs
	total, norm              float64                 // L, and the norm of its terms
}

// target is a quantity whose gradient is compared: a weight, or an input in all microbatches.
type target struct {
	what     string
	at       []tensorKey             // the target's tensors
	value    map[tensorKey][]float64 // before the target is moved
	gradient map[tensorKey][]float64
}

// differences compares the gradients of weights and inputs with differences of the losses.
func (s *suite[T]) differences() {
	if s.cfg.GradientDiffers {
		return
	}
	set := setting[T]{name: "depth-first against differences of the losses", exponent: differenceSeed}
	s.with(set, func(x *run[T]) {
		t := x.trial
		switch {
		case t.spec.Quantizes() && !isExact(t.subject.Space):
			s.note("the stage computes on copies of its weights: gradients are compared with differences of the losses only if Subject.Space is an Exact")
			return
		case t.subject.Read == nil:
			return // start has already reported it
		case t.subject.Write == nil:
			s.note("Subject.Write is nil: gradients were not compared with differences of the losses")
			return
		}
		d := &differences[T]{trial: t, set: set}
		d.set.visit, d.set.onMake = d.visit, d.made
		t.watch.forgetful = true
		weights := d.weights()
		if !d.step() {
			return
		}
		for _, w := range weights {
			w.gradient[w.at[0]] = d.read(d.params[w.at[0].index].Grad)
		}
		for _, target := range append(weights, d.inputs()...) {
			d.compare(target)
		}
	})
}

func isExact(space any) bool {
	_, ok := space.(interface{ exact() })
	return ok
}

// weights returns the weights as targets. It first moves them away from the values of New,
// because a weight of 1 could hide a missing factor.
func (d *differences[T]) weights() (targets []*target) {
	for i, use := range d.params {
		first := slices.IndexFunc(d.params, func(u batchctx.Use[T]) bool { return u.Name == use.Name })
		frozen := slices.ContainsFunc(d.params, func(u batchctx.Use[T]) bool {
			return u.Name == use.Name && u.Contributes == batchctx.Frozen
		})
		switch {
		case first != i || frozen:
			continue // the total of a tied weight is the gradient of its first use
		case none(use.Weight):
			d.suite.note(fmt.Sprintf("the Use of %q has no Weight: its gradient was not compared with differences of the losses", use.Name))
			continue
		}
		at := tensorKey{gradients, -1, i}
		x := d.read(use.Weight)
		scale := max(spread(x), 1)
		for k := range x {
			x[k] += scale * d.draw(at, 0, k) / 4
		}
		d.write(use.Weight, x)
		targets = append(targets, &target{
			what: fmt.Sprintf("parameter %d (%s)", i, use.Name), at: []tensorKey{at},
			value: map[tensorKey][]float64{at: x}, gradient: map[tensorKey][]float64{},
		})
	}
	return targets
}

// inputs returns the inputs of the last step as targets.
func (d *differences[T]) inputs() (targets []*target) {
	for i, port := range d.spec.Inputs {
		if port.NoGrad {
			continue
		}
		in := &target{what: fmt.Sprintf("input %d (%s)", i, port.Name), value: d.values, gradient: d.gradIns}
		for m := range differenceMicrobatches {
			in.at = append(in.at, tensorKey{gradIns, m, i})
		}
		targets = append(targets, in)
	}
	return targets
}

const differenceMicrobatches = 2

// compare compares the gradient of a target with differences, along a direction whose elements have
// the signs of the gradient's, so that terms do not cancel, and along a random one.
func (d *differences[T]) compare(t *target) {
	for _, at := range t.at {
		if len(t.gradient[at]) != len(t.value[at]) {
			d.suite.report(GradientDiffers, "the gradient of %s has %d numbers, and it has %d", t.what, len(t.gradient[at]), len(t.value[at]))
			return
		}
	}
	for number := 1; number <= 2; number++ {
		direction := map[tensorKey][]float64{}
		var along, squares float64
		for _, at := range t.at {
			scale, v := spread(t.value[at]), make([]float64, len(t.value[at]))
			for k, g := range t.gradient[at] {
				v[k] = scale * d.draw(at, number, k)
				if number == 1 && g != 0 {
					v[k] = math.Copysign(v[k], g)
				}
				along += g * v[k]
				squares += g * g * v[k] * v[k]
			}
			direction[at] = v
		}
		size := max(math.Abs(along), math.Sqrt(squares))
		best, slack := math.NaN(), math.Inf(1)
		for try, h := 0, differenceStep; try < differenceTries && !(slack <= goodStep*size); try, h = try+1, h/4 {
			large, ok := d.central(t, direction, h)
			small, too := d.central(t, direction, h/2)
			if !ok || !too {
				return
			}
			if s := math.Abs(large-small) + rounding*d.norm/h; s < slack {
				best, slack = (4*small-large)/3, s
			}
		}
		if !(math.Abs(along-best) <= tolerance*size+slack) {
			d.fault(GradientDiffers, "the gradient of %s along a direction is %.6g, but the losses change by %.6g", t.what, along, best)
			return
		}
	}
}

// central returns the central difference of L along a direction, and false after an error.
func (d *differences[T]) central(t *target, direction map[tensorKey][]float64, h float64) (float64, bool) {
	var totals [2]float64
	for i, sign := range []float64{h, -h} {
		moved := func(at tensorKey) []float64 {
			x := slices.Clone(t.value[at])
			for k := range x {
				x[k] += sign * direction[at][k]
			}
			return x
		}
		if at := t.at[0]; at.kind == gradients {
			d.write(d.params[at.index].Weight, moved(at))
			defer d.write(d.params[at.index].Weight, t.value[at])
		}
		d.shift = func(at tensorKey, x []float64) bool {
			if !slices.Contains(t.at, at) {
				return false
			}
			copy(x, moved(at))
			return true
		}
		ok := d.step()
		d.shift = nil
		if !ok {
			return 0, false
		}
		totals[i] = d.total
	}
	return (totals[0] - totals[1]) / (2 * h), true
}

// step runs the first step of a new runner, with the same draws as all others, and computes L. It
// reports whether the step succeeded.
func (d *differences[T]) step() bool {
	d.total, d.norm = 0, 0
	d.values, d.gradIns, d.outputs = map[tensorKey][]float64{}, map[tensorKey][]float64{}, map[tensorKey][]float64{}
	x, ok := d.start(d.set)
	if !ok {
		return false
	}
	got, err := x.step(context.Background(), differenceMicrobatches)
	if err == nil {
		err = d.err
	}
	if closed := x.runner.Close(); err == nil {
		err = closed
	}
	if err != nil {
		d.fault(BadConfig, "a step at other weights or inputs fails: %v", err)
		return false
	}
	for i, def := range d.losses {
		seed := def.Coefficient
		if def.Objective {
			seed = 1
		}
		d.add(math.Ldexp(seed, differenceSeed) * got.losses[i].Sum)
	}
	d.norm = math.Sqrt(d.norm)
	return true
}

func (d *differences[T]) add(term float64) {
	d.total += term
	d.norm += term * term
}

// visit reads the outputs of a forward, and the gradients of a backward.
func (d *differences[T]) visit(v visit[T], run func() error) error {
	if err := run(); err != nil {
		return err
	}
	m := v.mb.Index()
	for i, h := range v.out {
		if !d.spec.Outputs[i].NoGrad {
			d.outputs[tensorKey{outputs, m, i}] = d.read(h)
		}
	}
	for i, h := range v.gradOut {
		if out := d.outputs[tensorKey{outputs, m, i}]; !d.spec.Outputs[i].NoGrad {
			for k, g := range d.read(h) {
				d.add(g * out[k])
			}
		}
	}
	for i, h := range v.gradIn {
		if !d.spec.Inputs[i].NoGrad {
			d.gradIns[tensorKey{gradIns, m, i}] = d.read(h)
		}
	}
	return nil
}

// made records the values of an input, or moves it.
func (d *differences[T]) made(want Want, h T) {
	if want.Kind != Input || d.spec.Inputs[want.Index].NoGrad {
		return
	}
	at, x := tensorKey{gradIns, want.Microbatch, want.Index}, d.read(h)
	if d.shift == nil {
		d.values[at] = x
	} else if d.shift(at, x) {
		d.write(h, x)
	}
}

// read returns the numbers of a float32 tensor.
func (d *differences[T]) read(h T) []float64 {
	data, err := d.subject.Read(h)
	if err != nil && d.err == nil {
		d.err = err
	}
	x := make([]float64, len(data)/4)
	for i := range x {
		x[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
	}
	return x
}

func (d *differences[T]) write(h T, x []float64) {
	data := make([]byte, 0, 4*len(x))
	for _, v := range x {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v)))
	}
	if err := d.subject.Write(h, data); err != nil && d.err == nil {
		d.err = err
	}
}

// draw returns element k of a direction, in [-1, 1).
func (d *differences[T]) draw(at tensorKey, number, k int) float64 {
	return float64(Want{Kind: TensorKind(at.kind), Index: at.index, Microbatch: at.microbatch&0xff | number<<8}.Float(k))
}

// spread returns the root mean square of numbers, or 1 if they are all 0.
func spread(x []float64) float64 {
	var squares float64
	for _, v := range x {
		squares += v * v
	}
	if squares == 0 {
		return 1
	}
	return math.Sqrt(squares / float64(len(x)))
}
