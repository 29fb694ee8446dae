package layout_test

import (
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// naive is the curve of live bytes of a rank, computed in another way: over the whole
// program, with a map of references for each stage and microbatch.
type naive struct {
	s          *layout.ShapeProfile
	live, most int64
	refs       map[int]int
	size       map[int]int64
}

// requireBound compares the maximum of the naive curve with the bound.
func requireBound(t testing.TB, plan *schedule.Plan, profile *layout.Profile, made *layout.Memory, rank, lookAhead int, name string) {
	t.Helper()
	n := &naive{s: &profile.Shapes[0], refs: map[int]int{}, size: map[int]int64{}}
	lent := map[[2]int]map[layout.Ref]int{} // by stage and microbatch: the buffer behind each Ref
	sent := map[[3]int][]int{}
	parts := map[int]map[int]int{}
	next, pulled := 0, 0
	born := func(bytes int64) int {
		next++
		n.refs[next], n.size[next] = 1, bytes
		n.live += bytes
		n.most = max(n.most, n.live)
		return next
	}
	release := func(b int) {
		if n.refs[b]--; n.refs[b] == 0 {
			n.live -= n.size[b]
		}
		require.GreaterOrEqual(t, n.refs[b], 0)
	}
	of := func(s, m int) map[layout.Ref]int {
		key := [2]int{s, m}
		if lent[key] == nil {
			lent[key] = map[layout.Ref]int{}
		}
		return lent[key]
	}
	wants := func(m int) (set uint64) {
		depth := plan.Placement.Depth()
		for s := range plan.Placement.Stages() {
			first := s / depth * depth
			from, _ := plan.Span(first)
			if m < from {
				continue
			}
			if next := first + depth; next < plan.Placement.Stages() {
				if until, _ := plan.Span(next); m >= until {
					continue
				}
			}
			if plan.Placement.Rank[s] == rank {
				for _, parts := range plan.Parts[s] {
					set |= parts
				}
			}
		}
		return set
	}
	pull := func(m int) {
		for ; pulled <= min(plan.BatchIndex(m)+lookAhead, plan.Microbatches-1); pulled++ {
			for m := range plan.Microbatches {
				if plan.BatchIndex(m) != pulled {
					continue
				}
				parts[m] = map[int]int{}
				for set := wants(m); set != 0; set &= set - 1 {
					part := bits.TrailingZeros64(set)
					parts[m][part] = born(n.s.Entries[1<<part].Buffers[0].Bytes)
				}
			}
		}
	}
	stage := func(s int) *layout.StageProfile { return &n.s.Stages[s%len(n.s.Stages)] }
	for a := range plan.All(rank) {
		s, m, kind := a.Stage(), a.Microbatch(), a.Kind()
		refs := of(s, m)
		var call *layout.Call
		switch kind {
		case schedule.F:
			pull(m)
			for part, b := range parts[m] {
				refs[layout.Ref{Kind: layout.PartRead, Index: part}] = b
			}
			call = stage(s).Forward
		case schedule.B:
			call = stage(s).Whole
		case schedule.I:
			call = stage(s).Input
		case schedule.W:
			call = stage(s).Weight
		case schedule.RecvF: // in this model one tensor of hidden states crosses
			refs[in(0)] = born(hidden(n.s))
		case schedule.RecvB:
			refs[grad(0)] = born(hidden(n.s))
		}
		run := func(events []layout.RefChange) {
			for _, e := range events {
				switch e.Op {
				case layout.Alloc:
					refs[e.Ref] = born(stage(s).Buffers[e.Ref.Index].Bytes)
				case layout.Retain:
					n.refs[refs[e.Ref]]++
				default:
					release(refs[e.Ref])
				}
			}
		}
		var ends []layout.RefChange
		if call != nil {
			run(call.Events[:len(call.Events)-call.Taken])
			ends = call.Events[len(call.Events)-call.Taken:]
			for _, out := range call.Out {
				to, ref := s+1, in(0)
				if kind != schedule.F {
					to, ref = s-1, grad(0)
				}
				if plan.Placement.Rank[to] == rank {
					of(to, m)[ref] = refs[out]
				} else {
					sent[[3]int{s, m, to}] = []int{refs[out]}
				}
			}
		}
		if a.Drop()&schedule.DropParts != 0 {
			for part, b := range parts[m] {
				if plan.Parts[s][kind]>>part&1 == 1 {
					release(b)
				}
			}
		}
		if a.Drop()&schedule.DropInput != 0 {
			release(refs[in(0)])
		}
		if a.Drop()&schedule.DropGrad != 0 {
			release(refs[grad(0)])
		}
		run(ends)
		if a.Drop()&schedule.DropSent != 0 {
			to := s + 1
			if kind == schedule.WaitB {
				to = s - 1
			}
			for _, b := range sent[[3]int{s, m, to}] {
				release(b)
			}
		}
	}
	pull(plan.Microbatches - 1)
	require.Zero(t, n.live, name)
	if own := plan.Placement.On(rank); len(own) > 0 { // otherwise there is at most a tied use, at step end
		require.Equal(t, n.most, made.Ranks[rank].Bound, "%s rank %d", name, rank)
	}
}

// hidden returns the bytes of the tensor that crosses between two stages.
func hidden(s *layout.ShapeProfile) int64 {
	return s.Stages[0].Buffers[s.Stages[0].Forward.Out[0].Index].Bytes
}
