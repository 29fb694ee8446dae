package memory_test

import (
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/memory"
)

// allocIn allocates in a scope. For StepScope it uses class Saved.
func allocIn(t require.TestingT, a *memory.Arena, scope memory.Scope, bytes int64) memory.Handle {
	var h memory.Handle
	var err error
	if scope == memory.StepScope {
		h, err = a.Alloc(memory.Saved, bytes)
	} else {
		h, err = a.AllocIn(scope, bytes)
	}
	require.NoError(t, err)
	return h
}

func TestScopeNames(t *testing.T) {
	require.Equal(t, "step weights gradients optimizer metadata scope(?)",
		memory.StepScope.String()+" "+memory.Weights.String()+" "+memory.Gradients.String()+" "+
			memory.Optimizer.String()+" "+memory.Metadata.String()+" "+memory.Scope(5).String())
}

// Buffers of a scope never share a page with another scope, in any order of allocations, and an
// empty scope returns its pages to the others.
func TestScopesShareNoPages(t *testing.T) {
	page := int64(os.Getpagesize())
	rapid.Check(t, func(t *rapid.T) {
		a := newArena(t, memory.ArenaConfig{Capacity: 512 * page})
		defer a.Close()
		live := map[memory.Handle]memory.Scope{}
		var order []memory.Handle
		var bytes [memory.NumScopes]int64
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			if len(order) > 0 && rapid.IntRange(0, 2).Draw(t, "end") == 0 {
				i := rapid.IntRange(0, len(order)-1).Draw(t, "which")
				h := order[i]
				order = append(order[:i], order[i+1:]...)
				freed, err := a.Release(h)
				require.NoError(t, err)
				bytes[live[h]] -= freed
				delete(live, h)
			} else {
				scope := memory.Scope(rapid.IntRange(0, memory.NumScopes-1).Draw(t, "scope"))
				size := rapid.Int64Range(1, 2*page).Draw(t, "bytes")
				h := allocIn(t, a, scope, size)
				require.Equal(t, scope != memory.StepScope, a.Class(h) == memory.Resident)
				live[h], order = scope, append(order, h)
				bytes[scope] += size
			}
			require.NoError(t, a.Check())
			owners := map[int64]memory.Scope{}
			for h, scope := range live {
				at := pageOf(t, a, h)
				for p := at / page; p <= (at+a.Bytes(h)-1)/page; p++ {
					if owner, taken := owners[p]; taken {
						require.Equal(t, owner, scope, "page %d", p)
					}
					owners[p] = scope
				}
			}
			var reserved int64
			for scope := range memory.Scope(memory.NumScopes) {
				s := a.Scope(scope)
				require.Equal(t, bytes[scope], s.Live, scope)
				require.GreaterOrEqual(t, s.Reserved, s.Live, scope)
				require.Zero(t, s.Released)
				reserved += s.Reserved
			}
			var stats memory.Stats
			a.Stats(&stats)
			require.LessOrEqual(t, reserved, stats.Reserved)
		}
		for _, h := range order {
			_, err := a.Release(h)
			require.NoError(t, err)
		}
		for scope := memory.Gradients; int(scope) < memory.NumScopes; scope++ {
			require.Zero(t, a.Scope(scope).Reserved, scope)
		}
		h, err := a.Alloc(memory.Saved, 512*page-64)
		require.NoError(t, err)
		_, err = a.Release(h)
		require.NoError(t, err)
	})
}

// pageOf is address for any kind of test.
func pageOf(t require.TestingT, a *memory.Arena, h memory.Handle) int64 {
	data := bytesOf(t, a, h)
	return addressOf(data)
}

func TestAllocInRefuses(t *testing.T) {
	page := int64(os.Getpagesize())
	a := open(t, 64*page, 0)
	for _, scope := range []memory.Scope{memory.StepScope, memory.Scope(memory.NumScopes)} {
		_, err := a.AllocIn(scope, 10)
		require.ErrorContains(t, err, "want a resident scope")
	}
	for _, bytes := range []int64{0, -1} {
		_, err := a.AllocIn(memory.Gradients, bytes)
		require.ErrorContains(t, err, "the size must be positive")
	}
	for _, bytes := range []int64{64*page + 1, math.MaxInt64} {
		for _, scope := range []memory.Scope{memory.Weights, memory.Gradients, memory.Metadata} {
			_, err := a.AllocIn(scope, bytes)
			require.ErrorIs(t, err, memory.ErrOutOfMemory)
		}
	}
	_, err := a.Release(allocIn(t, a, memory.Weights, 64*page)) // an extent that exactly fits
	require.NoError(t, err)
	rest := allocIn(t, a, memory.StepScope, 63*page)
	table := allocIn(t, a, memory.Metadata, 100) // a page, because a slab does not fit
	_, err = a.AllocIn(memory.Optimizer, 100)
	require.ErrorIs(t, err, memory.ErrOutOfMemory)
	require.NoError(t, a.Check())
	release(t, a, rest, table)
	require.Equal(t, memory.ScopeStats{}, a.Scope(memory.Scope(memory.NumScopes)))
	require.NoError(t, a.Close())
	_, err = a.AllocIn(memory.Gradients, 10)
	require.ErrorIs(t, err, memory.ErrClosed)
	require.Equal(t, memory.ScopeStats{}, a.Scope(memory.Gradients))
}

// A cell of losses survives steps: layouts and Reclaim do not affect it.
func TestLossIsLasting(t *testing.T) {
	a := newArena(t, memory.ArenaConfig{Capacity: 1 << 20})
	layout := &memory.Layout{
		Height: 4096, Places: []int32{0, 1}, Levels: make([]memory.Level, 1), Allocations: []memory.Allocation{{Bytes: 64, Class: memory.Saved}},
	}
	h := alloc(t, a, memory.Loss, 1000)
	require.Equal(t, memory.Loss, a.Class(h))
	require.EqualValues(t, 1000, a.Scope(memory.Metadata).Live)
	require.Zero(t, a.Scope(memory.StepScope).Live)
	require.NoError(t, a.SetLayout(layout))
	a.SetPlace(0)
	saved := alloc(t, a, memory.Saved, 64)
	require.EqualValues(t, 64, a.Reclaim(0))
	require.Zero(t, a.Bytes(saved))
	require.EqualValues(t, 1000, a.Bytes(h))
	require.NoError(t, a.SetLayout(nil))
	release(t, a, h)
	require.NoError(t, a.Check())
	require.NoError(t, a.Close())
}
