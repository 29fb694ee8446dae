package runner

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/weir-ml/weir/schedule"
)

// InOrder returns a source that assigns the microbatches of source to the replicas in a given order, such as one that
// package pack has planned: the k-th microbatch of replica r is microbatch order[r][k] of the batch, which is its
// Entry.Index. Replicas may have different numbers of microbatches; together they have each of the m microbatches of
// the batch once. Without InOrder, replica r has the microbatches r, r+R, and so on.
//
// Gradients are accumulated in this order (L9). Random draws are keyed by Entry.Index, so they do not depend on the
// order. The source must make an entry from Entry.Index alone, as a source made by Indexed or IndexedShapes does;
// PerRank may combine such sources, but a Stream is refused. The ranks compare a hash of the order. The returned source
// keeps order, and the caller must not change it.
func InOrder[T any](source Source[T], order [][]int) Source[T] {
	return &ordered[T]{source, order, checkOrder(order)}
}

type ordered[T any] struct {
	Source[T]
	order [][]int
	err   error // the first fault of the order
}

func (*ordered[T]) begin(int, int, *batch) error {
	return errors.New("runner: an InOrder within another source: pass it to Step, Evaluate or Prepare")
}

// checkOrder returns an error unless an order has each of its microbatches once.
func checkOrder(order [][]int) error {
	m := 0
	for _, own := range order {
		m += len(own)
	}
	has := make([]bool, m)
	for replica, own := range order {
		for _, i := range own {
			if i < 0 || i >= m || has[i] {
				return fmt.Errorf("runner: the order of replica %d has microbatch %d: an order of %d microbatches has each of 0 to %d once", replica, i, m, m-1)
			}
			has[i] = true
		}
	}
	return nil
}

// batch is the microbatches of a step, and how the replicas share them.
type batch struct {
	m, replicas int
	order       [][]int // see InOrder; nil without it
	repeat      repeat
}

// batch returns the batch of a step, and the source without its order.
func (r *Runner[T]) batch(mode schedule.Mode, source Source[T], m int) (Source[T], batch, error) {
	b := batch{m: m, replicas: r.planner.replicas}
	o, is := source.(*ordered[T])
	if !is {
		b.setRepeat(mode, r.cfg.Audit, r.next.Load())
		return source, b, nil
	}
	n := 0
	for _, own := range o.order {
		n += len(own)
	}
	switch {
	case o.err != nil:
		return nil, b, o.err
	case len(o.order) != b.replicas || n != m:
		return nil, b, fmt.Errorf("runner: an order of %d microbatches for %d replicas, but the step has %d for %d", n, len(o.order), m, b.replicas)
	}
	b.order = o.order
	b.setRepeat(mode, r.cfg.Audit, r.next.Load())
	return o.Source, b, nil
}

// count returns the number of entries of a replica's batch: its microbatches, and the one that it repeats, if any.
func (b *batch) count(replica int) int { return b.repeat.extra(replica) + b.own(replica) }

// own returns the number of microbatches of a replica.
func (b *batch) own(replica int) int {
	if b.order != nil {
		return len(b.order[replica])
	}
	return (b.m - replica + b.replicas - 1) / b.replicas
}

// index returns the index in the global batch of an entry of a replica's batch.
func (b *batch) index(replica, batchIndex int) int {
	if batchIndex -= b.repeat.extra(replica); batchIndex < 0 {
		return b.repeat.index
	}
	if b.order != nil {
		return b.order[replica][batchIndex]
	}
	return batchIndex*b.replicas + replica
}

// appendHello appends a rank's description of the step that it begins. Its size does not depend on the
// number of microbatches. It does not allocate if the slice has enough capacity (L11). shaped is nil if
// the shapes of the microbatches are not known.
func (b *batch) appendHello(hello []byte, plan *schedule.Plan, hash fnvSum, step int64, capacity, level int, shaped Shaped) []byte {
	hello = strconv.AppendInt(append(hello, "step "...), step, 10)
	hello = append(append(hello, " ("...), plan.Mode.String()...)
	hello = append(append(hello, ", "...), plan.Name[:min(len(plan.Name), 200)]...)
	hello = strconv.AppendInt(append(hello, ") with "...), int64(b.m), 10)
	hello = hash.appendTo(append(hello, " microbatches, plan "...))
	if b.order != nil {
		sum := newSum()
		for _, own := range b.order {
			sum.add(uint64(len(own)))
			for _, i := range own {
				sum.add(uint64(i))
			}
		}
		hello = sum.appendTo(append(hello, ", order "...))
	}
	if shaped != nil {
		sum := newSum()
		for i := range b.m {
			sum.add(uint64(shaped.Shape(i)))
		}
		hello = sum.appendTo(append(hello, ", shapes "...))
	}
	if b.repeat.on {
		hello = strconv.AppendInt(append(hello, ", audit of microbatch "...), int64(b.repeat.index), 10)
	}
	hello = strconv.AppendInt(append(hello, ", links of capacity "...), int64(capacity), 10)
	if level > 0 {
		hello = strconv.AppendInt(append(hello, ", shard level "...), int64(level), 10)
	}
	return hello
}
