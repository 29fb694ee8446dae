package caching_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory/cachingsim"
	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

var nodes = flag.Int64("nodes", 500, "how long the exact search for a layout may be")

var long = flag.Bool("long", false, "compare at full size, and print the table of docs/benchmarks.md with -v")

// compared is what one step takes on rank 0, in bytes.
type compared struct {
	live                 int64 // the most at once, as asked for: no allocator needs less
	weir                 int64 // the height of the layout
	native, expandable   int64 // reserved after one step
	native3, expandable3 int64 // and after three, with other lengths in each where they vary
	allocations          int
}

// training is one line of the comparison.
type training struct {
	schedule  string
	ranks     int
	precision precision
	recompute bool
	variable  bool
}

func (r training) String() string {
	yes := map[bool]string{true: "yes", false: "no"}
	lengths := map[bool]string{true: "variable", false: "fixed"}
	return fmt.Sprintf("%s, P = %d | %s | %s | %s", r.schedule, r.ranks, r.precision.name, yes[r.recompute], lengths[r.variable])
}

func trainings() []training {
	var list []training
	for _, s := range []training{{schedule: "depth-first", ranks: 1}, {schedule: "1f1b", ranks: 4}} {
		for _, s.precision = range []precision{float32s, mixed, fp8} {
			for _, s.recompute = range []bool{false, true} {
				for _, s.variable = range []bool{false, true} {
					list = append(list, s)
				}
			}
		}
	}
	return list
}

// TestBesideTheCachingAllocator plays the same steps on all three. What the layout takes
// is never more than what either allocator reserves.
func TestBesideTheCachingAllocator(t *testing.T) {
	base, microbatches, tokens := model{layers: 2, hidden: 512, ffn: 1792, heads: 8, words: 4000}, 8, int64(2048)
	if *long {
		base, microbatches, tokens = model{layers: 8, hidden: 4096, ffn: 14336, heads: 32, words: 32000}, 16, 8192
		t.Log("| schedule | sizes | recompute | lengths | allocations | live | Weir | native, 1 step | 3 steps | expandable, 1 step | 3 steps |")
	}
	list := trainings()
	all := make([]compared, len(list))
	for i, r := range list {
		base.precision, base.recompute = r.precision, r.recompute
		c := compare(t, r, base, microbatches, tokens)
		over := func(bytes int64) string { return fmt.Sprintf("+%.2f %%", 100*(float64(bytes)/float64(c.live)-1)) }
		t.Logf("| %v | %d | %.3f GiB | %s | %s | %s | %s | %s |", r, c.allocations, float64(c.live)/(1<<30),
			over(c.weir), over(c.native), over(c.native3), over(c.expandable), over(c.expandable3))
		all[i] = c
	}
	for i, c := range all {
		require.LessOrEqual(t, c.weir, c.native, "%v", list[i])
		require.LessOrEqual(t, c.weir, c.expandable, "%v", list[i])
	}
}

// compare plays three steps.
func compare(t *testing.T, r training, m model, microbatches int, tokens int64) compared {
	t.Helper()
	lengths := []int64{tokens}
	if r.variable { // packed batches are about half full at least
		lengths = nil
		for n := tokens; n >= tokens/2; n -= tokens / 16 {
			lengths = append(lengths, n)
		}
	}
	plan, templates := planned(t, r, microbatches), m.templates(r.ranks, lengths...)
	random := rand.New(rand.NewPCG(1, 2))
	native, expandable := cachingsim.New(cachingsim.Config{}), cachingsim.New(cachingsim.Config{Expandable: true})
	var c compared
	for step := range 3 {
		var shapes []int
		if r.variable {
			for range microbatches {
				shapes = append(shapes, random.IntN(len(lengths)))
			}
		}
		made := laidOut(t, plan, templates, shapes)
		events := events(made)
		for _, a := range []*cachingsim.Allocator{native, expandable} {
			live, err := a.Replay(events)
			require.NoError(t, err)
			require.Empty(t, live, "a step leaves nothing")
		}
		if step == 0 {
			c = compared{
				live: made.Ranks[0].Bound, weir: made.Ranks[0].Height, allocations: len(events) / 2,
				native: native.Stats().Reserved.Peak, expandable: expandable.Stats().Reserved.Peak,
			}
			require.Equal(t, c.live, native.Stats().Requested.Peak, "all see the same step")
		}
	}
	c.native3, c.expandable3 = native.Stats().Reserved.Peak, expandable.Stats().Reserved.Peak
	return c
}

// laidOut returns the memory of a plan, with the shape class of every microbatch where
// there are several.
func laidOut(t *testing.T, plan *schedule.Plan, templates *layout.Templates, shapes []int) *layout.Plan {
	t.Helper()
	made, err := layout.Make(t.Context(), plan, templates, layout.Config{Shapes: shapes, Search: placement.Options{Nodes: *nodes}})
	require.NoError(t, err)
	return made
}

// events returns the allocations and ends of rank 0.
func events(made *layout.Plan) []cachingsim.Event {
	var list []cachingsim.Event
	for change := range made.All(0) {
		e := cachingsim.Event{ID: change.Serial}
		if change.Alloc {
			e.Bytes = change.Bytes
		}
		list = append(list, e)
	}
	return list
}

// planned returns the plan of a training.
func planned(t *testing.T, r training, microbatches int) *schedule.Plan {
	t.Helper()
	s, err := schedule.Find(r.schedule)
	require.NoError(t, err)
	p, err := s.Place(r.ranks, r.ranks)
	require.NoError(t, err)
	plan, err := s.Rule(schedule.Params{Placement: p, Microbatches: microbatches})
	require.NoError(t, err)
	if r.ranks > 1 {
		plan, err = schedule.Comms(plan, 1)
		require.NoError(t, err)
	}
	plan, err = schedule.Lifetimes(plan, make([]schedule.Facts, r.ranks), 0)
	require.NoError(t, err)
	return plan
}
