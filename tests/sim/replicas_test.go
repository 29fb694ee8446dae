package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
)

// use is a use of a parameter by a stage of a replica, with the gradient and the weight that the
// replica stores at its shard level.
type use struct {
	dev          kernels.Compute
	name         string
	n            int // elements of the whole parameter
	first, count int // elements that the replica owns
	grad, weight T
	alias        bool // another use on the rank has the same weight
}

// count returns the number of replicas.
func (s *Scenario) count() int { return max(s.Replicas, 1) }

// elements returns the number of elements of a parameter. With replicas some parameters are long, so
// that each replica owns some of their elements, and others are short.
func (w *world) elements(name string) int {
	if w.count() == 1 || strings.HasSuffix(name, "1") {
		return 1
	}
	return 6
}

// The parts of a long parameter of the simulation (runner.Sharded).
const parts = 4

func (d *device) Parts(n int) int {
	if n < parts {
		return 1
	}
	return parts
}

func (d *device) Bound(n, part int) int { return n * part / d.Parts(n) }

func (d *device) PartSquares(sums []float64, g T, n, part int) error {
	if err := d.w.event(atGradient); err != nil {
		return err
	}
	first := d.Bound(n, part)
	x := make([]float32, d.Bound(n, part+len(sums))-first)
	if err := d.ReadFloat32(x, g); err != nil {
		return err
	}
	for i := range sums {
		sums[i] = 0
		for _, x := range x[d.Bound(n, part+i)-first : d.Bound(n, part+i+1)-first] {
			sums[i] += float64(x) * float64(x)
		}
	}
	return nil
}

func (d *device) New(class memory.Class, like T, n int) (T, error) {
	if class != memory.Unsharded { // while the runner is built
		return d.Host.New(class, like, n)
	}
	return d.Alloc(class, like.Type, n)
}

// UnholdAndRelease overwrites whole gradients and gathered weights with NaN, so that late reads by other ranks
// are detected.
func (d *device) UnholdAndRelease(b T) (unheld, freed int64, class memory.Class, err error) {
	if d.Class(b) == memory.Unsharded {
		err = d.WriteFloat32(b, slices.Repeat([]float32{float32(math.NaN())}, b.N))
	}
	if err != nil {
		return 0, 0, memory.Unsharded, err
	}
	return d.Host.UnholdAndRelease(b)
}

// usesOf returns the uses of a stage of a replica.
func (w *world) usesOf(dev kernels.Compute, replica, s int) ([]use, error) {
	depth := w.placement.Depth()
	names := []string{fmt.Sprint("w", s%depth)}
	if s%depth == 0 || s%depth == depth-1 {
		names = append(names, "shared")
	}
	if own, ok := dev.(*device); ok {
		dev = own.Host
	}
	if replica == 0 {
		w.wanted = append(w.wanted, nil)
	}
	uses := make([]use, len(names))
	for i, name := range names {
		u := &uses[i]
		*u = use{dev: dev, name: name, n: w.elements(name)}
		u.first, u.count = runner.ShardRange(w.devs[0], name, u.n, replica, w.count())
		size := func(level int) int {
			if w.count() > 1 && w.Shard >= level {
				return u.count
			}
			return u.n
		}
		var err error
		if n := size(2); n > 0 {
			if u.grad, err = dev.Alloc(memory.Resident, kernels.Float32, n); err != nil {
				return uses, err
			}
		}
		if w.count() == 1 {
			continue
		}
		if replica == 0 {
			w.wanted[s] = append(w.wanted[s], slices.Repeat([]float32{1}, u.n))
		}
		if first := w.firstUse(replica, name); first != nil && !w.frozen(s%depth) {
			u.weight, u.alias = first.weight, true
		} else if n := size(3); n > 0 {
			if u.weight, err = dev.Alloc(memory.Resident, kernels.Float32, n); err != nil {
				return uses, err
			}
			if err := dev.WriteFloat32(u.weight, slices.Repeat([]float32{1}, n)); err != nil {
				return uses, err
			}
		}
	}
	return uses, nil
}

// firstUse returns the first use of a trained parameter if all uses are on one rank, and nil
// otherwise. On one rank they share one weight, and the first use has the gradient.
func (w *world) firstUse(replica int, name string) *use {
	if w.Ranks > 1 {
		return nil
	}
	for s, uses := range w.uses[replica*w.placement.Stages():] {
		for i := range uses {
			if uses[i].name == name && !w.frozen(s%w.placement.Depth()) {
				return &uses[i]
			}
		}
	}
	return nil
}

// from returns the first element that the replica updates.
func (u *use) from(w *world) int {
	if w.count() == 1 || w.Shard == 0 {
		return 0
	}
	return u.first
}

// owned returns the elements of a buffer that the replica updates. If shard is set the buffer has
// only these elements.
func (u *use) owned(w *world, h T, shard bool) ([]float32, error) {
	if h == (T{}) {
		return nil, nil
	}
	x := make([]float32, h.N)
	if err := u.dev.ReadFloat32(x, h); err != nil || shard || w.count() == 1 || w.Shard == 0 {
		return x, err
	}
	return x[u.first:][:u.count], nil
}

// readWeights requires that a stage computes with the weights of the last update.
func (w *world) readWeights(dev kernels.Device, mb batchctx.Microbatch[T], s int, params []batchctx.Param) error {
	if w.count() == 1 {
		return nil
	}
	for i, param := range params {
		h := mb.Weight(param)
		if w.dry {
			continue
		}
		want := w.wanted[s][i]
		x := make([]float32, len(want))
		if err := dev.ReadFloat32(x, h); err != nil {
			w.violated("a weight cannot be read: %w", err)
			return err
		}
		if !slices.Equal(x, want) {
			w.violated("stage %d reads the weights %v, not %v", s, x, want)
		}
	}
	return nil
}

// step returns a weight after an update by its gradient.
func step(weight, gradient float32) float32 { return weight + float32(gradient*(1.0/64)) }

// update updates the weights of all replicas, in all processes concurrently, and compares them with
// weights computed from a plain sum.
func (w *world) update(endings []ending) error {
	w.updating = true
	defer func() { w.updating = false }()
	errs := make([]error, len(endings))
	var all sync.WaitGroup
	for i := range endings {
		all.Go(func() {
			errs[i] = endings[i].result.Update(func(float64) error {
				return w.apply(i)
			})
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	depth := w.placement.Depth()
	sums := make([]float32, depth)
	for k := range sums {
		for index := range w.m {
			sums[k] += input(k, index) * gradient(k, depth)
		}
	}
	for s := range w.wanted {
		k := s % depth
		for i, want := range w.wanted[s] {
			sum := sums[k]
			if i == 1 {
				sum = 0
				for _, end := range slices.Compact([]int{0, depth - 1}) {
					if !w.frozen(end) {
						sum += sums[end]
					}
				}
			}
			for j := range want {
				if !w.frozen(k) {
					want[j] = step(want[j], float32(1+j)*sum)
				}
			}
		}
	}
	for n, uses := range w.uses {
		for i := range uses {
			u := &uses[i]
			if u.weight == (T{}) {
				continue
			}
			want := w.wanted[n%w.placement.Stages()][i]
			if w.Shard == 3 {
				want = want[u.first:][:u.count]
			}
			x := make([]float32, u.weight.N)
			if err := u.dev.ReadFloat32(x, u.weight); err != nil {
				return err
			}
			if !slices.Equal(x, want) {
				return fmt.Errorf("stage %d has the weights %v for %q, not %v (L9)", n, x, u.name, want)
			}
		}
	}
	return nil
}

// apply updates the weights of the ranks of a runner.
func (w *world) apply(number int) error {
	for n, uses := range w.uses {
		s := n % w.placement.Stages()
		rank := n/w.placement.Stages()*w.Ranks + w.placement.Rank[s]
		if w.Apart && rank != number || w.frozen(s%w.placement.Depth()) {
			continue
		}
		for i := range uses {
			u := &uses[i]
			if u.alias || u.weight == (T{}) {
				continue
			}
			grad, err := u.owned(w, u.grad, w.Shard >= 2)
			if err != nil {
				return err
			}
			whole := make([]float32, u.weight.N)
			if err := u.dev.ReadFloat32(whole, u.weight); err != nil {
				return err
			}
			own := whole
			if w.Shard == 1 || w.Shard == 2 {
				own = whole[u.first:][:u.count]
			}
			for j := range own {
				own[j] = step(own[j], grad[j])
			}
			if err := u.dev.WriteFloat32(u.weight, whole); err != nil {
				return err
			}
		}
	}
	return nil
}

var _ runner.Sharded[T] = (*device)(nil)
