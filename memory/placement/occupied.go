package placement

import "slices"

// occupied records which bytes are taken at which columns. It is a tree over the columns: a
// node represents a range of them, which its children divide equally. A buffer is stored at the
// highest nodes that its spans cover. A node keeps unions of byte ranges, without times. As a dense
// layout has few ranges, placing a buffer among thousands is cheap.
type occupied struct {
	columns int
	at      []extents // by node: taken by buffers that are stored in it
	below   []extents // by node: taken by buffers that are stored in it or below
	found   sweep     // scratch space of taken
}

// extents are disjoint byte ranges that do not touch, in ascending order.
type extents []extent

// extent is a range of bytes, half open.
type extent struct{ lower, upper int64 }

// children is the number of children of a node: those of node n start at n*children+1.
const children = 4

func newOccupied(columns int) *occupied {
	leaves, nodes := 1, 1
	for leaves < columns {
		leaves *= children
		nodes += leaves
	}
	sets := make([]extents, 2*nodes)
	return &occupied{columns: leaves, at: sets[:nodes], below: sets[nodes:], found: sweep{sets: sets}}
}

// clear frees all bytes.
func (o *occupied) clear() {
	for i := range o.at {
		o.at[i] = o.at[i][:0]
		o.below[i] = o.below[i][:0]
	}
}

// take marks bytes as taken during spans.
func (o *occupied) take(spans []Span, e extent) {
	o.takeColumns(0, 0, int32(o.columns), spans, e)
}

func (o *occupied) takeColumns(node int, lower, upper int32, spans []Span, e extent) {
	if spans = clip(spans, lower, upper); len(spans) == 0 {
		return
	}
	o.below[node] = o.below[node].add(e)
	if covers(spans[0], lower, upper) {
		o.at[node] = o.at[node].add(e)
		return
	}
	part := (upper - lower) / children
	for k := max(spans[0].Lower-lower, 0) / part; k < children && lower+k*part < spans[len(spans)-1].Upper; k++ {
		o.takeColumns(children*node+1+int(k), lower+k*part, lower+(k+1)*part, spans, e)
	}
}

// taken returns a sweep through the bytes that are taken within spans. The sweep is valid until the next
// call to taken or take.
func (o *occupied) taken(spans []Span) *sweep {
	o.found.heads = o.found.heads[:0]
	o.findTaken(0, 0, int32(o.columns), spans)
	for i := len(o.found.heads)/2 - 1; i >= 0; i-- { // make a heap
		o.found.sink(i)
	}
	return &o.found
}

func (o *occupied) findTaken(node int, lower, upper int32, spans []Span) {
	if len(o.below[node]) == 0 {
		return
	}
	if spans = clip(spans, lower, upper); len(spans) == 0 {
		return
	}
	if covers(spans[0], lower, upper) {
		o.found.heads = append(o.found.heads, head{o.below[node][0].lower, int32(len(o.at) + node), 0})
		return
	}
	if len(o.at[node]) > 0 {
		o.found.heads = append(o.found.heads, head{o.at[node][0].lower, int32(node), 0})
	}
	part := (upper - lower) / children
	for k := max(spans[0].Lower-lower, 0) / part; k < children && lower+k*part < spans[len(spans)-1].Upper; k++ {
		o.findTaken(children*node+1+int(k), lower+k*part, lower+(k+1)*part, spans)
	}
}

// clip returns the spans of an ascending list that overlap a range of columns.
func clip(spans []Span, lower, upper int32) []Span {
	for len(spans) > 0 && spans[0].Upper <= lower {
		spans = spans[1:]
	}
	for len(spans) > 0 && spans[len(spans)-1].Lower >= upper {
		spans = spans[:len(spans)-1]
	}
	return spans
}

func covers(s Span, lower, upper int32) bool { return s.Lower <= lower && upper <= s.Upper }

// add returns x with a range added. It reuses the memory of x.
func (x extents) add(e extent) extents {
	i := x.search(0, e.lower-1) // the first range that e touches or that is above e
	j := i
	for j < len(x) && x[j].lower <= e.upper {
		e.lower = min(e.lower, x[j].lower)
		e.upper = max(e.upper, x[j].upper)
		j++
	}
	if j == i+1 {
		x[i] = e
		return x
	}
	return slices.Replace(x, i, j, e)
}

// search returns the index of the first range from index i on whose upper end exceeds the offset byte, or
// len(x) if there is none. It is fast if that index is near i.
func (x extents) search(i int, byte int64) int {
	step := 1
	for i+step <= len(x) && x[i+step-1].upper <= byte {
		i += step
		step *= 2
	}
	for ; step > 0; step /= 2 {
		if i+step <= len(x) && x[i+step-1].upper <= byte {
			i += step
		}
	}
	return i
}

// sweep iterates upwards over all bytes that are taken within spans.
type sweep struct {
	sets  []extents
	heads []head // a heap, the lowest at the root
}

// head is a set's next extent in a sweep.
type head struct {
	lower     int64 // start of the extent
	set, next int32 // index of the set in sweep.sets, and of the extent in the set
}

// hole returns the lowest free range at or above from that holds size bytes at an aligned
// offset: the offset, and the end of the range (noLimit if nothing is above it). A sweep only
// moves upwards, so from must not decrease.
func (s *sweep) hole(from, size, align int64) (offset, end int64) {
	offset = alignUp(from, align)
	for len(s.heads) > 0 {
		top := &s.heads[0]
		if top.lower-offset >= size {
			return offset, top.lower
		}
		set := s.sets[top.set]
		if upper := set[top.next].upper; upper > offset {
			offset = alignUp(upper, align)
		}
		if next := set.search(int(top.next)+1, offset); next < len(set) {
			top.lower, top.next = set[next].lower, int32(next)
		} else {
			last := len(s.heads) - 1
			*top = s.heads[last]
			s.heads = s.heads[:last]
		}
		s.sink(0)
	}
	return offset, noLimit
}

// sink moves a head down to its position in the heap.
func (s *sweep) sink(i int) {
	heads := s.heads
	if i >= len(heads) {
		return
	}
	sinking := heads[i]
	for {
		child := 2*i + 1
		if child >= len(heads) {
			break
		}
		if child+1 < len(heads) && heads[child+1].lower < heads[child].lower {
			child++
		}
		if sinking.lower <= heads[child].lower {
			break
		}
		heads[i] = heads[child]
		i = child
	}
	heads[i] = sinking
}

// alignUp returns the first multiple of align at or above offset. Align is a power of two; 0 means 1.
func alignUp(offset, align int64) int64 {
	if align > 1 {
		offset = (offset + align - 1) &^ (align - 1)
	}
	return offset
}
