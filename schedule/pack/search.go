package pack

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/weir-ml/weir/schedule/lengths"
)

// trial is an assignment of a replica's sequences to microbatches.
type trial struct {
	b      *batch
	one    *prepared
	packs  [][]int // by microbatch
	sizes  []lengths.Size
	limit  int64 // maximum number of tokens of a pack with several sequences
	excess int64 // bytes over the memory; 0 if it fits
	time   int64 // makespan
	shape  shape
}

// shape is a number of microbatches and the profile of their sizes.
type shape struct {
	fraction float64 // of the number of sequences
	profile  profile
	// room, if not 0, keeps large microbatches apart: those in flight at the same time have at most this part of the
	// tokens that equal microbatches would have.
	room float64
}

// profile describes the sizes of microbatches: relative to the others, the first ones grow from low to 1
// within a number of microbatches, and the last ones shrink in the same way.
type profile struct {
	low  float64
	ramp int
}

// weights returns the relative sizes of k microbatches.
func (s profile) weights(k int) []float64 {
	list := make([]float64, k)
	for j := range list {
		list[j] = 1
		if edge := min(j, k-1-j); edge < s.ramp {
			list[j] = s.low + (1-s.low)*float64(edge)/float64(s.ramp)
		}
	}
	return list
}

// kept is the largest number of shapes that survey returns.
const kept = 4

// survey returns the best shapes for some sequences, the best first.
func (b *batch) survey(items []int) (best []shape) {
	ranks := b.p.cfg.Params.Placement.Ranks
	profiles := []profile{{1, 0}, {0.5, ranks}, {0.1, ranks}, {0.25, 2 * ranks}, {0.1, 3 * ranks}, {0.05, 3 * ranks}, {0.1, 5 * ranks}}
	var trials []*trial
	fastest, worse := int64(math.MaxInt64), 0
	for k := b.fewest(items); k <= len(items) && worse < 3; k += max(1, k/6) {
		worse++ // reset if a trial is faster
		for _, p := range profiles {
			for _, room := range []float64{0, 1, 0.94, 0.88} {
				s := shape{float64(k) / float64(len(items)), p, room}
				t := b.try(items, []shape{s})
				if t == nil {
					continue
				}
				t.shape, trials = s, append(trials, t)
				if t.excess == 0 && t.time < fastest {
					fastest, worse = t.time, 0
				}
				if t.excess == 0 {
					break
				}
			}
		}
		if fastest == math.MaxInt64 {
			worse = 0
		}
	}
	if one := (shape{1, profiles[0], 0}); len(trials) == 0 { // a microbatch for each sequence
		if t := b.try(items, []shape{one}); t != nil {
			t.shape, trials = one, append(trials, t)
		}
	}
	slices.SortStableFunc(trials, func(a, b *trial) int { return cmp.Or(cmp.Compare(a.excess, b.excess), cmp.Compare(a.time, b.time)) })
	for _, t := range trials[:min(kept, len(trials))] {
		best = append(best, t.shape)
	}
	return best
}

// fewest returns a lower bound on the number of microbatches that some sequences need.
func (b *batch) fewest(items []int) int {
	limit := b.p.cfg.Limits.Tokens
	if limit == 0 {
		return 1
	}
	var tokens int64
	for _, i := range items {
		tokens += b.sizes[i].Tokens
	}
	return int((tokens + limit - 1) / limit)
}

// try returns the best trial of some shapes, or nil if the sequences fit into none. Without sequences, it returns an
// empty trial.
func (b *batch) try(items []int, shapes []shape) (best *trial) {
	if len(items) == 0 {
		return &trial{b: b}
	}
	p := b.p
	for _, s := range shapes {
		k := min(max(int(math.Round(s.fraction*float64(len(items)))), 1), maxPacks)
		one := p.prepare(k)
		if one.err != nil {
			continue
		}
		t := &trial{b: b, one: one, limit: one.safe}
		if p.cfg.Limits.Tokens > 0 {
			t.limit = min(t.limit, p.cfg.Limits.Tokens)
		}
		if !t.fill(items, k, s) {
			continue
		}
		if t.evaluateAll(); best == nil || t.better(best) {
			best = t
		}
	}
	return best
}

// replica returns the replica of the trial, which may exceed the memory.
func (t *trial) replica() (r Replica, err error) {
	if t.one == nil {
		return r, nil
	}
	if err := t.one.prove(t.b.p.cfg.Capacity); err != nil {
		return r, err
	}
	t.evaluateAll()
	r = Replica{Packs: t.packs, Sizes: t.sizes, Plan: t.one.plan, Makespan: t.time}
	for _, pack := range r.Packs {
		slices.Sort(pack)
	}
	for rank := range t.b.p.cfg.Params.Placement.Ranks {
		r.Ideal = max(r.Ideal, t.one.evaluator.Busy(rank))
		r.Peaks = append(r.Peaks, t.one.evaluator.Peak(rank))
	}
	return r, nil
}

// fill assigns sequences to k microbatches, the largest first, each to the one that it fills least
// relative to its weight. It returns false if a sequence has no room.
func (t *trial) fill(items []int, k int, s shape) bool {
	b, weights := t.b, s.profile.weights(k)
	load := make([]float64, k)
	t.packs, t.sizes = make([][]int, k), make([]lengths.Size, k)
	for _, i := range items {
		to, least := -1, math.Inf(1)
		for j := range load {
			if tokens := t.sizes[j].Tokens; tokens > 0 && tokens+b.sizes[i].Tokens > t.limit {
				continue
			}
			if filled := (load[j] + b.work[i]) / weights[j]; filled < least {
				to, least = j, filled
			}
		}
		if to < 0 {
			return false
		}
		load[to] += b.work[i]
		t.packs[to], t.sizes[to] = append(t.packs[to], i), t.sizes[to].Add(b.sizes[i])
	}
	for j := range t.packs { // an end that is too small for any sequence gets the smallest one
		if len(t.packs[j]) > 0 {
			continue
		}
		from := -1
		for other, pack := range t.packs {
			if len(pack) > 1 && (from < 0 || b.work[pack[len(pack)-1]] < b.work[t.packs[from][len(t.packs[from])-1]]) {
				from = other
			}
		}
		last := len(t.packs[from]) - 1
		i := t.packs[from][last]
		t.packs[from], t.packs[j] = t.packs[from][:last], []int{i}
		load[from], load[j] = load[from]-b.work[i], b.work[i]
	}
	if s.room > 0 {
		t.arrangeApart(int64(s.room * float64(t.one.safe) * float64(t.one.inFlight)))
	} else {
		t.arrange(load)
	}
	t.sizes = b.sizesOf(t.packs)
	return true
}

// arrange orders the packs as a pyramid: the largest are in the middle.
func (t *trial) arrange(load []float64) {
	k := len(load)
	places, packs := make([]int, k), make([]int, k)
	for j := range places {
		places[j], packs[j] = j, j
	}
	slices.SortStableFunc(places, func(i, j int) int { return cmp.Compare(min(j, k-1-j), min(i, k-1-i)) })
	slices.SortStableFunc(packs, func(i, j int) int { return cmp.Compare(load[j], load[i]) })
	arranged := make([][]int, k)
	for n, place := range places {
		arranged[place] = t.packs[packs[n]]
	}
	t.packs = arranged
}

// arrangeApart orders the packs so that those in flight at the same time have at most the given number of tokens, if
// that is possible. The smallest packs are at both ends. Each pack between them is the largest that has room together
// with the packs before it.
func (t *trial) arrangeApart(most int64) {
	k, window := len(t.packs), t.one.inFlight
	left := make([]int, k) // packs, the largest first
	for j := range left {
		left[j] = j
	}
	slices.SortStableFunc(left, func(i, j int) int { return cmp.Compare(t.sizes[j].Tokens, t.sizes[i].Tokens) })
	ends := min(k/4, window)
	order, tail := []int(nil), slices.Clone(left[k-ends:])
	left = left[:k-ends]
	for n := len(tail) - 1; n >= 0; n -= 2 { // every other one is at the start
		order = append(order, tail[n])
		tail = slices.Delete(tail, n, n+1)
	}
	for len(left) > 0 {
		room := most
		for _, j := range order[max(0, len(order)-window+1):] {
			room -= t.sizes[j].Tokens
		}
		next := slices.IndexFunc(left, func(j int) bool { return t.sizes[j].Tokens <= room })
		if next < 0 {
			next = len(left) - 1
		}
		order, left = append(order, left[next]), slices.Delete(left, next, next+1)
	}
	arranged := make([][]int, 0, k)
	for _, j := range append(order, tail...) {
		arranged = append(arranged, t.packs[j])
	}
	t.packs = arranged
}

// evaluateAll simulates the trial from scratch.
func (t *trial) evaluateAll() {
	for j, size := range t.sizes {
		t.one.evaluator.Set(j, size)
	}
	t.time, t.excess = t.evaluate()
}

// evaluate simulates the sizes that the evaluator has.
func (t *trial) evaluate() (time, excess int64) {
	if t.b.p.cfg.Limits.Memory > 0 && slices.ContainsFunc(t.sizes, func(s lengths.Size) bool { return s.Tokens > t.one.safe }) {
		_, excess = t.b.p.excess(t.one.evaluator)
	}
	return t.one.evaluator.Makespan(), max(excess, 0)
}

// better reports whether the trial is better than another one.
func (t *trial) better(other *trial) bool {
	return cmp.Or(cmp.Compare(t.excess, other.excess), cmp.Compare(t.time, other.time)) < 0
}

// improve changes the trial at random and keeps the changes that do not make it worse.
func (t *trial) improve(effort int) {
	k := len(t.packs)
	if k < 2 {
		return
	}
	e := t.one.evaluator
	t.evaluateAll()
	random := rand.New(rand.NewPCG(uint64(k), 1))
	accept := func() bool {
		time, excess := t.evaluate()
		if excess > t.excess || excess == t.excess && time > t.time {
			return false
		}
		t.time, t.excess = time, excess
		return true
	}
	for range effort {
		a, c := random.IntN(k), random.IntN(k-1)
		if c >= a {
			c++
		}
		if random.IntN(4) == 0 { // exchange two microbatches
			t.exchange(a, c)
			e.Swap(a, c)
			if !accept() {
				t.exchange(a, c)
				e.Swap(a, c)
			}
			continue
		}
		x, y := random.IntN(len(t.packs[a])), random.IntN(len(t.packs[c])+1)
		before := [2]lengths.Size{t.sizes[a], t.sizes[c]}
		if !t.resize(a, x, c, y) {
			continue
		}
		e.Set(a, t.sizes[a])
		e.Set(c, t.sizes[c])
		if accept() {
			t.move(a, x, c, y)
			continue
		}
		t.sizes[a], t.sizes[c] = before[0], before[1]
		e.Set(a, t.sizes[a])
		e.Set(c, t.sizes[c])
	}
}

// exchange exchanges two microbatches.
func (t *trial) exchange(a, c int) {
	t.packs[a], t.packs[c] = t.packs[c], t.packs[a]
	t.sizes[a], t.sizes[c] = t.sizes[c], t.sizes[a]
}

// resize sets the sizes of two packs to those after a move. It returns false, and changes nothing, if the
// move has no effect or exceeds the limit.
func (t *trial) resize(a, x, c, y int) bool {
	out, in := t.b.sizes[t.packs[a][x]], lengths.Size{}
	if y < len(t.packs[c]) {
		in = t.b.sizes[t.packs[c][y]]
	}
	sizeA, sizeC := t.sizes[a].Add(in).Sub(out), t.sizes[c].Add(out).Sub(in)
	if out == in || sizeA.Tokens == 0 || sizeA.Tokens > t.limit && sizeA != in || sizeC.Tokens > t.limit && sizeC != out {
		return false
	}
	t.sizes[a], t.sizes[c] = sizeA, sizeC
	return true
}

// move exchanges sequence x of one pack with sequence y of another, or moves it there if y is after the other's last
// sequence.
func (t *trial) move(a, x, c, y int) {
	if y < len(t.packs[c]) {
		t.packs[a][x], t.packs[c][y] = t.packs[c][y], t.packs[a][x]
		return
	}
	t.packs[c] = append(t.packs[c], t.packs[a][x])
	last := len(t.packs[a]) - 1
	t.packs[a][x] = t.packs[a][last]
	t.packs[a] = t.packs[a][:last]
}
