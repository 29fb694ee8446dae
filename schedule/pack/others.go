package pack

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule/lengths"
)

// Method is a packing method of other trainers, for comparison.
type Method uint8

const (
	// InOrder deals sequences to the replicas in turn, and fills each microbatch until the next sequence does not fit.
	InOrder Method = iota
	// LongestFirst is InOrder with the longest sequences first.
	LongestFirst
	// Balanced deals and packs by the largest differencing method of Karmarkar and Karp, so that replicas
	// and then microbatches have equal work, and runs the smallest microbatches first and last. As in verl
	// 0.9.1, the replicas' numbers of sequences differ by at most one, every replica has the smallest number of
	// microbatches that suffices for all, and the work of a sequence of l tokens is 24576·l + l² for every model.
	Balanced
)

var methodNames = [...]string{"in order", "longest first", "balanced"}

// Methods returns all methods.
func Methods() []Method { return []Method{InOrder, LongestFirst, Balanced} }

// String returns the name.
func (m Method) String() string { return methodNames[m] }

// Other packs sequences by a method. Microbatches have at most Limits.Tokens tokens. Without this limit, they have at
// most the number of tokens with which equal microbatches fit into the memory. A longer sequence has its own
// microbatch, and the result may then exceed the memory. If a sequence exceeds a limit even if it is alone, the error is
// a *[TooLongError]. Other errors wrap ErrConfig, or are those of the rule and of check.Prove.
func (p *Packer) Other(method Method, sequences []int64) (*Packing, error) {
	if err := p.check(sequences); err != nil {
		return nil, err
	}
	b, limit := newBatch(p, sequences), p.cfg.Limits.Tokens
	if limit == 0 {
		if one := p.prepare(2 * p.cfg.Params.Placement.Ranks); one.err == nil {
			limit = one.safe
		}
	}
	var dealt [][][]int
	if method == Balanced {
		dealt = b.balance(limit)
	} else {
		order := make([]int, len(sequences))
		for i := range order {
			order[i] = i
		}
		if method == LongestFirst {
			slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(sequences[j], sequences[i]) })
		}
		dealt = b.fillInOrder(order, limit)
	}
	packing := &Packing{Bound: b.bound()}
	for _, packs := range dealt {
		t := &trial{b: b, packs: packs}
		if len(packs) > maxPacks {
			return nil, diagnostic.Errorf(ErrConfig, "%d microbatches of a replica: give fewer sequences", len(packs))
		}
		if len(packs) > 0 {
			if t.one = p.prepare(len(packs)); t.one.err != nil {
				return nil, t.one.err
			}
			t.sizes = b.sizesOf(packs)
		}
		replica, err := t.replica()
		if err != nil {
			return nil, err
		}
		packing.add(replica)
		packing.Excess = max(packing.Excess, t.excess)
	}
	return packing, nil
}

// fillInOrder deals the sequences in turn and fills microbatches in their order.
func (b *batch) fillInOrder(order []int, limit int64) [][][]int {
	dealt := make([][][]int, b.p.cfg.Replicas)
	room := make([]int64, len(dealt))
	for n, i := range order {
		r := n % len(dealt)
		if len(dealt[r]) == 0 || room[r] < b.sizes[i].Tokens {
			dealt[r], room[r] = append(dealt[r], nil), limit
		}
		last := len(dealt[r]) - 1
		dealt[r][last] = append(dealt[r][last], i)
		room[r] -= b.sizes[i].Tokens
	}
	return dealt
}

// balance deals and packs by the largest differencing method.
func (b *batch) balance(limit int64) (dealt [][][]int) {
	work := func(i int) int64 { return 24576*b.sizes[i].Tokens + b.sizes[i].Squares }
	all := make([]int, len(b.sizes))
	for i := range all {
		all[i] = i
	}
	parts := [][]int{all}
	if n := b.p.cfg.Replicas; n > 1 {
		parts = difference(all, n, true, work)
	}
	for packs := 1; ; packs++ { // the fewest that suffice for every replica
		dealt = dealt[:0]
		fits := true
		for _, part := range parts {
			one := difference(part, min(packs, max(len(part), 1)), false, work)
			one = slices.DeleteFunc(one, func(pack []int) bool { return len(pack) == 0 })
			fits = fits && !slices.ContainsFunc(one, func(pack []int) bool {
				return len(pack) > 1 && b.sizesOf([][]int{pack})[0].Tokens > limit
			})
			dealt = append(dealt, pyramid(one))
		}
		if fits {
			return dealt
		}
	}
}

// sizesOf returns the sizes of packs.
func (b *batch) sizesOf(packs [][]int) (sizes []lengths.Size) {
	for _, pack := range packs {
		var size lengths.Size
		for _, i := range pack {
			size = size.Add(b.sizes[i])
		}
		sizes = append(sizes, size)
	}
	return sizes
}

// pyramid orders packs, of which the largest is first, so that the smallest are at both ends.
func pyramid(packs [][]int) (ordered [][]int) {
	for n := range packs {
		if n%2 == 0 {
			ordered = slices.Insert(ordered, 0, packs[n])
		} else {
			ordered = append(ordered, packs[n])
		}
	}
	return ordered
}

// partition is a division of some items into sets, the largest first.
type partition []itemSet

// itemSet is a set of items and the sum of their work.
type itemSet struct {
	sum   int64
	items []int
}

// partitions is a heap of partitions, in which the partition with the largest difference comes first.
type partitions []partition

func (h partitions) Len() int { return len(h) }
func (h partitions) Less(i, j int) bool {
	spread := func(p partition) int64 { return p[0].sum - p[len(p)-1].sum }
	return cmp.Or(cmp.Compare(spread(h[j]), spread(h[i])), cmp.Compare(h[j][0].sum, h[i][0].sum)) < 0
}
func (h partitions) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *partitions) Push(p any)   { *h = append(*h, p.(partition)) }
func (h *partitions) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	*h = (*h)[:last]
	return p
}

// difference divides items into n sets with nearly equal work, the largest set first: it repeatedly joins the two
// partitions with the largest differences, the largest set of one with the smallest set of the other, and so on. If
// even is set, the numbers of items differ by at most one.
func difference(items []int, n int, even bool, work func(int) int64) (sets [][]int) {
	sorted := slices.Clone(items)
	slices.SortStableFunc(sorted, func(i, j int) int { return cmp.Compare(work(i), work(j)) })
	each := 1
	if even {
		each = n
	}
	descending := func(p partition) {
		slices.SortStableFunc(p, func(a, b itemSet) int { return cmp.Compare(b.sum, a.sum) })
	}
	var all partitions
	for some := range slices.Chunk(sorted, each) {
		p := make(partition, n)
		for k, i := range some {
			p[k] = itemSet{work(i), []int{i}}
		}
		descending(p)
		all = append(all, p)
	}
	heap.Init(&all)
	for len(all) > 1 {
		p, q := heap.Pop(&all).(partition), heap.Pop(&all).(partition)
		for k := range p {
			other := q[n-1-k]
			p[k].sum += other.sum
			p[k].items = append(p[k].items, other.items...)
		}
		descending(p)
		heap.Push(&all, p)
	}
	for _, p := range all {
		for _, set := range p {
			sets = append(sets, set.items)
		}
	}
	return sets
}
