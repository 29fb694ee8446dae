package memory_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memorytest"
)

// resident is an arena with two buffers of numbers in each resident scope.
type resident struct {
	*memory.Arena
	handles map[memory.Scope][]memory.Handle
	content map[memory.Handle][]byte
}

func newResident(t testing.TB, pages memory.Pager) *resident {
	t.Helper()
	a := newArena(t, memory.ArenaConfig{Capacity: 16 << 20, Pages: pages})
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	r := &resident{a, map[memory.Scope][]memory.Handle{}, map[memory.Handle][]byte{}}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2 {
		for scope := memory.Weights; int(scope) < memory.NumScopes; scope++ {
			h := allocIn(t, a, scope, 10000+int64(scope))
			data := bytesOf(t, a, h)
			for i := range data {
				data[i] = byte(rng.Uint32())
			}
			r.handles[scope] = append(r.handles[scope], h)
			r.content[h] = bytes.Clone(data)
		}
	}
	return r
}

// same requires that the buffers of the given scopes have their contents, and that the arena is consistent.
func (r *resident) same(t testing.TB, scopes ...memory.Scope) {
	t.Helper()
	for _, scope := range scopes {
		for _, h := range r.handles[scope] {
			data, err := r.Data(h)
			require.NoError(t, err, scope)
			require.True(t, bytes.Equal(r.content[h], data), scope)
		}
	}
	require.NoError(t, r.Check())
}

func (r *resident) released(t testing.TB, scopes ...memory.Scope) {
	t.Helper()
	for _, scope := range scopes {
		for _, h := range r.handles[scope] {
			_, err := r.Data(h)
			require.ErrorIs(t, err, memory.ErrReleased, scope)
		}
		s := r.Scope(scope)
		require.Zero(t, s.Live, scope)
		require.Zero(t, s.Reserved, scope)
		require.LessOrEqual(t, s.Pages, int64(0), scope)
	}
	require.NoError(t, r.Check())
}

// step runs one planned step.
func step(t testing.TB, a *memory.Arena) {
	t.Helper()
	s := example()
	require.NoError(t, a.SetLayout(&s.layout))
	a.SetPlace(0)
	release(t, a, alloc(t, a, memory.Saved, 1000), alloc(t, a, memory.Workspace, 400))
	a.SetPlace(1)
	release(t, a, alloc(t, a, memory.Activation, 996))
	require.NoError(t, a.SetLayout(nil))
}

var keeps = []memory.Scope{memory.Weights, memory.Optimizer, memory.Metadata}

// Memory that is dead between steps is discarded and not saved; everything else is restored bit for
// bit.
func TestReleasePages(t *testing.T) {
	for name, kept := range map[string][]memory.Scope{
		"dead": nil, "weights": keeps[:1], "optimizer": keeps[1:2], "all": keeps,
	} {
		t.Run(name, func(t *testing.T) {
			r := newResident(t, nil)
			step(t, r.Arena)
			var before memory.Stats
			r.Stats(&before)
			at := address(t, r.Arena, r.handles[memory.Gradients][0])

			var file bytes.Buffer
			going := append([]memory.Scope{memory.StepScope, memory.Gradients, memory.Gradients}, kept...)
			require.NoError(t, r.ReleasePages(&file, going...))
			require.NoError(t, r.ReleasePages(nil, going...), "they are released")
			r.released(t, going...)
			require.EqualValues(t, 20000+2*int64(memory.Gradients), r.Scope(memory.Gradients).Released)
			var stats memory.Stats
			r.Stats(&stats)
			require.Equal(t, before.Live, stats.Live, "the book of allocations is as it was")
			if name == "all" && !invariants.Enabled { // guards affect the counts
				require.Zero(t, stats.Reserved)
			}
			require.Less(t, stats.Reserved, before.Reserved)
			s := example()
			require.ErrorIs(t, r.SetLayout(&s.layout), memory.ErrReleased)
			_, err := r.AllocIn(memory.Gradients, 100)
			require.ErrorIs(t, err, memory.ErrReleased)

			require.NoError(t, r.RestorePages(&file))
			require.Zero(t, file.Len())
			r.same(t, keeps...)
			r.Stats(&stats)
			require.Equal(t, before, stats)
			require.Equal(t, at, address(t, r.Arena, r.handles[memory.Gradients][0]))
			step(t, r.Arena)
			require.NoError(t, r.RestorePages(nil), "nothing is released")
			for _, handles := range r.handles {
				release(t, r.Arena, handles...)
			}
			require.NoError(t, r.Check())
		})
	}
}

// Weights and moments are written to a file and restored.
func TestReleasePagesToFile(t *testing.T) {
	r := newResident(t, nil)
	f, err := os.Create(filepath.Join(t.TempDir(), "weights"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, r.ReleasePages(f, memory.Weights, memory.Optimizer))
	r.same(t, memory.Gradients, memory.Metadata)
	_, err = f.Seek(0, io.SeekStart)
	require.NoError(t, err)
	require.NoError(t, r.RestorePages(f))
	r.same(t, memory.Weights, memory.Optimizer, memory.Gradients, memory.Metadata)
}

// Nothing is released while a step is running, or a buffer of one is live.
func TestReleasePagesRefused(t *testing.T) {
	r := newResident(t, nil)
	saved := alloc(t, r.Arena, memory.Saved, 700)
	err := r.ReleasePages(nil, memory.StepScope, memory.Gradients)
	require.ErrorIs(t, err, memory.ErrLive)
	require.ErrorContains(t, err, "ReleasePages: 700 bytes (saved; 1 plain, 0 held; allocation 8)")
	release(t, r.Arena, saved)
	s := example()
	require.NoError(t, r.SetLayout(&s.layout))
	r.SetPlace(1)
	err = r.ReleasePages(nil, memory.Gradients)
	require.ErrorIs(t, err, memory.ErrLive)
	require.ErrorContains(t, err, "at place 1 of a step")
	require.NoError(t, r.SetLayout(nil))
	for _, scope := range keeps {
		require.ErrorContains(t, r.ReleasePages(nil, memory.StepScope, scope), scope.String()+" without a writer")
	}
	require.ErrorContains(t, r.ReleasePages(nil, memory.Scope(memory.NumScopes)), "unknown scope 5")
	r.same(t, memory.Weights, memory.Gradients, memory.Optimizer, memory.Metadata)
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.ReleasePages(nil, memory.StepScope), memory.ErrClosed)
	require.ErrorIs(t, r.RestorePages(nil), memory.ErrClosed)
}

// full is a writer on a disk that fills up.
type full struct{ left int }

var errFull = errors.New("no space left on device")

func (f *full) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// A failed writer has no effect, and a failed reader can be retried.
func TestReleasePagesFaults(t *testing.T) {
	r := newResident(t, nil)
	err := r.ReleasePages(&full{left: 35000}, append(keeps, memory.StepScope, memory.Gradients)...)
	require.ErrorIs(t, err, errFull)
	require.ErrorContains(t, err, "released nothing")
	r.same(t, memory.Weights, memory.Gradients, memory.Optimizer, memory.Metadata)

	var file bytes.Buffer
	require.NoError(t, r.ReleasePages(&file, keeps[0], keeps[1]))
	err = r.ReleasePages(&file, keeps[2])
	require.ErrorIs(t, err, memory.ErrReleased, "one file at a time")
	saved := file.Bytes()
	torn := bytes.Clone(saved)
	torn[12345]++
	for _, reader := range []io.Reader{nil, bytes.NewReader(saved[:len(saved)-1]), bytes.NewReader(torn), bytes.NewReader(nil)} {
		require.ErrorIs(t, r.RestorePages(reader), memory.ErrSaved)
		r.released(t, keeps[0], keeps[1])
	}
	// A buffer that was released meanwhile is skipped.
	gone := r.handles[memory.Weights][0]
	release(t, r.Arena, gone)
	_, err = r.Alloc(memory.Resident, 100)
	require.ErrorIs(t, err, memory.ErrReleased)
	require.NoError(t, r.Check())
	r.handles[memory.Weights] = r.handles[memory.Weights][1:]
	require.NoError(t, r.RestorePages(bytes.NewReader(saved)))
	r.same(t, memory.Weights, memory.Gradients, memory.Optimizer, memory.Metadata)
	alloc(t, r.Arena, memory.Resident, 10001)
	require.NoError(t, r.Check())
}

// The system may refuse any page, when a layout is set and when pages are reclaimed: the error
// comes before anything changes, the books are unchanged, and everything works once the system
// has pages again.
func TestNthPageRefused(t *testing.T) {
	page := int64(os.Getpagesize())
	layout := &memory.Layout{
		Height: 5 * page, Places: []int32{0, 1}, Levels: make([]memory.Level, 1),
		Allocations: []memory.Allocation{{Bytes: 5 * page, Class: memory.Saved}},
	}
	for n := range int64(5) {
		pages := &memorytest.Pages{Bytes: page, Left: n}
		r := newResident(t, pages)
		var before, after memory.Stats
		r.Stats(&before)
		err := r.SetLayout(layout)
		require.ErrorIs(t, err, memory.ErrOutOfMemory)
		require.ErrorContains(t, err, "for a step: memorytest: ")
		r.Stats(&after)
		require.Equal(t, before, after)
		require.NoError(t, r.Check())
		pages.Left = 5
		require.NoError(t, r.SetLayout(layout))
		r.SetPlace(0)
		release(t, r.Arena, alloc(t, r.Arena, memory.Saved, 5*page))
		require.NoError(t, r.SetLayout(nil))

		var file bytes.Buffer
		require.NoError(t, r.ReleasePages(&file, append(keeps, memory.StepScope, memory.Gradients)...))
		saved := file.Bytes()
		needed := pages.Left
		for pages.Left = 0; ; {
			had := pages.Left
			err := r.RestorePages(bytes.NewReader(saved))
			if had >= needed {
				require.NoError(t, err)
				break
			}
			require.ErrorIs(t, err, memory.ErrOutOfMemory)
			r.released(t, append(keeps, memory.Gradients)...)
			pages.Left = had + 1
		}
		r.same(t, keeps...)
	}
}

// paged is a model of an arena whose pages are released and restored: a map of buffers.
type paged struct {
	arena    *memory.Arena
	page     int64
	live     map[memory.Handle]*pagedBuffer
	order    []memory.Handle
	released [memory.NumScopes]bool
	saved    *bytes.Buffer // still to be read back; nil if nothing was written
}

type pagedBuffer struct {
	scope   memory.Scope
	content []byte // nil if unknown
}

func (p *paged) fill(t *rapid.T, h memory.Handle) {
	data, err := p.arena.Data(h)
	require.NoError(t, err)
	for i := range data {
		data[i] = byte(i) + byte(p.arena.Mark())
	}
	p.live[h].content = bytes.Clone(data)
}

func (p *paged) Alloc(t *rapid.T) {
	scope := memory.Scope(rapid.IntRange(0, memory.NumScopes-1).Draw(t, "scope"))
	size := rapid.Int64Range(1, 5*p.page).Draw(t, "bytes")
	var h memory.Handle
	var err error
	if scope == memory.StepScope {
		h, err = p.arena.Alloc(memory.Saved, size)
	} else {
		h, err = p.arena.AllocIn(scope, size)
	}
	if p.released[scope] {
		require.ErrorIs(t, err, memory.ErrReleased)
		return
	}
	if err != nil {
		require.ErrorIs(t, err, memory.ErrOutOfMemory)
		return
	}
	p.live[h] = &pagedBuffer{scope: scope}
	p.order = append(p.order, h)
	p.fill(t, h)
}

func (p *paged) Free(t *rapid.T) {
	if len(p.order) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.order)-1).Draw(t, "which")
	_, err := p.arena.Release(p.order[i])
	require.NoError(t, err)
	delete(p.live, p.order[i])
	p.order = append(p.order[:i], p.order[i+1:]...)
}

// Pages releases some scopes, or restores all.
func (p *paged) Pages(t *rapid.T) {
	if rapid.Bool().Draw(t, "restore") {
		p.restore(t)
		return
	}
	var scopes []memory.Scope
	var file bytes.Buffer
	for scope := range memory.Scope(memory.NumScopes) {
		if rapid.Bool().Draw(t, scope.String()) && (p.saved == nil || scope == memory.StepScope || scope == memory.Gradients) {
			scopes = append(scopes, scope)
		}
	}
	err := p.arena.ReleasePages(&file, scopes...)
	for _, b := range p.live {
		if b.scope == memory.StepScope {
			require.ErrorIs(t, err, memory.ErrLive)
			return
		}
	}
	require.NoError(t, err)
	for _, scope := range scopes {
		s := p.arena.Scope(scope)
		require.Zero(t, s.Live, scope)
		if !p.released[scope] && !invariants.Enabled { // poison touches the bytes in between
			require.LessOrEqual(t, s.Pages, int64(0), scope)
		}
		p.released[scope] = scope != memory.StepScope
	}
	if file.Len() > 0 {
		p.saved = &file
	}
	for _, b := range p.live {
		if b.scope == memory.Gradients && p.released[memory.Gradients] {
			b.content = nil
		}
	}
}

func (p *paged) restore(t *rapid.T) {
	if p.saved != nil {
		require.NoError(t, p.arena.RestorePages(p.saved))
	} else {
		require.NoError(t, p.arena.RestorePages(nil))
	}
	p.saved, p.released = nil, [memory.NumScopes]bool{}
	for _, h := range p.order {
		if p.live[h].content == nil {
			p.fill(t, h)
		}
	}
}

// Check runs after every action.
func (p *paged) Check(t *rapid.T) {
	require.NoError(t, p.arena.Check())
	var stats memory.Stats
	p.arena.Stats(&stats)
	var live int64
	for scope := range memory.Scope(memory.NumScopes) {
		live += p.arena.Scope(scope).Live
	}
	require.GreaterOrEqual(t, stats.Reserved, live)
	for h, b := range p.live {
		data, err := p.arena.Data(h)
		if p.released[b.scope] {
			require.ErrorIs(t, err, memory.ErrReleased)
			continue
		}
		require.NoError(t, err)
		require.True(t, bytes.Equal(b.content, data), "a buffer of %d bytes in %s", len(data), b.scope)
	}
}

// Random buffers keep their bytes through random releases of pages. The arena is small, so that
// scopes reuse the addresses of others.
func TestPagesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &paged{page: int64(os.Getpagesize()), live: map[memory.Handle]*pagedBuffer{}}
		p.arena = newArena(t, memory.ArenaConfig{Capacity: rapid.Int64Range(8, 40).Draw(t, "pages")*p.page - 128})
		defer p.arena.Close()
		t.Repeat(rapid.StateMachineActions(p))
		p.restore(t)
		p.Check(t)
		for len(p.order) > 0 {
			p.Free(t)
		}
		step := &memory.Layout{Height: 7 * p.page, Places: []int32{0}}
		require.NoError(t, p.arena.SetLayout(step))
		require.NoError(t, p.arena.Check())
	})
}

// A Resident buffer may occupy an address that steps have used. It keeps its pages, and counts as
// reserved, when the pages of steps are released.
func TestReleasePagesBesideResident(t *testing.T) {
	page := int64(os.Getpagesize())
	for _, scope := range []memory.Scope{memory.Weights, memory.Optimizer} {
		a := open(t, 10*page, 0)
		release(t, a, alloc(t, a, memory.Saved, 8*page))
		h := allocIn(t, a, scope, 7*page)
		data := bytesOf(t, a, h)
		data[0], data[7*page-1] = 1, 2
		require.NoError(t, a.ReleasePages(nil, memory.StepScope))
		require.Equal(t, []byte{1, 2}, []byte{data[0], data[7*page-1]})
		if !invariants.Enabled { // poison touches the bytes in between
			require.LessOrEqual(t, a.Scope(memory.StepScope).Pages, int64(0))
		}
		var stats memory.Stats
		a.Stats(&stats)
		require.GreaterOrEqual(t, stats.Reserved, 7*page)
		require.NoError(t, a.RestorePages(nil))
		release(t, a, h, alloc(t, a, memory.Saved, page))
		release(t, a, alloc(t, a, memory.Saved, 9*page))
		require.NoError(t, a.Check())
	}
}

// inPieces counts the pieces in which pages are populated and discarded.
type inPieces struct {
	memory.System
	populated, discarded int
}

func (p *inPieces) Populate(mem []byte) error { p.populated++; return p.System.Populate(mem) }
func (p *inPieces) Discard(mem []byte) error  { p.discarded++; return p.System.Discard(mem) }

// Adjacent pages of different scopes are discarded in the same pieces in which they are
// populated again, regardless of their scopes, to allow huge pages.
func TestReleasePagesJoinsNeighbours(t *testing.T) {
	pages := &inPieces{}
	r := newResident(t, pages)
	step(t, r.Arena)
	pages.populated = 0
	var file bytes.Buffer
	require.NoError(t, r.ReleasePages(&file, append([]memory.Scope{memory.StepScope, memory.Gradients}, keeps...)...))
	require.NoError(t, r.RestorePages(&file))
	require.Equal(t, pages.populated, pages.discarded)
	r.same(t, keeps...)
}

// A gap of one byte between weights without pages belongs to no scope until they are restored.
func TestReleasePagesKeepsSmallestGap(t *testing.T) {
	page := int64(os.Getpagesize())
	a := open(t, 3*page, 1)
	alloc(t, a, memory.Resident, 10)
	gap := alloc(t, a, memory.Resident, 1)
	alloc(t, a, memory.Resident, 3*page-11)
	release(t, a, gap)
	var file bytes.Buffer
	require.NoError(t, a.ReleasePages(&file, memory.Weights))
	_, err := a.Alloc(memory.Saved, 1)
	require.ErrorIs(t, err, memory.ErrOutOfMemory)
	require.NoError(t, a.RestorePages(&file))
	alloc(t, a, memory.Saved, 1)
	require.NoError(t, a.Check())
}
