package memory_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memorytest"
)

// script is a small step: at each place some buffers are born and some are released.
type script struct {
	layout memory.Layout
	places [][]event
}

// event is the next birth (buffer is its number), or the release of a buffer.
type event struct {
	buffer int
	end    bool
}

// planner writes a script, and lays out its buffers by first fit.
type planner struct {
	script
	live  []memory.Allocation
	names []int
	count int
}

func (p *planner) birth(class memory.Class, bytes int64, atMost bool) int {
	offset := int64(0)
	for again := true; again; {
		again = false
		for _, b := range p.live {
			if offset < b.Offset+b.Bytes && b.Offset < offset+bytes {
				offset, again = (b.Offset+b.Bytes+3)/4*4, true
			}
		}
	}
	b := memory.Allocation{Offset: offset, Bytes: bytes, Class: class, AtMost: atMost}
	p.live, p.names = append(p.live, b), append(p.names, p.count)
	p.layout.Allocations = append(p.layout.Allocations, b)
	p.layout.Height = max(p.layout.Height, offset+bytes)
	p.count++
	p.event(event{buffer: p.count - 1})
	return p.count - 1
}

func (p *planner) end(i int) {
	p.event(event{buffer: p.names[i], end: true})
	p.live, p.names = append(p.live[:i:i], p.live[i+1:]...), append(p.names[:i:i], p.names[i+1:]...)
}

func (p *planner) place() {
	p.places = append(p.places, nil)
	p.layout.Places = append(p.layout.Places, int32(len(p.layout.Allocations)))
	p.layout.Levels = append(p.layout.Levels, memory.Level{})
}

func (p *planner) event(e event) {
	last := len(p.places) - 1
	p.places[last] = append(p.places[last], e)
}

func (p *planner) done() *script {
	p.layout.Places = append(p.layout.Places, int32(len(p.layout.Allocations)))
	return &p.script
}

// example has three buffers at two places: the third reuses the place of the first.
func example() *script {
	p := &planner{}
	p.place()
	p.birth(memory.Saved, 1000, false)
	p.birth(memory.Workspace, 400, true)
	p.end(0)
	p.place()
	p.birth(memory.Activation, 996, false)
	return p.done()
}

func TestLaid(t *testing.T) {
	a := open(t, 1<<20, 0)
	weights := alloc(t, a, memory.Resident, 100)
	s := example()
	require.NoError(t, a.SetLayout(&s.layout))
	a.SetPlace(0)
	first := alloc(t, a, memory.Saved, 1000)
	base := address(t, a, first)
	second := alloc(t, a, memory.Workspace, 77) // less than planned: at most 400
	require.EqualValues(t, 77, a.Bytes(second))
	require.EqualValues(t, 1000, address(t, a, second)-base)
	grads := alloc(t, a, memory.Resident, 100) // in mid-step, at the top
	require.Greater(t, address(t, a, grads), base+s.layout.Height)
	release(t, a, first)
	a.SetPlace(1)
	third := alloc(t, a, memory.Activation, 996)
	require.Equal(t, base, address(t, a, third))
	require.NoError(t, a.Check())
	require.EqualValues(t, 77+996+200, a.Live())
	require.Equal(t, memory.Activation, a.Class(third))
	_, err := a.Release(first)
	require.ErrorIs(t, err, memory.ErrStale)
	release(t, a, second, third)
	require.NoError(t, a.SetLayout(nil))
	require.NoError(t, a.Check())

	var stats memory.Stats
	a.Stats(&stats)
	require.EqualValues(t, s.layout.Height+256, stats.Reserved)
	require.Equal(t, base, address(t, a, alloc(t, a, memory.Saved, 10)), "first fit again")
	release(t, a, weights, grads)
}

// A request that is not in the layout fails with an error that contains the request and the
// plan.
func TestLaidUnplanned(t *testing.T) {
	a := open(t, 1<<20, 0)
	s := example()
	require.NoError(t, a.SetLayout(&s.layout))
	refused := func(class memory.Class, bytes int64, text string) {
		t.Helper()
		before := a.Live()
		_, err := a.Alloc(class, bytes)
		require.ErrorIs(t, err, memory.ErrUnplanned)
		require.ErrorContains(t, err, text)
		require.Equal(t, before, a.Live())
		require.NoError(t, a.Check())
		var e *memory.PlanError
		require.ErrorAs(t, err, &e)
		require.Equal(t, []any{class, bytes}, []any{e.Class, e.Bytes})
	}
	refused(memory.Saved, 1000, "1000 bytes (saved) requested as allocation 0 of place 0; nothing more is planned there")
	a.SetPlace(0)
	refused(memory.Saved, 999, "999 bytes (saved) requested as allocation 0 of place 0; the plan has 1000 bytes (saved)")
	refused(memory.Carry, 1000, "the plan has 1000 bytes (saved)")
	first := alloc(t, a, memory.Saved, 1000)
	refused(memory.Workspace, 401, "401 bytes (workspace) requested as allocation 1 of place 0; the plan has at most 400 bytes (workspace)")
	refused(memory.Workspace, math.MaxInt64, "the plan has at most 400 bytes")
	second := alloc(t, a, memory.Workspace, 400)
	refused(memory.Workspace, 4, "allocation 2 of place 0; nothing more is planned there")
	for _, place := range []int{2, -1, math.MaxInt} {
		a.SetPlace(place)
		refused(memory.Saved, 1000, "nothing more is planned there")
	}
	_, err := a.Alloc(memory.Saved, 0)
	require.EqualError(t, err, "memory: alloc of 0 bytes (saved): the size must be positive")
	_, err = a.Alloc(memory.Class(memory.NumClasses), 4)
	require.ErrorContains(t, err, "unknown class")
	release(t, a, first, second)
	require.NoError(t, a.SetLayout(nil))
	a.SetPlace(0) // has no effect without a layout
	release(t, a, alloc(t, a, memory.Carry, 5000))
}

// A buffer that outlives its plan is not overwritten: the error names it. If it overlaps no
// planned buffer, it does not matter that more, or less, is live than planned.
func TestLaidOverlap(t *testing.T) {
	a := open(t, 1<<20, 0)
	s := example()
	require.NoError(t, a.SetLayout(&s.layout))
	a.SetPlace(0)
	first, second := alloc(t, a, memory.Saved, 1000), alloc(t, a, memory.Workspace, 400)
	a.SetPlace(1)
	_, err := a.Alloc(memory.Activation, 996)
	require.ErrorIs(t, err, memory.ErrOverlap)
	var e *memory.PlanError
	require.ErrorAs(t, err, &e)
	require.Equal(t, memory.Info{Handle: first, Class: memory.Saved, Bytes: 1000, Plain: 1}, e.Owner)
	require.EqualError(t, err, "memory: the place of the buffer is not free: 996 bytes (activation) requested as allocation 0 of place 1; "+
		"its offset 0 is taken: 1000 bytes (saved), allocation 0 since the arena was made, were not released")
	require.NoError(t, a.Check())
	release(t, a, first, second)
	third := alloc(t, a, memory.Activation, 996) // second does not exist, and nothing overlaps
	require.NoError(t, a.Check())
	release(t, a, third)
}

// An allocation over a live buffer fails every time, even if its offset was free before, if only four
// bytes overlap, or if the live buffer is smaller than planned.
func TestLaidCrossed(t *testing.T) {
	a := open(t, 1<<20, 0)
	l := &memory.Layout{Height: 300, Places: []int32{0, 1, 2, 3}, Levels: make([]memory.Level, 3), Allocations: []memory.Allocation{
		{Offset: 0, Bytes: 100, Class: memory.Saved, AtMost: true},
		{Offset: 200, Bytes: 100, Class: memory.Entry},
		{Offset: 96, Bytes: 100, Class: memory.Carry}, // overlaps the first, not the second
	}}
	require.NoError(t, a.SetLayout(l))
	at := func(place int, class memory.Class, bytes int64) memory.Handle {
		t.Helper()
		a.SetPlace(place)
		return alloc(t, a, class, bytes)
	}
	refused := func(owner memory.Handle, bytes int64) {
		t.Helper()
		a.SetPlace(2)
		_, err := a.Alloc(memory.Carry, 100)
		var e *memory.PlanError
		require.ErrorAs(t, err, &e)
		require.ErrorIs(t, err, memory.ErrOverlap)
		require.Equal(t, owner, e.Owner.Handle)
		require.Equal(t, bytes, e.Owner.Bytes)
		require.NoError(t, a.Check())
	}
	for range 3 {
		second := at(1, memory.Entry, 100)
		release(t, a, at(2, memory.Carry, 100), second)
		for _, bytes := range []int64{100, 80} {
			first := at(0, memory.Saved, bytes)
			refused(first, bytes)
			second = at(1, memory.Entry, 100)
			refused(first, bytes)
			release(t, a, first)
			release(t, a, at(2, memory.Carry, 100), second)
		}
	}
}

// Once all births of a step have been checked, a birth costs one comparison.
func TestLaidLooksOnce(t *testing.T) {
	if invariants.Enabled {
		t.Skip("there every birth is looked at")
	}
	a := open(t, 1<<20, 0)
	s := example()
	step := func(bytes int64) error {
		require.NoError(t, a.SetLayout(&s.layout))
		a.SetPlace(0)
		first, err := a.Alloc(memory.Saved, 1000)
		if err != nil {
			return err
		}
		second := alloc(t, a, memory.Workspace, bytes)
		release(t, a, first)
		a.SetPlace(1)
		third, err := a.Alloc(memory.Activation, 996)
		if err == nil {
			release(t, a, third)
		}
		release(t, a, second)
		return err
	}
	require.NoError(t, step(400))
	a.Obstruct(900)
	require.NoError(t, step(400))
	require.NoError(t, step(77), "fewer bytes in the same place")
	s = example() // nothing is known about another layout
	require.ErrorIs(t, step(400), memory.ErrOverlap)
}

// A step does not begin over live buffers of another step.
func TestLaidRefusesWhatIsLive(t *testing.T) {
	a := open(t, 1<<20, 0)
	alloc(t, a, memory.Resident, 50)
	var handles []memory.Handle
	for range 6 {
		handles = append(handles, alloc(t, a, memory.Saved, 300))
	}
	s := example()
	err := a.SetLayout(&s.layout)
	require.ErrorIs(t, err, memory.ErrLive)
	require.EqualError(t, err, "memory: a buffer of a step is live: SetLayout: "+
		"300 bytes (saved; 1 plain, 0 held; allocation 1), 300 bytes (saved; 1 plain, 0 held; allocation 2), "+
		"300 bytes (saved; 1 plain, 0 held; allocation 3), 300 bytes (saved; 1 plain, 0 held; allocation 4), 2 more")
	release(t, a, handles...)
	require.NoError(t, a.SetLayout(&s.layout))
	a.SetPlace(0)
	first := alloc(t, a, memory.Saved, 1000)
	require.ErrorIs(t, a.SetLayout(&s.layout), memory.ErrLive)
	require.NoError(t, a.SetLayout(nil))

	// It stays at its address, and nothing is placed over it.
	base := address(t, a, first)
	other := alloc(t, a, memory.Saved, 64)
	require.GreaterOrEqual(t, address(t, a, other), base+1000)
	require.ErrorIs(t, a.SetLayout(&s.layout), memory.ErrLive)
	require.NoError(t, a.Check())
	release(t, a, other, first)
	require.NoError(t, a.Check())
	require.NoError(t, a.SetLayout(&s.layout))
	require.NoError(t, a.SetLayout(&s.layout), "nothing is live: it may be laid again")
	require.NoError(t, a.SetLayout(nil))
	require.NoError(t, a.SetLayout(nil))
}

func TestLaidOutOfMemory(t *testing.T) {
	a := open(t, 64<<10, 0)
	weights := alloc(t, a, memory.Resident, 40<<10)
	s := &memory.Layout{Height: 40 << 10, Places: []int32{0}}
	err := a.SetLayout(s)
	require.ErrorIs(t, err, memory.ErrOutOfMemory)
	require.EqualError(t, err, "memory: out of memory: a step needs 40960 bytes; the arena has 65536, of which 40960 are Resident")
	require.NoError(t, a.Check())
	release(t, a, weights)
	require.NoError(t, a.SetLayout(s))
	require.NoError(t, a.SetLayout(nil))
	require.ErrorIs(t, a.SetLayout(&memory.Layout{Height: 65 << 10, Places: []int32{0}}), memory.ErrOutOfMemory)
	require.NoError(t, a.Close())
	require.ErrorIs(t, a.SetLayout(s), memory.ErrClosed)
	require.NoError(t, a.SetLayout(nil))
}

func TestLayoutValidate(t *testing.T) {
	require.NoError(t, example().layout.Validate())
	require.NoError(t, (&memory.Layout{Places: []int32{0}}).Validate())
	for text, spoil := range map[string]func(*memory.Layout){
		"its height is -1":                       func(l *memory.Layout) { l.Height = -1 },
		"birth 1 has 400 bytes at offset 1000":   func(l *memory.Layout) { l.Height = 1399 },
		"birth 0 has 0 bytes":                    func(l *memory.Layout) { l.Allocations[0].Bytes = 0 },
		"birth 0 has 9223372036854775807 bytes":  func(l *memory.Layout) { l.Allocations[0].Bytes = math.MaxInt64 },
		"at offset -4":                           func(l *memory.Layout) { l.Allocations[2].Offset = -4 },
		"birth 2 is at offset 2":                 func(l *memory.Layout) { l.Allocations[2].Offset = 2 },
		"birth 0 is of class resident":           func(l *memory.Layout) { l.Allocations[0].Class = memory.Resident },
		"birth 0 is of class class(?)":           func(l *memory.Layout) { l.Allocations[0].Class = 200 },
		"birth 1 is of class class(?)":           func(l *memory.Layout) { l.Allocations[1].Class = memory.Class(memory.NumClasses) },
		"it has 3 bounds of places and 1":        func(l *memory.Layout) { l.Levels = l.Levels[:1] },
		"bound 0 of its places is 1":             func(l *memory.Layout) { l.Places[0] = 1 },
		"bound 2 of its places is 1, after 2":    func(l *memory.Layout) { l.Places[2] = 1 },
		"its places have 2 of its 3 allocations": func(l *memory.Layout) { l.Places[2] = 2 },
	} {
		l := example().layout
		spoil(&l)
		require.ErrorIs(t, l.Validate(), memory.ErrLayout)
		require.ErrorContains(t, l.Validate(), text)
		a := open(t, 1<<20, 0)
		require.Equal(t, l.Validate(), a.SetLayout(&l))
	}
	require.ErrorIs(t, (&memory.Layout{}).Validate(), memory.ErrLayout)
}

// Marks distinguish buffers that swapped their sizes, or their places.
func TestMark(t *testing.T) {
	require.NotEqual(t, memory.Mark(0, 64)+memory.Mark(64, 128), memory.Mark(0, 128)+memory.Mark(64, 64))
	sums := map[uint64]bool{}
	for i := range int64(200) {
		for j := range int64(200) {
			mark := memory.Mark(64*i, 64*(j+1))
			require.NotZero(t, mark)
			sums[mark] = true
		}
	}
	require.Len(t, sums, 200*200)
}

// drawScript draws a step with some places.
func drawScript(t *rapid.T) *script {
	p := &planner{}
	for range rapid.IntRange(1, 8).Draw(t, "places") {
		p.place()
		for range rapid.IntRange(0, 8).Draw(t, "events") {
			if n := len(p.live); n > 0 && rapid.IntRange(0, 9).Draw(t, "end") < 5 {
				p.end(rapid.IntRange(0, n-1).Draw(t, "which"))
				continue
			}
			class := rapid.SampledFrom(ofASpan[1:]).Draw(t, "class")
			p.birth(class, rapid.Int64Range(1, 300).Draw(t, "bytes"), rapid.Bool().Draw(t, "at most"))
		}
	}
	p.place()
	for len(p.live) > 0 {
		p.end(0)
	}
	return p.done()
}

// Random steps are placed according to their layouts, repeatedly, with first fit in between,
// and no byte is handed out twice.
func TestLaidAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := newArena(t, memory.ArenaConfig{Capacity: 1 << 18})
		defer a.Close()
		scripts := []*script{drawScript(t), drawScript(t)}
		var serial uint64
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			for range rapid.IntRange(0, 2).Draw(t, "between") {
				h, err := a.Alloc(memory.Saved, rapid.Int64Range(1, 2000).Draw(t, "free bytes"))
				require.NoError(t, err)
				_, err = a.Release(h)
				require.NoError(t, err)
				serial++
			}
			run(t, a, scripts[rapid.IntRange(0, 1).Draw(t, "script")], &serial)
		}
	})
}

// run runs a step and compares the arena with a map after every event.
func run(t *rapid.T, a *memory.Arena, s *script, serial *uint64) {
	type buffer struct {
		handle memory.Handle
		fill   byte
		bytes  int64
	}
	require.NoError(t, a.SetLayout(&s.layout))
	live := map[int]buffer{}
	var base, sum, planned, peak int64
	base = -1
	a.ResetPeak()
	for place, events := range s.places {
		a.SetPlace(place)
		for _, e := range events {
			if e.end {
				b := live[e.buffer]
				freed, err := a.Release(b.handle)
				require.NoError(t, err)
				require.Equal(t, b.bytes, freed)
				require.ErrorIs(t, a.Retain(b.handle), memory.ErrStale)
				sum -= b.bytes
				planned -= s.layout.Allocations[e.buffer].Bytes
				delete(live, e.buffer)
			} else {
				birth := s.layout.Allocations[e.buffer]
				bytes := birth.Bytes
				if birth.AtMost {
					bytes = rapid.Int64Range(1, bytes).Draw(t, "fewer")
				}
				h, err := a.Alloc(birth.Class, bytes)
				require.NoError(t, err)
				data := bytesOf(t, a, h)
				require.Len(t, data, int(bytes))
				at := addressOf(data)
				if base < 0 {
					base = at - birth.Offset
				}
				require.Equal(t, birth.Offset, at-base)
				*serial++
				require.Equal(t, *serial, a.Mark())
				b := buffer{h, byte(*serial), bytes}
				for i := range data {
					data[i] = b.fill
				}
				live[e.buffer] = b
				sum += bytes
				planned += birth.Bytes
				peak = max(peak, sum)
			}
			require.NoError(t, a.Check())
			require.Equal(t, sum, a.Live())
			require.Equal(t, planned-sum, a.Unrequested())
			for _, b := range live {
				data := bytesOf(t, a, b.handle)
				for _, x := range data {
					if x != b.fill {
						t.Fatalf("handle %v: its contents were overwritten", b.handle)
					}
				}
			}
		}
	}
	var stats memory.Stats
	a.Stats(&stats)
	require.Equal(t, peak, stats.Peak)
	require.NoError(t, a.SetLayout(nil))
}

// Whichever allocation of a step fails, the buffers of the step are reclaimed, the books are
// right, and the next step works.
func TestNthAllocationFails(t *testing.T) {
	a := open(t, 1<<20, 0)
	alloc(t, a, memory.Resident, 100)
	s := example()
	for n := 1; n <= 3; n++ {
		refusal := memorytest.Refusal{At: n}
		attempt := func(class memory.Class, bytes int64) error {
			if err := refusal.Next(); err != nil {
				return err
			}
			_, err := a.Alloc(class, bytes)
			return err
		}
		mark := a.Mark()
		require.NoError(t, a.SetLayout(&s.layout))
		a.SetPlace(0)
		err := errors.Join(attempt(memory.Saved, 1000), attempt(memory.Workspace, 400))
		if n <= 2 {
			require.ErrorIs(t, err, memory.ErrOutOfMemory)
			require.ErrorContains(t, err, fmt.Sprintf("memorytest refuses call %d", n))
		}
		require.Equal(t, a.Live()-100, a.Reclaim(mark))
		require.NoError(t, a.SetLayout(nil))
		require.NoError(t, a.Check())
		require.EqualValues(t, 100, a.Live())
		step(t, a)
	}
}

// A planned step allocates nothing on the Go heap (L11).
func TestLaidAllocatesNothing(t *testing.T) {
	a := open(t, 1<<20, 0)
	s := example()
	step := func() {
		err := a.SetLayout(&s.layout)
		a.SetPlace(0)
		x, one := a.Alloc(memory.Saved, 1000)
		y, two := a.Alloc(memory.Workspace, 300)
		_, three := a.Release(x)
		a.SetPlace(1)
		z, four := a.Alloc(memory.Activation, 996)
		_, five := a.Release(y)
		_, six := a.Release(z)
		if fault := errors.Join(err, one, two, three, four, five, six, a.SetLayout(nil)); fault != nil {
			panic(fault)
		}
	}
	step()
	if !invariants.Enabled {
		require.Zero(t, testing.AllocsPerRun(100, step))
	}
}

// BenchmarkArenaPlanned measures Alloc and Release under a layout, with some live buffers: a
// thousand pairs at a place.
func BenchmarkArenaPlanned(b *testing.B) {
	const births = 1000
	for _, live := range []int{0, 10, 1000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			a := open(b, 1<<30, 0)
			layout := &memory.Layout{Height: int64(live+1) * 4096, Places: []int32{0, int32(live), int32(live) + births}, Levels: make([]memory.Level, 2)}
			for i := range int64(live + births) {
				layout.Allocations = append(layout.Allocations, memory.Allocation{Offset: min(i, int64(live)) * 4096, Bytes: 4096, Class: memory.Saved})
			}
			if err := a.SetLayout(layout); err != nil {
				b.Fatal(err)
			}
			a.SetPlace(0)
			for range live {
				alloc(b, a, memory.Saved, 4096)
			}
			place := func() {
				a.SetPlace(1)
				for range births {
					h, err := a.Alloc(memory.Saved, 4096)
					if err != nil {
						b.Fatal(err)
					}
					if _, err = a.Release(h); err != nil {
						b.Fatal(err)
					}
				}
			}
			place() // the first time, each birth is checked
			b.ReportAllocs()
			for b.Loop() {
				place()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/births, "ns/pair")
		})
	}
}
