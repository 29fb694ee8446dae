// Package rewind undoes the trace of a memory snapshot, as the viewer of PyTorch does. It is
// for tests.
package rewind

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/memory/snapshot"
)

// ErrInconsistent is wrapped by errors of Segments. It means that the trace and the segments do not belong
// together.
var ErrInconsistent = errors.New("rewind: trace and segments contradict each other")

// granule is the minimum unit to which an allocator rounds sizes.
const granule = 512

// unsplit is the maximum excess of a block of the large pool over its requested size, because the allocator
// does not split off a smaller remainder. A block that begins this close behind another one reveals the
// other's size.
const unsplit = 1 << 20

// Segments undoes the trace of a device, from its last entry to its first, starting with the segments of
// the snapshot, and returns the segments as they were before the trace. The viewer does the same to draw
// its allocator state history. It returns an error where the viewer would fail: for an event outside of all
// segments, a block that is freed twice, or a segment that is freed while a block in it is live.
//
// A trace need not begin with the first allocation: it may free blocks that were live before it began. It
// does not contain the real size of such a block. Unless a neighboring block reveals the size, Segments
// uses the requested size, rounded up to 512 bytes if there is enough space.
func Segments(s *snapshot.Snapshot, device int) ([]snapshot.Segment, error) {
	r := rewinder{}
	for i := range s.Segments {
		if s.Segments[i].Device != device {
			continue
		}
		if err := r.begin(&s.Segments[i]); err != nil {
			return nil, fmt.Errorf("%w: device %d: %w", ErrInconsistent, device, err)
		}
	}
	if device < len(s.Traces) {
		trace := s.Traces[device]
		for i := len(trace) - 1; i >= 0; i-- {
			if err := r.undo(&trace[i]); err != nil {
				e := &trace[i]
				return nil, fmt.Errorf("%w: device %d: entry %d, %s of %d bytes at %#x: %w", ErrInconsistent, device, i, e.Action, e.Size, e.Address, err)
			}
		}
	}
	segments := make([]snapshot.Segment, len(r.segments))
	for i, segment := range r.segments {
		segments[i] = tiled(segment)
	}
	return segments, nil
}

// rewinder holds the segments at one time of the trace, with only their live and pending blocks,
// in order.
type rewinder struct{ segments []snapshot.Segment }

// begin adds a segment of the snapshot.
func (r *rewinder) begin(s *snapshot.Segment) error {
	segment, next := *s, s.Address
	segment.Blocks = nil
	for _, b := range s.Blocks {
		if b.Address != next || b.Size <= 0 {
			return fmt.Errorf("the blocks of segment %#x do not tile it at %#x", s.Address, next)
		}
		next += b.Size
		if b.State != snapshot.Inactive {
			segment.Blocks = append(segment.Blocks, b)
		}
	}
	if next != s.End() {
		return fmt.Errorf("the blocks of segment %#x end at %#x, it ends at %#x", s.Address, next, s.End())
	}
	return r.insert(segment)
}

func (r *rewinder) undo(e *snapshot.TraceEntry) error {
	switch e.Action {
	case snapshot.Alloc:
		return r.unalloc(e)
	case snapshot.FreeCompleted:
		return r.unfree(e)
	case snapshot.FreeRequested:
		return r.unrequest(e)
	case snapshot.SegmentAlloc, snapshot.SegmentMap:
		return r.remove(e)
	case snapshot.SegmentFree:
		return r.insert(snapshot.Segment{Address: e.Address, Size: e.Size, Stream: e.Stream, Small: e.Size <= smallSegment, Frames: e.Frames})
	case snapshot.SegmentUnmap:
		return r.insert(snapshot.Segment{Address: e.Address, Size: e.Size, Stream: e.Stream, Small: e.Size%largeSegment != 0, Expandable: true, Frames: e.Frames})
	}
	return nil // oom, snapshot, user-defined
}

// The sizes of segments show to which pool a removed segment belonged.
const (
	smallSegment = 2 << 20
	largeSegment = 20 << 20
)

// unalloc removes the block that the entry allocated.
func (r *rewinder) unalloc(e *snapshot.TraceEntry) error {
	segment, at, ok := r.find(e.Address)
	if !ok {
		return errors.New("nothing is live there")
	}
	b := segment.Blocks[at]
	if b.State != snapshot.Live || b.Requested != e.Size {
		return fmt.Errorf("a block of %d bytes is there, %s", b.Requested, b.State)
	}
	if at > 0 && !segment.Small && !segment.Expandable {
		if before := &segment.Blocks[at-1]; e.Address-end(before) <= unsplit {
			before.Size = e.Address - before.Address
		}
	}
	segment.Blocks = slices.Delete(segment.Blocks, at, at+1)
	return nil
}

// unfree restores the block whose bytes the entry returned to the pool.
func (r *rewinder) unfree(e *snapshot.TraceEntry) error {
	segment := r.around(e.Address)
	if segment == nil {
		return errors.New("it is in no segment")
	}
	if e.Size < 0 {
		return errors.New("its size is negative")
	}
	at, taken := locate(segment.Blocks, e.Address)
	if taken || at > 0 && segment.Blocks[at-1].Address+segment.Blocks[at-1].Requested > e.Address {
		return errors.New("something else is live there")
	}
	if at > 0 && end(&segment.Blocks[at-1]) > e.Address {
		segment.Blocks[at-1].Size = e.Address - segment.Blocks[at-1].Address // its excess over the request was a guess
	}
	room := segment.End() - e.Address
	if at < len(segment.Blocks) {
		room = segment.Blocks[at].Address - e.Address
	}
	if e.Size > room {
		return errors.New("it does not fit before the next block")
	}
	size := min(room, max(1, (e.Size+granule-1)/granule)*granule)
	segment.Blocks = slices.Insert(segment.Blocks, at, snapshot.Block{Address: e.Address, Size: size, Requested: e.Size, State: snapshot.Pending, Frames: e.Frames})
	return nil
}

// unrequest makes the block that the entry freed live again.
func (r *rewinder) unrequest(e *snapshot.TraceEntry) error {
	segment, at, ok := r.find(e.Address)
	if !ok || segment.Blocks[at].State != snapshot.Pending {
		return errors.New("nothing is pending there")
	}
	segment.Blocks[at].State = snapshot.Live
	return nil
}

// insert adds a segment. An expandable one is joined with the range that it touches.
func (r *rewinder) insert(s snapshot.Segment) error {
	at, _ := r.search(s.Address)
	if s.Size <= 0 || at > 0 && r.segments[at-1].End() > s.Address || at < len(r.segments) && r.segments[at].Address < s.End() {
		return fmt.Errorf("segment %#x of %d bytes is empty, or overlaps another one", s.Address, s.Size)
	}
	joins := func(a, b *snapshot.Segment) bool {
		return a.Expandable && b.Expandable && a.Stream == b.Stream && a.End() == b.Address
	}
	if at < len(r.segments) && joins(&s, &r.segments[at]) {
		next := r.segments[at]
		next.Address, next.Size = s.Address, next.Size+s.Size
		next.Blocks = append(s.Blocks, next.Blocks...)
		r.segments = slices.Delete(r.segments, at, at+1)
		s = next
	}
	if at > 0 && joins(&r.segments[at-1], &s) {
		before := &r.segments[at-1]
		before.Size += s.Size
		before.Blocks = append(before.Blocks, s.Blocks...)
		return nil
	}
	r.segments = slices.Insert(r.segments, at, s)
	return nil
}

// remove removes the range of an entry: a whole segment, or a part of an expandable one.
func (r *rewinder) remove(e *snapshot.TraceEntry) error {
	segment := r.around(e.Address)
	if segment == nil || e.Size <= 0 || e.Address+e.Size > segment.End() {
		return errors.New("no segment has that range")
	}
	whole := e.Address == segment.Address && e.Size == segment.Size
	if !whole && !segment.Expandable {
		return fmt.Errorf("the segment there has %d bytes from %#x on", segment.Size, segment.Address)
	}
	first, _ := locate(segment.Blocks, e.Address)
	last, _ := locate(segment.Blocks, e.Address+e.Size)
	if first != last || first > 0 && end(&segment.Blocks[first-1]) > e.Address {
		return errors.New("something in it is live before it is there")
	}
	left, right := *segment, *segment
	left.Size, left.Blocks = e.Address-left.Address, segment.Blocks[:first:first]
	right.Address = e.Address + e.Size
	right.Size, right.Blocks = segment.End()-right.Address, segment.Blocks[first:]
	at, _ := r.search(left.Address)
	var rest []snapshot.Segment
	for _, part := range []snapshot.Segment{left, right} {
		if part.Size > 0 {
			rest = append(rest, part)
		}
	}
	r.segments = slices.Replace(r.segments, at, at+1, rest...)
	return nil
}

// search returns the index of the segment that begins at an address, or of the next one and false.
func (r *rewinder) search(address int64) (int, bool) {
	return slices.BinarySearchFunc(r.segments, address, func(s snapshot.Segment, address int64) int { return cmp.Compare(s.Address, address) })
}

// around returns the segment that contains an address, or nil.
func (r *rewinder) around(address int64) *snapshot.Segment {
	at, found := r.search(address)
	if !found {
		at--
	}
	if at < 0 || address >= r.segments[at].End() {
		return nil
	}
	return &r.segments[at]
}

// find returns the segment around an address and the index of the block that begins there, or false
// if there is none.
func (r *rewinder) find(address int64) (*snapshot.Segment, int, bool) {
	segment := r.around(address)
	if segment == nil {
		return nil, 0, false
	}
	at, ok := locate(segment.Blocks, address)
	return segment, at, ok
}

func locate(blocks []snapshot.Block, address int64) (int, bool) {
	return slices.BinarySearchFunc(blocks, address, func(b snapshot.Block, address int64) int { return cmp.Compare(b.Address, address) })
}

// tiled returns a segment with inactive blocks between the others.
func tiled(s snapshot.Segment) snapshot.Segment {
	var blocks []snapshot.Block
	next := s.Address
	fill := func(to int64) {
		if to > next {
			blocks = append(blocks, snapshot.Block{Address: next, Size: to - next, State: snapshot.Inactive})
		}
	}
	for _, b := range s.Blocks {
		fill(b.Address)
		blocks = append(blocks, b)
		next = end(&b)
	}
	fill(s.End())
	s.Blocks = blocks
	return s
}

func end(b *snapshot.Block) int64 { return b.Address + b.Size }
