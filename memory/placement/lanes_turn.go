package placement

// A turn is for a small buffer that is born before the one of some periods before has
// died, though fewer of them are alive at the peaks. It shares lanes with a row of larger
// ones: the small one lies beside them, on the other side every second time. So what
// comes next has a place while the one before is still there, and the larger ones, of
// which none is alive meanwhile, lie a little higher the next time.
type turn struct {
	small int32
	row   []piece // larger ones, of one size, in periods of the small one
}

// takeTurns gives what takes turns its lanes, and opens the holes between the larger ones.
func (l *lanes) takeTurns(t *turn) {
	small := &l.buffers[t.small]
	count := l.life(t.small) / l.period // whole periods that it lives
	large := l.buffers[t.row[0].buffer].size
	at := home{in: -1, offset: l.height, lanes: count, width: small.size + large}
	one := at
	one.higher = large
	l.put(t.small, one)
	from := small.upper - count*l.period // the one before has died
	for k, p := range t.row {
		x, other := &l.buffers[p.buffer], at
		other.lag, other.offset, other.higher = p.lag, at.offset+small.size, -small.size
		l.put(p.buffer, other)
		if born := x.lower + p.lag*l.period; born > from {
			l.open(p.buffer, from-p.lag*l.period, x.lower, large)
		}
		from = x.upper + p.lag*l.period
		if end := small.lower + count*l.period; k == len(t.row)-1 && end > from {
			l.open(p.buffer, x.upper, end-p.lag*l.period, large)
		}
	}
	l.sortHoles()
	l.height += int64(count) * at.width
	l.cycle = leastCommon(l.cycle, 2*count)
}

// newTurn chooses larger ones for a small one that is born where too many are.
func (l *lanes) newTurn(over []int32) (t turn, ok bool) {
	if len(over) == 0 {
		return t, false
	}
	l.hold()
	t.small = over[l.random.IntN(len(over))]
	x, k := &l.buffers[t.small], l.random.IntN(len(l.sizes))
	count := l.life(t.small) / l.period
	if x.placed || count == 0 || l.sizes[k] < x.size {
		return t, false
	}
	x.placed = true
	from, to := x.upper-count*l.period, x.lower+count*l.period
	t.row, ok = l.row(l.bySize[k], from, to, from)
	return t, ok && len(t.row) > 0
}
