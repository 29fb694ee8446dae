package memory

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"

	"github.com/weir-ml/weir/internal/engine/invariants"
)

// ArenaConfig is the configuration of an [Arena]. The zero value is useful.
type ArenaConfig struct {
	// Capacity is the size of the reserved address range in bytes, rounded up to Align; untouched pages
	// cost nothing. 0 means 8 GiB (512 MiB on 32-bit systems), or 1 GiB (256 MiB) on systems without
	// reservations (see Arena).
	Capacity int64
	// Align is the alignment in bytes of every buffer that is not placed by a layout, a power of two up
	// to 4096. 0 means 64, a cache line.
	Align int64
	// RedZone is the number of guard bytes after every buffer that is not placed by a layout. A build
	// with -tags invariants examines them, together with the alignment padding, when the buffer is
	// released. Without the tag, or with a Capacity below 1 MiB, there are no guard bytes.
	RedZone int64
	// Pages supplies the pages of planned steps and of restored scopes, and discards those of released
	// scopes; nil means System{}.
	Pages Pager
	// Range is memory of another device, which the processor cannot read; nil means the processor's own
	// memory. With a Range, Capacity is rounded up to a multiple of its page size, Pages is not used, and
	// a build with -tags invariants examines no bytes.
	Range Range
}

const (
	defaultAlign = 64
	maxAlign     = 4096 // the smallest page: a reserved range starts on a page
	// maxCapacity leaves room for rounding up to a page.
	maxCapacity = math.MaxInt - 2*maxAlign
)

// Validate reports every fault of the configuration.
func (c ArenaConfig) Validate() error {
	var faults []error
	if c.Capacity < 0 || c.Capacity > maxCapacity {
		faults = append(faults, fmt.Errorf("memory: ArenaConfig.Capacity is %d, want 0 (the default) to %d bytes", c.Capacity, int64(maxCapacity)))
	}
	if c.Align != 0 && (c.Align < 0 || c.Align > maxAlign || bits.OnesCount64(uint64(c.Align)) != 1) {
		faults = append(faults, fmt.Errorf("memory: ArenaConfig.Align is %d, want 0 (the default) or a power of two up to %d bytes", c.Align, maxAlign))
	}
	if c.RedZone < 0 || c.RedZone > maxAlign {
		faults = append(faults, fmt.Errorf("memory: ArenaConfig.RedZone is %d, want 0 to %d bytes", c.RedZone, maxAlign))
	}
	return errors.Join(faults...)
}

// Arena is a [Space] of [Handle], a [Book], a [Reclaimer], [Planned], [Scoped] and
// [PeakWatched] over one reserved range outside the garbage collector's heap. The collector neither scans
// nor counts it. Only touched pages take up memory. An Arena is not safe for concurrent use. Close
// returns the range to the system; an Arena that becomes unreachable without Close keeps it until the
// process ends.
//
// Placement is deterministic. Under a layout (SetLayout) the start of the range belongs to the step,
// and the address of a buffer is base plus offset; without a layout, a buffer of a step goes to the lowest
// free address that fits. Buffers of class [Resident] always go to the highest one. A buffer that lives as
// long as the model is therefore not placed between the buffers of a step unless the arena is almost full,
// and a repeated step is placed the same way every time. The other scopes (AllocIn, and class [Loss] in
// Metadata) take whole pages from the top. A buffer is never placed over one that has not been released.
//
// The book records requested sizes. Rounding up to the alignment affects only Stats.Reserved, which is
// the high-water mark of both ends of the range. The bookkeeping consists of two slices, which grow with
// the maximum numbers of buffers and of gaps, so in steady state nothing is allocated on the Go heap
// (L7). A slot that has used up its 2^32-1 generations is retired, and its few bytes are not reused.
//
// The range comes from mmap on Linux, macOS and the BSDs, and from VirtualAlloc on Windows,
// where pages are committed as the high-water mark grows. On other systems it is a single []byte of the
// full capacity on the Go heap, which the collector counts as live; everything else is the same.
type Arena struct {
	pages    pages
	pager    Pager
	far      Range // nil if the range is in pages
	page     int64 // bytes of a page
	capacity int64
	align    int64
	red      int64 // bytes of the red zone
	closed   bool

	slots  []slot // slot 0 stays empty; its generation matches no handle
	unused uint32 // the slot released last, or noSlot; the head of a list linked by slot.next
	number uint32 // part of every handle; random, so that two arenas are unlikely to share it
	free   spans

	// The bytes below low and those at or above high have been touched at some time; those in between have
	// never been touched. low <= high.
	low, high int64

	meter    Meter
	laid     laid
	peak     peakWatch
	regions  [NumScopes]region
	released int   // number of regions whose pages are released
	saved    saved // describes the contents that ReleasePages wrote

	// Scratch space of ResolveOrder, which keeps the capacity of its largest call: the moves, and the
	// contents of the buffers that move.
	moves []move
	moved []byte
}

// noSlot is greater than every index of a slot.
const noSlot = math.MaxUint32

// slot describes one buffer at a time. A slot is live while its buffer has references, and at most one
// handle has its current generation.
type slot struct {
	off, bytes  int64 // the buffer's offset and its requested size
	plain, held int64
	serial      uint64
	mark        uint64 // the mark of a buffer placed by a layout, 0 for any other
	generation  uint32
	next        uint32 // the next slot in the list of unused slots, or noSlot
	class       Class
	scope       Scope // for a Lasting class; StepScope for any other
	birth       int32 // index of its allocation in the layout; if mark is 0, the place where it was allocated
}

var (
	_ Space[Handle]        = (*Arena)(nil)
	_ HoldReleaser[Handle] = (*Arena)(nil)
	_ Book                 = (*Arena)(nil)
	_ Reclaimer            = (*Arena)(nil)
	_ Planned              = (*Arena)(nil)
	_ Scoped               = (*Arena)(nil)
	_ PeakWatched          = (*Arena)(nil)

	_ Hasher[Handle]    = (*Arena)(nil)
	_ Reorderer[Handle] = (*Arena)(nil)
)

// NewArena reserves the range. If the system refuses the reservation, the error wraps ErrOutOfMemory.
func NewArena(cfg ArenaConfig) (*Arena, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Capacity == 0 {
		cfg.Capacity = defaultCapacity
	}
	if cfg.Align == 0 {
		cfg.Align = defaultAlign
	}
	if cfg.Pages == nil {
		cfg.Pages = System{}
	}
	if !invariants.Enabled || cfg.Capacity < 1<<20 {
		cfg.RedZone = 0
	}
	a := &Arena{align: cfg.Align, red: cfg.RedZone, number: rand.Uint32(), pager: cfg.Pages, page: int64(os.Getpagesize()), slots: make([]slot, 1, 64), unused: noSlot, free: make(spans, 0, 64)}
	a.slots[0].generation = math.MaxUint32
	a.capacity = a.padded(cfg.Capacity)
	if err := a.reserve(cfg.Range); err != nil {
		return nil, fmt.Errorf("%w: the system cannot reserve %d bytes (try a smaller ArenaConfig.Capacity, or allow more address space, as with ulimit -v): %w", ErrOutOfMemory, a.capacity, err)
	}
	a.high = a.capacity
	a.free.give(0, a.capacity)
	return a, nil
}

// padded rounds a size up to the alignment.
func (a *Arena) padded(bytes int64) int64 { return (bytes + a.align - 1) &^ (a.align - 1) }

// paged rounds a size up to whole pages.
func (a *Arena) paged(bytes int64) int64 { return (bytes + a.page - 1) &^ (a.page - 1) }

// footprint returns the bytes of the range that a buffer covers if no layout places it.
func (a *Arena) footprint(bytes int64) int64 { return a.padded(bytes + a.red) }

// Alloc returns a buffer with one plain reference, owned by the caller. Its contents are undefined. The
// error wraps ErrOutOfMemory if no gap is large enough or the system supplies no more memory, ErrReleased if
// the pages of the buffer's scope are released, and ErrClosed after Close. It is a [PlanError] if the
// allocation does not follow the layout. A size below 1 or an unknown class is an error.
func (a *Arena) Alloc(class Class, bytes int64) (Handle, error) {
	l, i := &a.laid, a.unused
	n := l.next
	if uint(n) >= uint(len(l.births)) || uint(i) >= uint(len(a.slots)) || invariants.Enabled {
		return a.allocSlow(class, bytes)
	}
	b, s := &l.births[n], &a.slots[i]
	if b.Class != class || b.Bytes != bytes || b.free != l.marks {
		return a.allocSlow(class, bytes)
	}
	// This is exactly the layout's next buffer, and its place was free when the same buffers were live
	// before. The following lines are enter, inlined by hand.
	mark := b.mark
	l.next = n + 1
	l.marks += mark
	a.unused = s.next
	s.off, s.bytes, s.mark = b.Offset, bytes, mark
	s.plain, s.class, s.serial, s.birth = 1, class, a.Mark(), int32(n)
	a.meter.Alloc(class, bytes)
	return Handle{i, s.generation, a.number}, nil
}

// allocSlow handles every allocation that is not exactly the next one of the layout.
func (a *Arena) allocSlow(class Class, bytes int64) (Handle, error) {
	switch {
	case bytes <= 0 || int(class) >= NumClasses || a.closed:
		return Handle{}, a.refusal(class, bytes)
	case class == Loss:
		return a.allocIn(Metadata, class, bytes)
	case a.laid.layout == nil || class == Resident:
		return a.fit(class, bytes)
	}
	return a.allocPlanned(class, bytes)
}

// fit places a buffer at the top of the highest gap that is large enough if its class is Resident, and
// otherwise at the bottom of the lowest one.
func (a *Arena) fit(class Class, bytes int64) (Handle, error) {
	if class == Resident && a.regions[Weights].released {
		return Handle{}, fmt.Errorf("%w: alloc of %d bytes (%s): call RestorePages first", ErrReleased, bytes, class)
	}
	if bytes > a.capacity {
		return Handle{}, a.refusal(class, bytes)
	}
	size := a.footprint(bytes)
	var off int64
	var ok bool
	if class == Resident {
		off, ok = a.free.takeHigh(size)
	} else {
		off, ok = a.free.takeLow(size)
	}
	if !ok {
		return Handle{}, a.refusal(class, bytes)
	}
	if a.examined() {
		if err := a.verify(off, size); err != nil {
			a.free.give(off, size)
			return Handle{}, err
		}
	}
	if off < a.high && off+size > a.low {
		if err := a.touch(class, off, size); err != nil {
			a.free.give(off, size)
			return Handle{}, err
		}
	}
	if a.laid.most > 0 { // pages were discarded, possibly including some of these
		if err := a.commit(off, off+size); err != nil {
			a.free.give(off, size)
			return Handle{}, fmt.Errorf("%w: the system cannot commit %d bytes: %w", ErrOutOfMemory, size, err)
		}
	}
	if a.examined() {
		poison(a.pages.mem[off : off+size])
	}
	h := a.enter(class, off, bytes)
	if class == Resident {
		a.resident(h, Weights)
	}
	return h, nil
}

// enter assigns a slot to a buffer, with one plain reference owned by the caller.
func (a *Arena) enter(class Class, off, bytes int64) Handle {
	if a.unused == noSlot {
		a.unused = uint32(len(a.slots))
		a.slots = append(a.slots, slot{generation: 1, next: noSlot})
	}
	i := a.unused
	s := &a.slots[i]
	a.unused = s.next
	s.off, s.bytes, s.mark = off, bytes, 0
	s.plain, s.class, s.serial, s.birth = 1, class, a.Mark(), int32(min(a.laid.place, math.MaxInt32))
	a.meter.Alloc(class, bytes)
	return Handle{i, s.generation, a.number}
}

// touch moves a high-water mark past a new buffer that reaches into bytes never touched before.
func (a *Arena) touch(class Class, off, size int64) error {
	low, high := a.low, a.high
	// The bytes between the marks are in one free span. A buffer that extends into them therefore covers the
	// lower mark if it was placed from the bottom, and the upper mark if it was placed from the top.
	if class == Resident {
		high = max(off, low)
	} else {
		low = min(off+size, high)
	}
	if err := a.commit(a.low, low); err != nil {
		return fmt.Errorf("%w: the system cannot commit %d more bytes: %w", ErrOutOfMemory, low-a.low, err)
	}
	if err := a.commit(high, a.high); err != nil {
		return fmt.Errorf("%w: the system cannot commit %d more bytes: %w", ErrOutOfMemory, a.high-high, err)
	}
	if a.examined() {
		poison(a.pages.mem[a.low:low])
		poison(a.pages.mem[high:a.high])
	}
	a.low, a.high = low, high
	return nil
}

// reserve reserves the range, in far unless that is nil.
func (a *Arena) reserve(far Range) (err error) {
	if far == nil {
		a.pages, err = reserve(int(a.capacity))
		return err
	}
	if a.page = far.Page(); a.page < maxAlign || bits.OnesCount64(uint64(a.page)) != 1 {
		return fmt.Errorf("a page of %d bytes, want a power of two from %d on", a.page, maxAlign)
	}
	a.far, a.capacity = far, a.paged(a.capacity)
	return far.Reserve(a.capacity)
}

// commit makes the bytes from low to high usable.
func (a *Arena) commit(low, high int64) error {
	if a.far != nil && low < high {
		return a.far.Commit(low, high)
	}
	return a.pages.commit(low, high)
}

// refusal returns the reason why Alloc returns no buffer.
func (a *Arena) refusal(class Class, bytes int64) error {
	switch {
	case a.closed:
		return fmt.Errorf("%w: alloc of %d bytes", ErrClosed, bytes)
	case int(class) >= NumClasses:
		return fmt.Errorf("memory: alloc of %d bytes of unknown class %d", bytes, class)
	case bytes <= 0:
		return fmt.Errorf("memory: alloc of %d bytes (%s): the size must be positive", bytes, class)
	}
	return fmt.Errorf("%w: %d bytes (%s) requested; live %d, capacity %d, largest gap %d bytes",
		ErrOutOfMemory, bytes, class, a.meter.live, a.capacity, a.free.largest())
}

// Close frees every buffer, including Resident ones, and returns the range to the system. Afterwards
// Alloc returns ErrClosed and every handle is stale. A second Close does nothing.
func (a *Arena) Close() error {
	if a.closed {
		return nil
	}
	for i := range a.slots {
		if s := &a.slots[i]; s.live() {
			a.take(uint32(i), s)
		}
	}
	a.laid, a.peak, a.regions, a.released, a.saved = laid{}, peakWatch{}, [NumScopes]region{}, 0, saved{}
	a.closed = true
	a.low, a.high = 0, a.capacity
	release := a.pages.release
	if a.far != nil {
		release = a.far.Release
	}
	if err := release(); err != nil {
		return fmt.Errorf("memory: close of an arena of %d bytes: %w", a.capacity, err)
	}
	return nil
}
