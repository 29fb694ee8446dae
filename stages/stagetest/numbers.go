package stagetest

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"slices"

	"github.com/weir-ml/weir/loss"
)

// numbers is the part of a step's result that the stage determines.
type numbers struct {
	digests map[tensorKey]uint64
	losses  []loss.Value
}

// tensorKey identifies a tensor of a step.
type tensorKey struct {
	kind       placeKind
	microbatch int // -1 for a gradient
	index      int
}

type placeKind uint8

const (
	outputs placeKind = 1 << iota
	gradIns
	gradients
	lossValues // the losses; only in a set of kinds, not in a tensorKey

	allNumbers = outputs | gradIns | gradients | lossValues
)

// String describes the tensor for messages.
func (p tensorKey) String() string {
	switch p.kind {
	case outputs:
		return fmt.Sprintf("output %d of microbatch %d", p.index, p.microbatch)
	case gradIns:
		return fmt.Sprintf("gradIn %d of microbatch %d", p.index, p.microbatch)
	}
	return fmt.Sprintf("the gradient of parameter %d", p.index)
}

var digestSeed = maphash.MakeSeed()

func digestOf(data []byte) uint64 { return maphash.Bytes(digestSeed, data) }

// difference returns a description of the first tensor or loss of the given kinds in which two
// steps differ, or "".
func (n numbers) difference(other numbers, kinds placeKind) string {
	var places []tensorKey
	for p := range n.digests {
		if p.kind&kinds != 0 {
			places = append(places, p)
		}
	}
	slices.SortFunc(places, func(a, b tensorKey) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.microbatch, b.microbatch), cmp.Compare(a.index, b.index))
	})
	for _, p := range places {
		if d, ok := other.digests[p]; !ok || d != n.digests[p] {
			return p.String()
		}
	}
	if kinds&lossValues == 0 {
		return ""
	}
	for i, a := range n.losses {
		b := other.losses[i]
		if math.Float64bits(a.Sum) != math.Float64bits(b.Sum) || math.Float64bits(a.Value) != math.Float64bits(b.Value) ||
			a.Weight != b.Weight || a.Count != b.Count || a.NonFinite != b.NonFinite {
			return fmt.Sprintf("loss %q", a.Name)
		}
	}
	return ""
}
