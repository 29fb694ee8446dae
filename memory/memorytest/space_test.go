package memorytest_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memorytest"
)

func openArena() (memorytest.Subject[memory.Handle], error) {
	a, err := memory.NewArena(memory.ArenaConfig{Capacity: 4 << 20})
	if err != nil {
		return memorytest.Subject[memory.Handle]{}, err
	}
	return memorytest.Subject[memory.Handle]{Space: a, Alloc: a.Alloc, Close: a.Close}, nil
}

type tensor struct {
	class memory.Class
	bytes int64
}

func openGCSpace() (memorytest.Subject[*tensor], error) {
	return memorytest.Subject[*tensor]{
		Space: memory.NewGCSpace(
			func(t *tensor) memory.Class { return t.class },
			func(t *tensor) int64 { return t.bytes },
		),
		Alloc: func(class memory.Class, bytes int64) (*tensor, error) {
			return &tensor{class, bytes}, nil
		},
		Adopts: true,
	}, nil
}

func TestArena(t *testing.T)   { memorytest.Space(t, openArena) }
func TestGCSpace(t *testing.T) { memorytest.Space(t, openGCSpace) }

// faulty is an arena with one fault.
type faulty struct {
	*memory.Arena
	fault string
	// first is the first handle, last is the latest one.
	first, last memory.Handle
	level       int64
}

type handle = memory.Handle

func (f *faulty) alloc(class memory.Class, bytes int64) (handle, error) {
	switch {
	case f.fault == "loses the class":
		class = memory.Saved
	case f.fault == "rounds sizes up":
		bytes = (bytes + 63) / 64 * 64
	case f.fault == "hands a slot out without a new generation" && f.first != (handle{}) && f.Arena.Bytes(f.first) == 0:
		// The old handle refers to the new buffer from here on.
		h, err := f.Arena.Alloc(class, bytes)
		f.last = h
		return f.first, err
	}
	h, err := f.Arena.Alloc(class, bytes)
	if f.fault == "places over live buffers" && errors.Is(err, memory.ErrOverlap) {
		return f.first, nil
	}
	if f.fault == "leaks with every buffer" {
		_, err = f.Arena.Alloc(class, 1<<10)
	}
	if f.first == (handle{}) {
		f.first = h
	}
	f.last = h
	return h, err
}

// real returns the corresponding handle of the arena.
func (f *faulty) real(h handle) handle {
	switch {
	case f.fault == "takes every handle for the first" && h != (handle{}):
		return f.first
	case f.fault == "hands a slot out without a new generation" && h == f.first:
		return f.last
	}
	return h
}

func (f *faulty) Bytes(h handle) int64 { return f.Arena.Bytes(f.real(h)) }

func (f *faulty) Retain(h handle) error {
	h = f.real(h)
	switch {
	case f.fault == "knows the zero handle" && h == (handle{}):
		return nil
	case f.fault == "does not lend held buffers":
		if _, err := f.Arena.Release(h); err != nil {
			return err
		}
	case f.fault == "forgives stale handles" && f.Arena.Bytes(h) == 0 && h != (handle{}):
		return nil
	}
	return f.Arena.Retain(h)
}

func (f *faulty) Release(h handle) (int64, error) {
	h = f.real(h)
	bytes := f.Arena.Bytes(h)
	freed, err := f.Arena.Release(h)
	switch {
	case f.fault == "frees at every release" && err == nil:
		return bytes, nil
	case f.fault == "ends held references" && err != nil && bytes > 0:
		if _, err := f.Arena.Unhold(h); err != nil {
			return 0, err
		}
		return f.Arena.Release(h)
	}
	return freed, err
}

func (f *faulty) Hold(h handle) (int64, error) {
	h = f.real(h)
	bytes := f.Arena.Bytes(h)
	held, err := f.Arena.Hold(h)
	if err == nil {
		switch f.fault {
		case "counts every hold":
			return bytes, nil
		case "adds a plain reference at hold":
			return held, f.Arena.Retain(h)
		case "feeds its book at hold":
			f.level += held
		}
	}
	return held, err
}

func (f *faulty) Unhold(h handle) (int64, error) {
	h = f.real(h)
	unheld, err := f.Arena.Unhold(h)
	switch {
	case f.fault == "ends the buffer at yield" && err == nil:
		_, err = f.Arena.Release(h)
	case f.fault == "yields buffers that are not held" && err != nil && f.Arena.Bytes(h) > 0:
		return 0, nil
	}
	return unheld, err
}

func (f *faulty) Live() int64 { return f.Arena.Live() + f.level }

func (f *faulty) Stats(s *memory.Stats) {
	f.Arena.Stats(s)
	if f.fault == "books all under one class" {
		s.Classes = memory.ByClass{memory.Saved: s.Live}
	} else if f.fault == "reserves more and more" {
		s.Reserved += 4096 * s.Allocs
	} else if f.fault == "takes the present for the peak" {
		s.PeakClasses = s.Classes
	}
}

func (f *faulty) WatchPeak(on bool) {
	if f.fault != "forgets released buffers" {
		f.Arena.WatchPeak(on)
	}
}

func (f *faulty) ResetPeak() {
	if f.fault != "keeps its peak" {
		f.Arena.ResetPeak()
	}
}

func (f *faulty) SetLayout(l *memory.Layout) error {
	switch {
	case f.fault == "takes a layout and forgets it" && l != nil:
		return nil
	case f.fault == "begins a step over another one":
		err := f.Arena.SetLayout(l)
		if errors.Is(err, memory.ErrLive) {
			err = nil
		}
		return err
	}
	return f.Arena.SetLayout(l)
}

func (f *faulty) SetPlace(place int) {
	if f.fault == "ignores places" {
		place = 0
	}
	f.Arena.SetPlace(place)
}

func (f *faulty) ReleasePages(w io.Writer, scopes ...memory.Scope) error {
	if f.fault == "keeps its pages" {
		scopes = scopes[:1]
	}
	return f.Arena.ReleasePages(w, scopes...)
}

func (f *faulty) Reclaim(mark uint64) int64 {
	switch f.fault {
	case "reclaims older buffers":
		return f.Arena.Reclaim(0)
	case "only says that it reclaims":
		var bytes int64
		for info := range f.Arena.All() {
			if info.Serial >= mark && info.Class != memory.Resident {
				bytes += info.Bytes
			}
		}
		return bytes
	}
	return f.Arena.Reclaim(mark)
}

// Every check detects the spaces with the fault that it looks for.
func TestChecksCatch(t *testing.T) {
	caught := map[string]bool{}
	for _, test := range []struct{ fault, check string }{
		{"knows the zero handle", "none"},
		{"loses the class", "birth"},
		{"rounds sizes up", "birth"},
		{"frees at every release", "release"},
		{"counts every hold", "hold"},
		{"ends the buffer at yield", "unhold"},
		{"does not lend held buffers", "borrow"},
		{"ends held references", "no plain reference"},
		{"adds a plain reference at hold", "no plain reference"},
		{"yields buffers that are not held", "not held"},
		{"takes every handle for the first", "independent"},
		{"forgives stale handles", "stale"},
		{"hands a slot out without a new generation", "reused"},
		{"feeds its book at hold", "book"},
		{"books all under one class", "book by class"},
		{"keeps its peak", "peak"},
		{"takes the present for the peak", "peak"},
		{"forgets released buffers", "at the peak"},
		{"leaks with every buffer", "flat"},
		{"reserves more and more", "flat"},
		{"reclaims older buffers", "reclaim"},
		{"only says that it reclaims", "reclaimed"},
		{"ignores places", "planned"},
		{"takes a layout and forgets it", "unplanned"},
		{"places over live buffers", "overlap"},
		{"begins a step over another one", "laid over live buffers"},
		{"keeps its pages", "pages"},
	} {
		t.Run(test.fault, func(t *testing.T) {
			faults := memorytest.Faults(func() (memorytest.Subject[handle], error) {
				s, err := openArena()
				if err != nil {
					return s, err
				}
				f := &faulty{Arena: s.Space.(*memory.Arena), fault: test.fault}
				return memorytest.Subject[handle]{Space: f, Alloc: f.alloc, Close: s.Close}, nil
			})
			require.True(t, contains(faults, test.check), "%s finds nothing; all faults: %v", test.check, faults)
		})
		caught[test.check] = true
	}
	for _, name := range memorytest.CheckNames() {
		require.True(t, caught[name], "no broken space for the check %q", name)
	}
}

func contains(faults []error, check string) bool {
	for _, err := range faults {
		if strings.HasPrefix(err.Error(), check+": memorytest: ") {
			return true
		}
	}
	return false
}

// A subject that fails to open, allocate or close is a fault and not a panic.
func TestSubjectsThatFail(t *testing.T) {
	broken := fmt.Errorf("broken")
	all := len(memorytest.CheckNames())
	require.Len(t, memorytest.Faults(func() (memorytest.Subject[*tensor], error) {
		return memorytest.Subject[*tensor]{}, broken
	}), all)
	for _, err := range memorytest.Faults(func() (memorytest.Subject[*tensor], error) {
		s, _ := openGCSpace()
		s.Alloc = func(memory.Class, int64) (*tensor, error) { return nil, broken }
		return s, nil
	}) {
		require.ErrorIs(t, err, broken)
	}
	require.Len(t, memorytest.Faults(func() (memorytest.Subject[*tensor], error) {
		s, _ := openGCSpace()
		s.Close = func() error { return broken }
		return s, nil
	}), all)
}

func ExampleFaults() {
	faults := memorytest.Faults(func() (memorytest.Subject[memory.Handle], error) {
		arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 4 << 20})
		if err != nil {
			return memorytest.Subject[memory.Handle]{}, err
		}
		return memorytest.Subject[memory.Handle]{Space: arena, Alloc: arena.Alloc, Close: arena.Close}, nil
	})
	fmt.Println(len(faults), "faults")
	// Output: 0 faults
}
