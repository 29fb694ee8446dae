package cachingsim_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory/cachingsim"
)

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
)

// The rules, one case each, with figures worked out by hand. A line is a request: "+" with a
// name and bytes, "-" with a name, or "empty" for EmptyCache. It is followed by the expected
// location, as segment and offset, and by the reserved bytes after it.
var rules = []struct {
	name   string
	config cachingsim.Config
	steps  []step
}{
	{"sizes are rounded up to 512, the least is 512", cachingsim.Config{}, []step{
		{"+", "a", 1, 0, 0, 2 * mib}, {"+", "b", 513, 0, 512, 2 * mib}, {"+", "c", 512, 0, 1536, 2 * mib},
	}},
	{"1 MiB is small, a byte more is large", cachingsim.Config{}, []step{
		{"+", "a", mib, 0, 0, 2 * mib}, {"+", "b", mib, 0, mib, 2 * mib}, {"+", "c", mib + 1, 1, 0, 22 * mib},
	}},
	{"the pool goes by the rounded size", cachingsim.Config{}, []step{
		{"+", "a", mib - 1, 0, 0, 2 * mib},
	}},
	{"below 10 MiB twenty are taken, from 10 MiB on a multiple of 2", cachingsim.Config{}, []step{
		{"+", "a", 10*mib - 512, 0, 0, 20 * mib}, {"+", "b", 10 * mib, 0, 10*mib - 512, 20 * mib},
		{"+", "c", 10 * mib, 1, 0, 30 * mib}, {"+", "d", 10*mib + 1, 2, 0, 42 * mib},
	}},
	{"the smallest block that fits, of equal ones the lowest", cachingsim.Config{}, []step{
		{"+", "a", 30 * mib, 0, 0, 30 * mib}, {"+", "b", 20 * mib, 1, 0, 50 * mib}, {"+", "c", 20 * mib, 2, 0, 70 * mib},
		{"-", "a", 0, 0, 0, 70 * mib}, {"-", "c", 0, 0, 0, 70 * mib}, {"-", "b", 0, 0, 0, 70 * mib},
		{"+", "d", 18 * mib, 1, 0, 70 * mib}, {"+", "e", 19 * mib, 2, 0, 70 * mib},
	}},
	{"a large remainder of 1 MiB stays with the block, a byte over it is split off", cachingsim.Config{}, []step{
		{"+", "a", 12 * mib, 0, 0, 12 * mib}, {"-", "a", 0, 0, 0, 12 * mib},
		{"+", "b", 11 * mib, 0, 0, 12 * mib}, {"-", "b", 0, 0, 0, 12 * mib},
		{"+", "c", 11*mib - 512, 0, 0, 12 * mib}, {"+", "d", mib + 512, 0, 11*mib - 512, 12 * mib},
	}},
	{"a small remainder of 512 is split off", cachingsim.Config{}, []step{
		{"+", "a", mib, 0, 0, 2 * mib}, {"+", "b", mib - 512, 0, mib, 2 * mib}, {"+", "c", 1, 0, 2*mib - 512, 2 * mib},
	}},
	{"neighbours merge on both sides", cachingsim.Config{}, []step{
		{"+", "a", 6 * mib, 0, 0, 20 * mib}, {"+", "b", 6 * mib, 0, 6 * mib, 20 * mib}, {"+", "c", 6 * mib, 0, 12 * mib, 20 * mib},
		{"-", "a", 0, 0, 0, 20 * mib}, {"-", "c", 0, 0, 0, 20 * mib}, {"-", "b", 0, 0, 0, 20 * mib},
		{"+", "d", 20 * mib, 0, 0, 20 * mib},
	}},
	{"one live byte keeps its segment", cachingsim.Config{}, []step{
		{"+", "a", 9 * mib, 0, 0, 20 * mib}, {"+", "b", 2 * mib, 0, 9 * mib, 20 * mib}, {"+", "c", 40 * mib, 1, 0, 60 * mib},
		{"-", "a", 0, 0, 0, 60 * mib}, {"-", "c", 0, 0, 0, 60 * mib}, {"empty", "", 0, 0, 0, 20 * mib},
		{"-", "b", 0, 0, 0, 20 * mib}, {"empty", "", 0, 0, 0, 0},
	}},
	{"a full device gives cached segments back and tries again", cachingsim.Config{Capacity: 64 * mib}, []step{
		{"+", "a", 40 * mib, 0, 0, 40 * mib}, {"-", "a", 0, 0, 0, 40 * mib}, {"+", "b", 50 * mib, 1, 0, 50 * mib},
		{"+", "c", 20 * mib, -1, 0, 50 * mib},
	}},
	{"blocks that are not split do not serve small or much smaller requests", cachingsim.Config{MaxSplit: 30 * mib}, []step{
		{"+", "a", 64 * mib, 0, 0, 64 * mib}, {"-", "a", 0, 0, 0, 64 * mib},
		{"+", "b", 20 * mib, 1, 0, 84 * mib},
		{"+", "c", 44 * mib, 2, 0, 128 * mib}, // 64 is 20 more than 44
		{"+", "d", 45 * mib, 0, 0, 128 * mib}, // whole, 19 MiB too large
		{"+", "e", 2 * mib, 3, 0, 148 * mib},
	}},
	{"a full device gives one block that is not split back, not all", cachingsim.Config{MaxSplit: 20 * mib, Capacity: 100 * mib}, []step{
		{"+", "a", 30 * mib, 0, 0, 30 * mib}, {"+", "b", 60 * mib, 1, 0, 90 * mib},
		{"-", "a", 0, 0, 0, 90 * mib}, {"-", "b", 0, 0, 0, 90 * mib},
		{"+", "c", 10 * mib, 2, 0, 100 * mib},
		{"+", "d", 22 * mib, 0, 0, 100 * mib}, // fits: 30 is less than 42
		{"+", "e", 30 * mib, 3, 0, 70 * mib},  // 60 is not less than 50: returned to the device
	}},
	{"a range grows by pages of 20 MiB, blocks are split to 512", cachingsim.Config{Expandable: true}, []step{
		{"+", "a", 25 * mib, 0, 0, 40 * mib}, {"+", "b", 14 * mib, 0, 25 * mib, 40 * mib}, {"+", "c", 2 * mib, 0, 39 * mib, 60 * mib},
		{"+", "d", mib, 1, 0, 62 * mib}, {"+", "e", mib + 512, 0, 41 * mib, 62 * mib},
	}},
	{"the free end of a segment is part of its growth", cachingsim.Config{Expandable: true}, []step{
		{"+", "a", 30 * mib, 0, 0, 40 * mib}, {"+", "b", 25 * mib, 0, 30 * mib, 60 * mib},
	}},
	{"a gap is taken before the end that can grow", cachingsim.Config{Expandable: true}, []step{
		{"+", "a", 12 * mib, 0, 0, 20 * mib}, {"+", "b", 4 * mib, 0, 12 * mib, 20 * mib},
		{"-", "a", 0, 0, 0, 20 * mib}, // 12 are free at the start; the end has 4 free and can grow
		{"+", "c", 3 * mib, 0, 0, 20 * mib},
	}},
	{"pages that are free as a whole are unmapped, and mapped again first", cachingsim.Config{Expandable: true}, []step{
		{"+", "a", 50 * mib, 0, 0, 60 * mib}, {"+", "b", 5 * mib, 0, 50 * mib, 60 * mib},
		{"-", "a", 0, 0, 0, 60 * mib}, {"empty", "", 0, 0, 0, 20 * mib}, // 50 are free, with pages 0 and 1
		{"+", "c", 45 * mib, 0, 0, 60 * mib}, // two pages, and 5 of the remaining 10 free
		{"-", "c", 0, 0, 0, 60 * mib}, {"-", "b", 0, 0, 0, 60 * mib}, {"empty", "", 0, 0, 0, 0},
	}},
}

// step is a request with its expected result.
type step struct {
	do       string
	name     string
	bytes    int64
	segment  int // in order of their first appearance; -1 if there is no memory
	offset   int64
	reserved int64
}

func TestRules(t *testing.T) {
	for _, rule := range rules {
		t.Run(strings.ReplaceAll(rule.name, " ", "_"), func(t *testing.T) {
			var places []int64
			config := rule.config
			config.Place = func(int64) int64 {
				places = append(places, int64(len(places)+1)<<40)
				return places[len(places)-1]
			}
			a := cachingsim.New(config)
			live := map[string]int64{}
			for i, s := range rule.steps {
				switch s.do {
				case "+":
					address, err := a.Malloc(cachingsim.Request{Bytes: s.bytes})
					if s.segment < 0 {
						require.ErrorIs(t, err, cachingsim.ErrOutOfMemory, "step %d", i)
						break
					}
					require.NoError(t, err, "step %d", i)
					require.Greater(t, len(places), s.segment, "step %d", i)
					require.Equal(t, s.offset, address-places[s.segment], "step %d, %s", i, s.name)
					live[s.name] = address
				case "-":
					require.NoError(t, a.Free(live[s.name]), "step %d", i)
				case "empty":
					a.EmptyCache()
				}
				require.NoError(t, a.Check(), "step %d", i)
				require.Equal(t, s.reserved, a.Stats().Reserved.Current, "reserved after step %d", i)
			}
		})
	}
}

func TestStreamsDoNotShare(t *testing.T) {
	a := cachingsim.New(cachingsim.Config{})
	first, err := a.Malloc(cachingsim.Request{Bytes: 30 * mib, Stream: 1})
	require.NoError(t, err)
	require.NoError(t, a.Free(first))
	_, err = a.Malloc(cachingsim.Request{Bytes: 30 * mib, Stream: 2})
	require.NoError(t, err)
	require.Equal(t, 60*mib, a.Stats().Reserved.Current)
}

func TestStatistics(t *testing.T) {
	a := cachingsim.New(cachingsim.Config{})
	one, err := a.Malloc(cachingsim.Request{Bytes: 700})
	require.NoError(t, err)
	two, err := a.Malloc(cachingsim.Request{Bytes: 11 * mib})
	require.NoError(t, err)
	require.NoError(t, a.Retire(two))
	require.NoError(t, a.Free(one))
	require.Equal(t, cachingsim.Stats{
		Requested: cachingsim.Stat{Current: 11 * mib, Peak: 11*mib + 700},
		Allocated: cachingsim.Stat{Peak: 12*mib + kib}, // 1 MiB of the segment is not split off
		Active:    cachingsim.Stat{Current: 12 * mib, Peak: 12*mib + kib},
		Reserved:  cachingsim.Stat{Current: 14 * mib, Peak: 14 * mib},
		Segments:  2,
	}, a.Stats())
	require.NoError(t, a.Complete(two))
	require.NoError(t, a.Check())

	require.ErrorIs(t, a.Free(one), cachingsim.ErrUnknown)
	require.ErrorIs(t, a.Complete(two), cachingsim.ErrUnknown)
	_, err = a.Malloc(cachingsim.Request{})
	require.Error(t, err)
	_, err = a.Malloc(cachingsim.Request{Bytes: 1 << 62})
	require.Error(t, err)
}

func TestReplay(t *testing.T) {
	a := cachingsim.New(cachingsim.Config{})
	live, err := a.Replay([]cachingsim.AllocEvent{{ID: 7, Bytes: 100}, {ID: 8, Bytes: 100}, {ID: 7}})
	require.NoError(t, err)
	require.Len(t, live, 1)
	_, err = a.Replay([]cachingsim.AllocEvent{{ID: 7}})
	require.ErrorIs(t, err, cachingsim.ErrUnknown)
	_, err = a.Replay([]cachingsim.AllocEvent{{ID: 7, Bytes: 1}, {ID: 7, Bytes: 1}})
	require.ErrorContains(t, err, "event 1: cachingsim: buffer 7 is allocated already")
}
