package repeats

// Sets contains the sets of microbatches of a machine, such as finished microbatches or microbatches in
// flight. In a period it records which microbatches are queried or changed. From these it computes the
// number of further periods in which all operations have the same results.
type Sets struct {
	sets []Runs
	// Sign is the direction in which the microbatches of the following operations change from period to
	// period: 1, -1, or 0 if they are constant.
	Sign int8

	record  *record // of the innermost period, or nil
	records []*record
	depth   int

	// Exhausted is set if a limit has been exceeded. The run is then incomplete.
	Exhausted               bool
	workLimit, work, stored int64 // stored is the number of stored runs
}

// maxStored is the maximum number of stored runs.
const maxStored = 1 << 21

// Spend adds actions to the work.
func (s *Sets) Spend(actions int64) {
	if s.work += actions; s.work > s.workLimit || s.stored > maxStored {
		s.Exhausted = true
	}
}

// Work returns the work so far.
func (s *Sets) Work() int64 { return s.work }

// NewSets returns n empty sets with a limit of work. Work is the number of actions, plus the cost of
// insertions and deletions in sets with many runs.
func NewSets(n int, workLimit int64) *Sets { return &Sets{sets: make([]Runs, n), workLimit: workLimit} }

// Get returns a set, which the caller must not modify.
func (s *Sets) Get(set int) Runs { return s.sets[set] }

// Upto returns the first n sets, which the caller must not modify.
func (s *Sets) Upto(n int) []Runs { return s.sets[:n] }

// Put initializes a set with a copy of r.
func (s *Sets) Put(set int, r Runs) { s.sets[set] = append(Runs(nil), r...) }

// Has reports whether a microbatch is in a set.
func (s *Sets) Has(set int, mb int64) bool {
	if s.record != nil {
		s.record.recordAccess(s, set, mb, mb)
	}
	r := s.sets[set]
	if len(r) == 1 {
		return r[0].Lo <= mb && mb < r[0].Hi
	}
	i := r.at(mb)
	return i < len(r) && r[i].Lo <= mb
}

// Add adds a microbatch to a set and reports whether it is new.
func (s *Sets) Add(set int, mb int64) bool {
	if s.record != nil {
		s.record.recordAccess(s, set, mb-1, mb+1)
	}
	if added, handled := s.sets[set].extend(mb); handled {
		return added
	}
	runs := len(s.sets[set])
	if runs == 0 {
		s.sets[set] = append(s.sets[set], Run{mb, mb + 1})
		s.stored++
		return true
	}
	i, added := s.sets[set].add(mb)
	s.charge(set, i, runs)
	return added
}

// Remove removes a microbatch from a set and reports whether it was in the set.
func (s *Sets) Remove(set int, mb int64) bool {
	if s.record != nil {
		s.record.recordAccess(s, set, mb-1, mb+1)
	}
	if s.sets[set].shorten(mb) {
		return true
	}
	runs := len(s.sets[set])
	if runs == 1 && s.sets[set][0] == (Run{mb, mb + 1}) {
		s.sets[set] = s.sets[set][:0]
		s.stored--
		return true
	}
	i, removed := s.sets[set].remove(mb)
	s.charge(set, i, runs)
	return removed
}

// charge adds the cost of an operation on a set that had the given number of runs. If this number has changed,
// the operation has moved the runs from index i on.
func (s *Sets) charge(set, i, runs int) {
	if n := len(s.sets[set]); n != runs {
		s.stored += int64(n - runs)
		s.work += int64((n - i) / 16)
	}
}

// Raised returns the value of a set that is used as a flag.
func (s *Sets) Raised(set int) bool { return len(s.sets[set]) > 0 }

// Raise sets a flag and reports whether that changed it.
func (s *Sets) Raise(set int) bool {
	s.touchFlag(set)
	if s.Raised(set) {
		return false
	}
	s.sets[set] = append(s.sets[set], Run{0, 1})
	return true
}

// Lower clears a flag and reports whether that changed it.
func (s *Sets) Lower(set int) bool {
	s.touchFlag(set)
	raised := s.Raised(set)
	s.sets[set] = s.sets[set][:0]
	return raised
}

func (s *Sets) touchFlag(set int) {
	if s.record != nil {
		s.record.touch(s, set)
	}
}

// record describes the sets that a period has queried or changed.
type record struct {
	touched []touched
	runs    []Run   // the runs of the touched sets before the period
	entries []entry // by set
	epoch   uint32
	sign    int8 // the direction of the period
}

// entry is the index of a set in touched, if the epoch is that of the record.
type entry struct {
	epoch uint32
	index int32
}

// touched is a set that a period has queried or changed.
type touched struct {
	set, from, to int    // the set; its runs before the period are record.runs[from:to]
	sign          int8   // the direction of its last operation with a moving microbatch
	mixed         bool   // the set had operations in both directions
	moving        window // of operations whose microbatches move
	fixed         window // of operations whose microbatches are constant
}

// window is the range of microbatches from lo to hi, empty if hi < lo.
type window struct{ lo, hi int64 }

const unlimited = int64(1) << 62

var emptyWindow = window{unlimited, -unlimited}

func (w *window) extend(lo, hi int64) { w.lo, w.hi = min(w.lo, lo), max(w.hi, hi) }

// touch returns the entry of a set, and adds it if it is missing.
func (r *record) touch(s *Sets, set int) *touched {
	if e := r.entries[set]; e.epoch == r.epoch {
		return &r.touched[e.index]
	}
	return r.addEntry(set, s.sets[set])
}

// addEntry adds an entry for a set with its runs before the period.
func (r *record) addEntry(set int, runs Runs) *touched {
	r.entries[set] = entry{r.epoch, int32(len(r.touched))}
	from := len(r.runs)
	r.runs = append(r.runs, runs...)
	r.touched = append(r.touched, touched{set: set, from: from, to: len(r.runs), moving: emptyWindow, fixed: emptyWindow})
	return &r.touched[len(r.touched)-1]
}

// recordAccess records an operation whose result depends on the microbatches from lo to hi of a set.
func (r *record) recordAccess(s *Sets, set int, lo, hi int64) {
	t := r.touch(s, set)
	if s.Sign == 0 {
		t.fixed.extend(lo, hi)
		return
	}
	t.mixed = t.mixed || t.sign == -s.Sign
	t.sign = s.Sign
	t.moving.extend(lo, hi)
}

// Begin begins a period that moves in the direction of sign. Periods may be nested.
func (s *Sets) Begin(sign int8) {
	if s.depth == len(s.records) {
		s.records = append(s.records, &record{entries: make([]entry, len(s.sets))})
	}
	r := s.records[s.depth]
	r.epoch++
	r.touched, r.runs, r.sign = r.touched[:0], r.runs[:0], sign
	s.record, s.Sign = r, sign
	s.depth++
}

// End ends a period that moves microbatches by shift, and skips further periods up to a limit. It
// returns their number.
func (s *Sets) End(shift, limit int64) int64 {
	n := s.recurrences(shift, limit)
	s.endPeriod(n, shift)
	return n
}

// recurrences returns the number of further periods, up to a limit, whose operations have the same
// results as in this period.
func (s *Sets) recurrences(shift, limit int64) int64 {
	r := s.record
	for i := 0; i < len(r.touched) && limit > 0; i++ {
		limit = min(limit, r.recurrences(&r.touched[i], s.sets[r.touched[i].set], shift))
	}
	return max(limit, 0)
}

// endPeriod ends a period and advances the sets by n further periods.
func (s *Sets) endPeriod(n, shift int64) {
	r := s.record
	if n > 0 && shift > 0 {
		for i := range r.touched {
			t := &r.touched[i]
			for k, start := range r.runs[t.from:t.to] {
				now := &s.sets[t.set][k]
				now.Lo, now.Hi = now.Lo+n*(now.Lo-start.Lo), now.Hi+n*(now.Hi-start.Hi)
			}
		}
	}
	s.depth--
	s.record, s.Sign = nil, 0
	if s.depth > 0 {
		s.record = s.records[s.depth-1]
		s.Sign = s.record.sign
		s.record.merge(r, n*shift)
	}
}

// recurrences returns the number of further periods whose operations on a set have the same results as
// in this period. Each edge of the set's runs must be constant or move with the microbatches of the
// operations. Then all results are the same until a moving microbatch or edge meets a constant edge or
// a constant microbatch. As one window covers all moving values, recurrences returns 0 if a constant
// edge lies anywhere between them.
func (r *record) recurrences(t *touched, now Runs, shift int64) int64 {
	start := r.runs[t.from:t.to]
	if len(now) != len(start) || t.mixed {
		return 0
	}
	moving := t.moving
	delta := int64(t.sign) * shift
	edges := func(yield func(edge, moved int64) bool) bool {
		for k := range now {
			if !yield(now[k].Lo, now[k].Lo-start[k].Lo) || !yield(now[k].Hi, now[k].Hi-start[k].Hi) {
				return false
			}
		}
		return true
	}
	if !edges(func(edge, moved int64) bool {
		if moved != 0 {
			moving.extend(min(edge, edge-moved)-1, max(edge, edge-moved))
		}
		return moved == 0 || moved == delta
	}) {
		return 0
	}
	if moving.hi < moving.lo {
		return unlimited // nothing moves
	}
	n := unlimited
	bound := func(edge int64) { // the boundary between edge-1 and edge
		switch {
		case moving.lo < edge && edge <= moving.hi:
			n = 0
		case delta > 0 && edge > moving.hi:
			n = min(n, (edge-1-moving.hi)/delta)
		case delta < 0 && edge <= moving.lo:
			n = min(n, (moving.lo-edge)/-delta)
		}
	}
	edges(func(edge, moved int64) bool {
		if moved == 0 {
			bound(edge)
		}
		return true
	})
	if fixed := t.fixed; fixed.lo <= fixed.hi {
		if fixed.lo <= moving.hi && moving.lo <= fixed.hi {
			return 0
		}
		bound(fixed.lo)
		bound(fixed.hi + 1)
	}
	return n
}

// merge adds the record of a nested period and of the periods skipped after it, which moved
// microbatches by skipped in total.
func (r *record) merge(inner *record, skipped int64) {
	for i := range inner.touched {
		in := &inner.touched[i]
		var t *touched
		if e := r.entries[in.set]; e.epoch == r.epoch {
			t = &r.touched[e.index]
		} else {
			t = r.addEntry(in.set, inner.runs[in.from:in.to])
		}
		w := in.moving
		if w.lo <= w.hi {
			w.extend(w.lo+int64(in.sign)*skipped, w.hi+int64(in.sign)*skipped)
		}
		for _, w := range [...]window{w, in.fixed} {
			switch {
			case w.hi < w.lo:
			case r.sign == 0:
				t.fixed.extend(w.lo, w.hi)
			default:
				t.mixed = t.mixed || t.sign == -r.sign
				t.sign = r.sign
				t.moving.extend(w.lo, w.hi)
			}
		}
	}
}
