package memory_test

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/memory"
)

// According to the kernel a scope has the pages that were touched, and after its release none,
// while those of the other scopes stay.
func TestKernelPages(t *testing.T) {
	page := int64(os.Getpagesize())
	r := newResident(t, nil)
	require.Zero(t, r.Scope(memory.StepScope).Pages)
	for scope := memory.Weights; int(scope) < memory.NumScopes; scope++ {
		s := r.Scope(scope)
		require.GreaterOrEqual(t, s.Pages, s.Live, scope)
		if !invariants.Enabled {
			require.LessOrEqual(t, s.Pages, s.Live+3*page, scope)
		}
	}
	step(t, r.Arena)
	require.Equal(t, page, r.Scope(memory.StepScope).Pages)

	pages := func() (pages [memory.NumScopes]int64) {
		for scope := range memory.Scope(memory.NumScopes) {
			pages[scope] = r.Scope(scope).Pages
		}
		return pages
	}
	before := pages()
	require.NoError(t, r.ReleasePages(nil, memory.StepScope, memory.Gradients))
	want := before
	want[memory.StepScope], want[memory.Gradients] = 0, 0
	require.Equal(t, want, pages())
	var file bytes.Buffer
	require.NoError(t, r.ReleasePages(&file, keeps...))
	require.Equal(t, [memory.NumScopes]int64{}, pages())
	require.NoError(t, r.RestorePages(&file))
	for scope, n := range pages() {
		require.GreaterOrEqual(t, n, before[scope])
	}
	r.same(t, keeps...)
	require.NoError(t, r.Close())
	require.Zero(t, r.Scope(memory.Weights).Pages)
}

// A step after release and restore has as many page faults as one without: none. A step without
// the restore has a fault for every page.
func TestPageFaults(t *testing.T) {
	if invariants.Enabled {
		t.Skip("poison touches every page")
	}
	const bytes = 2<<20 - 64<<10 // too small for a huge page, which is one fault
	page := int64(os.Getpagesize())
	a := open(t, 64<<20, 0)
	grads := allocIn(t, a, memory.Gradients, bytes)
	layout := &memory.Layout{
		Height: bytes, Places: []int32{0, 1}, Levels: make([]memory.Level, 1),
		Allocations: []memory.Allocation{{Bytes: bytes, Class: memory.Saved}},
	}
	touch := func(h memory.Handle) {
		data := bytesOf(t, a, h)
		for i := int64(0); i < bytes; i += page {
			data[i]++
		}
	}
	faults := func(lay bool) int64 {
		t.Helper()
		if lay {
			require.NoError(t, a.SetLayout(layout))
			a.SetPlace(0)
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		const thread = 1 // RUSAGE_THREAD
		var before, after syscall.Rusage
		require.NoError(t, syscall.Getrusage(thread, &before))
		touch(grads)
		h, err := a.Alloc(memory.Saved, bytes)
		if err == nil {
			touch(h)
			_, err = a.Release(h)
		}
		require.NoError(t, syscall.Getrusage(thread, &after))
		require.NoError(t, err)
		require.NoError(t, a.SetLayout(nil))
		return int64(after.Minflt) - int64(before.Minflt) // 32 bits on some machines
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const few = 40 // from Go itself
	require.GreaterOrEqual(t, faults(true), bytes/page, "the gradients have no pages yet; the step has")
	require.Less(t, faults(true), int64(few))
	require.NoError(t, a.ReleasePages(nil, memory.StepScope, memory.Gradients))
	require.NoError(t, a.RestorePages(nil))
	require.Less(t, faults(true), int64(few))
	require.NoError(t, a.ReleasePages(nil, memory.StepScope))
	require.Less(t, faults(true), int64(few), "SetLayout reclaims the pages that it needs")
	require.NoError(t, a.ReleasePages(nil, memory.StepScope))
	require.GreaterOrEqual(t, faults(false), bytes/page, "the pages were not reclaimed, and there is no layout")
}

// Small tables that are allocated in mid-step and outlive the step pin nothing: after everything
// else was released, the scopes of steps and gradients have 0 bytes, according to the arena and to
// the kernel. In an allocator that places them in any free gap, they would pin the memory around them.
func TestSmallTablesPinNothing(t *testing.T) {
	const tables, size, large = 32, 8 << 10, 1 << 20
	a := open(t, 256<<20, 0)
	layout := &memory.Layout{Height: 3 * large, Places: []int32{0, 3 * tables}, Levels: make([]memory.Level, 1)}
	for range tables {
		for i := range int64(3) {
			layout.Allocations = append(layout.Allocations, memory.Allocation{Offset: i * large, Bytes: large, Class: memory.Saved})
		}
	}
	for _, planned := range []bool{true, false} {
		var kept, grads []memory.Handle
		if planned {
			require.NoError(t, a.SetLayout(layout))
			a.SetPlace(0)
		}
		for range tables {
			x, y := alloc(t, a, memory.Saved, large), alloc(t, a, memory.Saved, large)
			table := allocIn(t, a, memory.Metadata, size)
			data := bytesOf(t, a, table)
			data[0], data[size-1] = 1, 2
			kept = append(kept, table)
			grads = append(grads, allocIn(t, a, memory.Gradients, large))
			release(t, a, x, y, alloc(t, a, memory.Saved, large))
		}
		require.NoError(t, a.SetLayout(nil))
		require.NoError(t, a.ReleasePages(nil, memory.StepScope, memory.Gradients))
		for _, scope := range []memory.Scope{memory.StepScope, memory.Gradients} {
			s := a.Scope(scope)
			s.Released = 0
			require.Equal(t, memory.ScopeStats{}, s, scope)
		}
		slab := a.Scope(memory.Metadata)
		require.EqualValues(t, tables*size, slab.Live)
		require.EqualValues(t, tables*size, slab.Reserved, "four slabs, and nothing between the tables")
		var stats memory.Stats
		a.Stats(&stats)
		if !invariants.Enabled { // guards affect the counts
			require.Equal(t, slab.Reserved, stats.Reserved)
		}
		require.NoError(t, a.RestorePages(nil))
		release(t, a, append(kept, grads...)...)
	}
}

// Ranges with more pages than one query covers are counted correctly, and no page behind the
// range is counted.
func TestKernelBytesOfManyPages(t *testing.T) {
	page := os.Getpagesize()
	mem, err := syscall.Mmap(-1, 0, (1<<16+2)*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Munmap(mem)) }()
	_ = syscall.Madvise(mem, syscall.MADV_NOHUGEPAGE) // a kernel without huge pages rejects it
	mem[len(mem)-1] = 1
	require.Zero(t, memory.KernelBytes(mem[:len(mem)-page]))
	mem[len(mem)-1-page] = 1
	require.EqualValues(t, page, memory.KernelBytes(mem[:len(mem)-page]))
}
