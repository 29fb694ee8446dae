package slots

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// Config holds the choices of a table. The zero value is valid.
type Config struct {
	Pooling Pooling // "" means ByRank
	Hold    Hold    // "" means Last if the first plan is for PyTorch, and Taken otherwise
}

// Make returns the slots of plans that exclude each other, with the least number of slots in each pool. The
// plans must be valid (check.Plan) and, on several ranks, have their transfers. Make returns an error that wraps ErrPlan
// if there are no plans, or if they have different numbers of ranks, lack transfers, or have too many tensors that do
// not repeat. An error for an unknown Pooling or Hold wraps schedule.ErrParams.
func Make(cfg Config, plans ...*schedule.Plan) (*Table, error) {
	if len(plans) == 0 {
		return nil, diagnostic.Errorf(ErrPlan, "there are no plans: give at least one")
	}
	cfg.Pooling = cmp.Or(cfg.Pooling, ByRank)
	if cfg.Hold == "" {
		cfg.Hold = Taken
		if plans[0].Runtime == schedule.PyTorch {
			cfg.Hold = Last
		}
	}
	switch {
	case !slices.Contains(poolings, cfg.Pooling):
		return nil, diagnostic.Errorf(schedule.ErrParams, "the pooling is %q: give %q, %q or %q", cfg.Pooling, ByStage, ByDirection, ByRank)
	case cfg.Hold != Taken && cfg.Hold != Last:
		return nil, diagnostic.Errorf(schedule.ErrParams, "the hold is %q: give %q or %q", cfg.Hold, Taken, Last)
	}
	ranks := plans[0].Placement.Ranks
	t := &Table{Schema: form.Schema, Hold: cfg.Hold, Pooling: cfg.Pooling}
	index := map[poolKey]int{} // in t.Pools
	most := map[poolKey]int{}  // of all poolings
	for _, plan := range plans {
		if plan.Placement.Ranks != ranks {
			return nil, diagnostic.Errorf(ErrPlan, "%q has %d ranks and %q has %d: name plans of one number of ranks", plans[0].Name, ranks, plan.Name, plan.Placement.Ranks)
		}
		for stage, rank := range plan.Placement.Rank {
			if plan.HasTransfers() || plan.Placement.Last(stage) || plan.Placement.Rank[stage+1] == rank {
				continue
			}
			return nil, diagnostic.Errorf(ErrPlan, "%q has no transfers: use a plan of lower.Transfers", plan.Name)
		}
		v := Variant{Plan: plan.Name, Mode: plan.Mode.String(), Microbatches: plan.Microbatches, Assignments: []*Assignment{}}
		plan, table := plan.Flat(), steps(plan, cfg.Hold)
		for rank := range ranks {
			c := &coloring{plan: plan, rank: rank, steps: table, chosen: slices.Index(poolings, cfg.Pooling), live: map[held]colored{}, pools: map[poolKey]*pool{}, classes: map[class]*tracked{}}
			if err := c.run(); err != nil {
				return nil, err
			}
			for _, key := range slices.SortedFunc(maps.Keys(c.pools), comparePools) {
				most[key] = max(most[key], c.pools[key].size)
				if key.pooling != cfg.Pooling {
					continue
				}
				i, known := index[key]
				if !known {
					i = len(t.Pools)
					index[key] = i
					t.Pools = append(t.Pools, key.pool())
				}
				t.Pools[i].Slots = most[key]
				v.Assignments = append(v.Assignments, &Assignment{Pool: i, Slots: c.pools[key].size, At: c.pools[key].at, Runs: c.runsIn(key.class)})
			}
		}
		t.Variants = append(t.Variants, v)
	}
	t.Counts = counts(most)
	return t, nil
}

// poolKey identifies a pool under one pooling.
type poolKey struct {
	rank    int
	pooling Pooling
	class   class // the properties that all tensors in the pool share
}

// comparePools orders pools by rank, kind of tensor, stage, direction and pooling.
func comparePools(a, b poolKey) int {
	order := Tensors()
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(slices.Index(order, a.class.tensor), slices.Index(order, b.class.tensor)),
		cmp.Compare(a.class.stage, b.class.stage), -cmp.Compare(a.class.direction, b.class.direction), cmp.Compare(a.pooling, b.pooling))
}

// pool returns the pool of a key, without slots.
func (k poolKey) pool() Pool {
	p := Pool{Rank: k.rank, Tensor: k.class.tensor, Direction: k.class.direction}
	if k.class.stage >= 0 {
		p.Stage = &k.class.stage
	}
	return p
}

// counts sums the slots of the pools of each rank and kind of tensor.
func counts(most map[poolKey]int) (list []Count) {
	for _, key := range slices.SortedFunc(maps.Keys(most), comparePools) {
		n := len(list)
		if n == 0 || list[n-1].Rank != key.rank || list[n-1].Tensor != key.class.tensor {
			list = append(list, Count{Rank: key.rank, Tensor: key.class.tensor})
			n++
		}
		*map[Pooling]*int{ByStage: &list[n-1].ByStage, ByDirection: &list[n-1].ByDirection, ByRank: &list[n-1].ByRank}[key.pooling] += most[key]
	}
	return list
}

// held identifies a live tensor.
type held struct {
	holding
	mb int64
}

// compareHeld orders tensors by kind, stage and microbatch.
func compareHeld(a, b held) int {
	return cmp.Or(cmp.Compare(a.holding.place, b.holding.place), cmp.Compare(a.stage, b.stage), cmp.Compare(a.mb, b.mb))
}

// tracked is the state of a class: its pool in each pooling, and the runs in the chosen one.
type tracked struct {
	pools [3]*pool
	runs  []Run
}

// colored is a live tensor: its class, and its slot in each pooling.
type colored struct {
	*tracked
	slots [3]int
}

// pool is the state of a pool.
type pool struct {
	size int   // the number of slots
	at   int64 // the position at which the last slot was added
	free []int // the slot that was released last is at the end
	// start lists the slots at the beginning of the period, in the order of doc.go.
	start []int
}

// coloring runs the program of a rank and assigns its tensors to slots. It is a repeats.Machine: a period
// consists of repeats of a segment.
type coloring struct {
	plan   *schedule.Plan
	rank   int
	steps  [][schedule.NumKinds]step
	chosen int // the index of the pooling whose runs are needed

	segment  *schedule.Segment
	repeat   int
	position int64 // of the action in the program
	moment   int64 // the position of the moment's first action
	joined   bool  // the next action is part of the moment
	classes  map[class]*tracked
	pools    map[poolKey]*pool
	grown    int64 // the slots of all pools
	births   int   // the number of births so far
	live     map[held]colored
	pending  []held // tensors that die at the current moment

	order []held // the live tensors, as State passed them
	born  []born // since the beginning of the period
	ended []held // since the beginning of the period
}

// born is a birth in a period.
type born struct {
	*tracked
	of   class
	mb   int64
	slot int // in the chosen pooling
}

// maxBirths is the largest number of tensors of a rank that are assigned one by one.
const maxBirths = 1 << 22

// run runs the program.
func (c *coloring) run() error {
	engine := repeats.NewEngine(repeats.NewSets(0, math.MaxInt64))
	for i := range c.plan.Programs[c.rank] {
		c.segment = &c.plan.Programs[c.rank][i]
		engine.Forget()
		c.born, c.ended = c.born[:0], c.ended[:0]
		for c.repeat = 0; c.repeat < c.segment.Repeat; c.repeat++ {
			alive := len(c.live)
			for _, a := range c.segment.Body {
				c.visit(a, int64(a.Microbatch()+c.repeat*c.segment.Stride))
			}
			if c.births > maxBirths {
				return diagnostic.Errorf(ErrPlan, "rank %d of %q has more than %d tensors that do not repeat: use fewer microbatches", c.rank, c.plan.Name, maxBirths)
			}
			switch {
			case len(c.live) != alive: // no period has begun, or it will not recur
				engine.Forget()
				c.born, c.ended = c.born[:0], c.ended[:0]
			case c.segment.Repeat > 3:
				if engine.Look(c); engine.Began() {
					c.beginPeriod()
				}
			}
		}
	}
	return nil
}

// visit runs an action.
func (c *coloring) visit(a schedule.Action, mb int64) {
	if !c.joined {
		c.moment = c.position
	}
	s := &c.steps[a.Stage()][a.Kind()]
	for _, b := range s.births {
		c.bear(b, mb)
	}
	for _, at := range s.deaths {
		c.pending = append(c.pending, held{at, mb})
	}
	c.position++
	if c.joined = a.Joined(); c.joined {
		return
	}
	for _, h := range c.pending {
		it, alive := c.live[h]
		if !alive {
			continue
		}
		for i, p := range it.pools {
			p.free = append(p.free, it.slots[i])
		}
		delete(c.live, h)
		if c.segment.Repeat > 3 {
			c.ended = append(c.ended, h)
		}
	}
	c.pending = c.pending[:0]
}

// bear gives a new tensor its slots.
func (c *coloring) bear(b birth, mb int64) {
	of := c.classes[b.class]
	if of == nil {
		of = &tracked{}
		for i, pooling := range poolings {
			key := poolKey{c.rank, pooling, b.class.in(pooling)}
			if c.pools[key] == nil {
				c.pools[key] = &pool{}
			}
			of.pools[i] = c.pools[key]
		}
		c.classes[b.class] = of
	}
	it := colored{tracked: of}
	for i, p := range of.pools {
		if n := len(p.free); n > 0 {
			it.slots[i], p.free = p.free[n-1], p.free[:n-1]
			continue
		}
		it.slots[i], p.at = p.size, c.moment
		p.size++
		c.grown++
	}
	slot := it.slots[c.chosen]
	of.runs = add(of.runs, b.class, mb, slot)
	if c.segment.Repeat > 3 {
		c.born = append(c.born, born{of, b.class, mb, slot})
	}
	c.live[held{b.at, mb}] = it
	c.births++
}

// add adds a microbatch to the runs of a class. It continues the last run if the microbatch and the slot fit.
func add(runs []Run, of class, mb int64, slot int) []Run {
	if n := len(runs) - 1; n >= 0 {
		r := &runs[n]
		if r.Count == 1 {
			r.Stride = int(mb) - r.Microbatch
		}
		periodic := len(r.Slots) < r.Count || r.Slots[0] == slot // the slots repeat already, or start to repeat now
		if int(mb) == r.Microbatch+r.Count*r.Stride && (!periodic || r.Slots[r.Count%len(r.Slots)] == slot) {
			if !periodic {
				r.Slots = append(r.Slots, slot)
			}
			r.Count++
			return runs
		}
	}
	return append(runs, Run{Stage: of.stage, Direction: of.direction, Microbatch: int(mb), Count: 1, Slots: []int{slot}})
}

// continues reports whether the next run is the rest of this one.
func (r *Run) continues(next Run) bool {
	if next.Stride != r.Stride || next.Microbatch != r.Microbatch+r.Count*r.Stride || len(next.Slots) != len(r.Slots) {
		return false
	}
	for k, slot := range next.Slots {
		if r.Slots[(r.Count+k)%len(r.Slots)] != slot {
			return false
		}
	}
	return true
}

// runsIn returns the runs of the tensors in a pool.
func (c *coloring) runsIn(shared class) (list []Run) {
	for _, of := range slices.SortedFunc(maps.Keys(c.classes), func(a, b class) int {
		return cmp.Or(cmp.Compare(a.stage, b.stage), -cmp.Compare(a.direction, b.direction))
	}) {
		if of.in(poolings[c.chosen]) == shared {
			list = append(list, c.classes[of].runs...)
		}
	}
	return list
}

// State passes everything that determines the rest of the segment.
func (c *coloring) State(s *repeats.State) {
	if c.joined {
		s.Unclear()
	}
	if !s.Fixed(int64(len(c.live))) || !s.Fixed(c.grown) || !s.Moving(int64(c.repeat)) {
		return
	}
	c.order = slices.SortedFunc(maps.Keys(c.live), compareHeld)
	for _, h := range c.order {
		if !s.Fixed(int64(h.holding.place)<<32|int64(h.stage)) || !s.Moving(h.mb) {
			return
		}
	}
}

// beginPeriod begins a period in the state that was passed last.
func (c *coloring) beginPeriod() {
	c.born, c.ended = c.born[:0], c.ended[:0]
	for p, list := range c.listed() {
		p.start = list
	}
}

// listed lists the slots of every pool in the order of doc.go.
func (c *coloring) listed() map[*pool][]int {
	lists := make(map[*pool][]int, len(c.pools))
	for _, h := range c.order {
		it := c.live[h]
		for i, p := range it.pools {
			lists[p] = append(lists[p], it.slots[i])
		}
	}
	for _, p := range c.pools {
		lists[p] = append(lists[p], p.free...)
	}
	return lists
}

// Moves returns the shift of a period in microbatches, and how often it can be repeated.
func (c *coloring) Moves(deltas []int64) (shift, limit int64) {
	shift = deltas[0] * int64(c.segment.Stride)
	limit = int64(c.segment.Repeat-1-c.repeat) / deltas[0]
	for i, delta := range deltas[1:] {
		switch {
		case delta == shift:
			continue
		case delta != 0:
			return 0, 0
		}
		for _, e := range c.ended {
			if e.holding == c.order[i].holding && (c.order[i].mb-e.mb)%shift == 0 && (c.order[i].mb-e.mb)/shift > 0 {
				limit = min(limit, (c.order[i].mb-e.mb)/shift-1)
			}
		}
	}
	return max(shift, -shift), limit
}

// Skip advances the state by n periods, and adds the runs of their births.
func (c *coloring) Skip(n int64, deltas []int64) {
	next := make(map[*pool][]int, len(c.pools)) // by slot: the slot at the same place one period later
	for p, list := range c.listed() {
		next[p] = make([]int, p.size)
		for i, slot := range p.start {
			next[p][slot] = list[i]
		}
	}
	shift := deltas[0] * int64(c.segment.Stride)
	for _, b := range c.born {
		permutation := next[b.pools[c.chosen]]
		cycle := []int{permutation[b.slot]}
		for slot := cycle[0]; slot != b.slot; cycle = append(cycle, slot) {
			slot = permutation[slot]
		}
		next := Run{b.of.stage, b.of.direction, int(b.mb + shift), int(shift), int(n), cycle[:min(int64(len(cycle)), n)]}
		if last := &b.runs[len(b.runs)-1]; last.continues(next) {
			last.Count += next.Count
			continue
		}
		b.runs = append(b.runs, next)
	}
	moved := make(map[held]colored, len(c.live))
	for i, h := range c.order {
		it := c.live[h]
		for k, p := range it.pools {
			it.slots[k] = power(next[p], it.slots[k], n)
		}
		h.mb += n * deltas[i+1]
		c.order[i], moved[h] = h, it
	}
	for _, p := range c.pools {
		for i, slot := range p.free {
			p.free[i] = power(next[p], slot, n)
		}
	}
	c.live = moved
	c.repeat += int(n * deltas[0])
	c.position += n * deltas[0] * int64(len(c.segment.Body))
}

// power returns the slot to which n steps of a permutation lead from the given slot.
func power(next []int, slot int, n int64) int {
	length := int64(1)
	for s := next[slot]; s != slot; s = next[s] {
		length++
	}
	for range n % length {
		slot = next[slot]
	}
	return slot
}
