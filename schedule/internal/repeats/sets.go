package repeats

// Sets are the sets of microbatches of a machine: those that are done, or in flight. While a
// period is recorded they note which microbatches it looks at, which decides how many more
// periods find the same.
type Sets struct {
	of []Runs
	// Sign is the direction in which the microbatches of the next operations move from period to
	// period: 1, -1, or 0 if they do not.
	Sign int8

	record  *record // of the innermost period that is recorded; nil if none is
	records []*record
	depth   int

	// Exhausted is set if a limit was reached: the run is incomplete then.
	Exhausted        bool
	most, work, held int64 // the limit of work, the work, and the runs that are held
}

// maxHeld is how many runs are held at once at most.
const maxHeld = 1 << 21

// Spend counts actions that are run. Work returns their number.
func (s *Sets) Spend(actions int64) {
	if s.work += actions; s.work > s.most || s.held > maxHeld {
		s.Exhausted = true
	}
}

func (s *Sets) Work() int64 { return s.work }

// NewSets returns n empty sets for at most this many actions. Moving many runs of a scattered set
// counts as well.
func NewSets(n int, most int64) Sets { return Sets{of: make([]Runs, n), most: most} }

// Get returns a set, which the caller may not change.
func (s *Sets) Get(set int) Runs { return s.of[set] }

// Upto returns the first n sets, which the caller may not change.
func (s *Sets) Upto(n int) []Runs { return s.of[:n] }

// Put initializes a set.
func (s *Sets) Put(set int, r Runs) { s.of[set] = append(Runs(nil), r...) }

// Has reports whether a microbatch is in a set.
func (s *Sets) Has(set int, mb int64) bool {
	if s.record != nil {
		s.record.looks(s, set, mb, mb)
	}
	r := s.of[set]
	if len(r) == 1 {
		return r[0].Lo <= mb && mb < r[0].Hi
	}
	i := r.at(mb)
	return i < len(r) && r[i].Lo <= mb
}

// Add puts a microbatch into a set and reports whether it was not there.
func (s *Sets) Add(set int, mb int64) bool {
	if s.record != nil {
		s.record.looks(s, set, mb-1, mb+1)
	}
	if added, plainly := s.of[set].extend(mb); plainly {
		return added
	}
	runs := len(s.of[set])
	i, added := s.of[set].add(mb)
	s.charge(set, i, runs)
	return added
}

// Remove takes a microbatch out of a set and reports whether it was there.
func (s *Sets) Remove(set int, mb int64) bool {
	if s.record != nil {
		s.record.looks(s, set, mb-1, mb+1)
	}
	if s.of[set].shorten(mb) {
		return true
	}
	runs := len(s.of[set])
	i, removed := s.of[set].remove(mb)
	s.charge(set, i, runs)
	return removed
}

// charge counts the runs that an operation on a set has moved, from run i on.
func (s *Sets) charge(set, i, runs int) {
	if n := len(s.of[set]); n != runs {
		s.held += int64(n - runs)
		s.work += int64((n - i) / 16)
	}
}

// Raised, Raise and Lower ask for, set and clear a set that is used as a flag. Raise and
// Lower report whether that changed anything.
func (s *Sets) Raised(set int) bool { return len(s.of[set]) > 0 }

func (s *Sets) Raise(set int) bool {
	s.flag(set)
	if s.Raised(set) {
		return false
	}
	s.of[set] = append(s.of[set], Run{0, 1})
	return true
}

func (s *Sets) Lower(set int) bool {
	s.flag(set)
	raised := s.Raised(set)
	s.of[set] = s.of[set][:0]
	return raised
}

func (s *Sets) flag(set int) {
	if s.record != nil {
		s.record.touch(s, set)
	}
}

// record holds the sets that a period has touched.
type record struct {
	touched []touched
	runs    []Run   // of the touched sets, as they were before
	index   []int32 // by set: its place in touched, if stamp is the epoch
	stamp   []uint32
	epoch   uint32
	sign    int8 // the direction of the period
}

// touched is a set that a period has looked at or changed.
type touched struct {
	set, from, to int // the set, and its runs before the period
	sign          int8
	bent          bool   // it was looked at in both directions
	moving        window // looked at by operations that move
	standing      window // looked at by operations that do not
}

// window is the microbatches from lo to hi, none if hi is below lo.
type window struct{ lo, hi int64 }

const unlimited = int64(1) << 62

var nowhere = window{unlimited, -unlimited}

func (w *window) extend(lo, hi int64) { w.lo, w.hi = min(w.lo, lo), max(w.hi, hi) }

// touch returns the entry of a set.
func (r *record) touch(s *Sets, set int) *touched {
	if r.stamp[set] == r.epoch {
		return &r.touched[r.index[set]]
	}
	return r.keep(set, s.of[set])
}

// keep adds a set that is looked at for the first time, with its runs.
func (r *record) keep(set int, runs Runs) *touched {
	r.stamp[set], r.index[set] = r.epoch, int32(len(r.touched))
	from := len(r.runs)
	r.runs = append(r.runs, runs...)
	r.touched = append(r.touched, touched{set: set, from: from, to: len(r.runs), moving: nowhere, standing: nowhere})
	return &r.touched[len(r.touched)-1]
}

// looks notes that an operation looks at microbatches of a set.
func (r *record) looks(s *Sets, set int, lo, hi int64) {
	t := r.touch(s, set)
	if s.Sign == 0 {
		t.standing.extend(lo, hi)
		return
	}
	t.bent = t.bent || t.sign == -s.Sign
	t.sign = s.Sign
	t.moving.extend(lo, hi)
}

// Begin begins to record a period that moves in a direction. Periods may be nested.
func (s *Sets) Begin(sign int8) {
	if s.depth == len(s.records) {
		s.records = append(s.records, &record{index: make([]int32, len(s.of)), stamp: make([]uint32, len(s.of))})
	}
	r := s.records[s.depth]
	r.epoch++
	r.touched, r.runs, r.sign = r.touched[:0], r.runs[:0], sign
	s.record, s.Sign = r, sign
	s.depth++
}

// End ends the recording of a period that moves microbatches by shift, and skips up to most more
// like it. It returns how many.
func (s *Sets) End(shift, most int64) int64 {
	n := s.fit(shift, most)
	s.end(n, shift)
	return n
}

// fit returns how many more periods, up to most, find in the sets what this one has found.
func (s *Sets) fit(shift, most int64) int64 {
	r := s.record
	for i := 0; i < len(r.touched) && most > 0; i++ {
		most = min(most, r.fits(&r.touched[i], s.of[r.touched[i].set], shift))
	}
	return max(most, 0)
}

// end ends the recording of a period, and moves the sets by n more.
func (s *Sets) end(n, shift int64) {
	r := s.record
	if n > 0 && shift > 0 {
		for i := range r.touched {
			t := &r.touched[i]
			for k, was := range r.runs[t.from:t.to] {
				now := &s.of[t.set][k]
				now.Lo, now.Hi = now.Lo+n*(now.Lo-was.Lo), now.Hi+n*(now.Hi-was.Hi)
			}
		}
	}
	s.depth--
	s.record, s.Sign = nil, 0
	if s.depth > 0 {
		s.record = s.records[s.depth-1]
		s.Sign = s.record.sign
		s.record.takes(r, n*shift)
	}
}

// fits returns how many more periods find in a set what this one has found there. Each edge of
// its runs must either not move, or move with the microbatches that are looked at. Then every
// period finds the same until something that moves meets an edge that does not.
func (r *record) fits(t *touched, now Runs, shift int64) int64 {
	was := r.runs[t.from:t.to]
	if len(now) != len(was) || t.bent {
		return 0
	}
	w := t.moving
	move := int64(t.sign) * shift
	edges := func(yield func(edge, moved int64) bool) bool {
		for k := range now {
			if !yield(now[k].Lo, now[k].Lo-was[k].Lo) || !yield(now[k].Hi, now[k].Hi-was[k].Hi) {
				return false
			}
		}
		return true
	}
	if !edges(func(edge, moved int64) bool {
		if moved != 0 {
			w.extend(min(edge, edge-moved)-1, max(edge, edge-moved))
		}
		return moved == 0 || moved == move
	}) {
		return 0
	}
	if w.hi < w.lo {
		return unlimited // nothing moves
	}
	n := unlimited
	meets := func(edge int64) { // between edge-1 and edge
		switch {
		case w.lo < edge && edge <= w.hi:
			n = 0
		case move > 0 && edge > w.hi:
			n = min(n, (edge-1-w.hi)/move)
		case move < 0 && edge <= w.lo:
			n = min(n, (w.lo-edge)/-move)
		}
	}
	edges(func(edge, moved int64) bool {
		if moved == 0 {
			meets(edge)
		}
		return true
	})
	if stands := t.standing; stands.lo <= stands.hi {
		if stands.lo <= w.hi && w.lo <= stands.hi {
			return 0
		}
		meets(stands.lo)
		meets(stands.hi + 1)
	}
	return n
}

// takes adds a nested period, after which others like it were skipped that moved by skipped
// microbatches in all.
func (r *record) takes(inner *record, skipped int64) {
	for i := range inner.touched {
		in := &inner.touched[i]
		var t *touched
		if r.stamp[in.set] == r.epoch {
			t = &r.touched[r.index[in.set]]
		} else {
			t = r.keep(in.set, inner.runs[in.from:in.to])
		}
		w := in.moving
		if w.lo <= w.hi {
			w.extend(w.lo+int64(in.sign)*skipped, w.hi+int64(in.sign)*skipped)
		}
		for _, w := range [...]window{w, in.standing} {
			switch {
			case w.hi < w.lo:
			case r.sign == 0:
				t.standing.extend(w.lo, w.hi)
			default:
				t.bent = t.bent || t.sign == -r.sign
				t.sign = r.sign
				t.moving.extend(w.lo, w.hi)
			}
		}
	}
}
