package schedule_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

// listed returns the actions of a program, one after the other.
func listed(program []schedule.Segment) []schedule.Action {
	p := &schedule.Plan{Programs: [][]schedule.Segment{program}}
	return slices.Collect(p.All(0))
}

// built returns the program that a Builder makes of a list.
func built(list []schedule.Action) []schedule.Segment {
	var b schedule.Builder
	for _, a := range list {
		b.Append(a)
	}
	return b.Program()
}

// lines returns the segments of a program in the text form.
func lines(t *testing.T, program []schedule.Segment) []string {
	p := &schedule.Plan{Placement: schedule.Looped(1, 1), Programs: [][]schedule.Segment{program}}
	_, text, _ := strings.Cut(plantest.Text(t, p), "rank 0:\n")
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

func TestBuilder(t *testing.T) {
	const f, b, i, w = schedule.F, schedule.B, schedule.I, schedule.W
	var list []schedule.Action
	add := func(kind schedule.Kind, stage, mb int) { list = append(list, schedule.NewAction(kind, stage, mb)) }
	for _, test := range []struct {
		name string
		make func()
		want []string
	}{
		{"nothing", func() {}, []string{""}},
		{"short", func() { add(f, 0, 0); add(f, 0, 1); add(b, 0, 0); add(b, 0, 1) }, []string{"x 1 +0: 0F0 0F1 0B0 0B1"}},
		{"one kind", func() {
			for m := range 100 {
				add(f, 0, m)
			}
		}, []string{"x 100 +1: 0F0"}},
		{"descending", func() {
			for m := range 100 {
				add(f, 0, m)
			}
			for m := range 100 {
				add(b, 0, 99-m)
			}
		}, []string{"x 100 +1: 0F0", "x 100 -1: 0B99"}},
		{"1F1B", func() {
			for m := range 1_000 {
				add(f, 3, m)
				if m >= 3 {
					add(b, 3, m-3)
				}
			}
			for m := 997; m < 1_000; m++ {
				add(b, 3, m)
			}
		}, []string{"x 1 +0: 3F0 3F1 3F2", "x 997 +1: 3F3 3B0", "x 1 +0: 3B997 3B998 3B999"}},
		{"a period in the last third", func() {
			for m := range 50 {
				add(f, m*m%7, m*m%11)
			}
			for m := range 20 {
				add(i, 0, 3*m)
				add(w, 1, 3*m+1)
				add(w, 0, 3*m+2)
			}
		}, nil},
		{"joined pairs stay together", func() {
			add(f, 0, 0)
			for m := range 50 {
				list = append(list, schedule.NewAction(f, 0, m+1).WithJoin(true))
				add(b, 0, m)
			}
			add(f, 0, 51)
		}, []string{"x 1 +0: 0F0", "x 50 +1: 0F1& 0B0", "x 1 +0: 0F51"}},
		{"joined pairs, one out of step", func() {
			add(b, 0, 0)
			for m := range 50 {
				list = append(list, schedule.NewAction(f, 0, m).WithJoin(true))
				add(b, 0, m+1)
			}
		}, []string{"x 1 +0: 0B0", "x 50 +1: 0F0& 0B1"}},
		{"two runs, the same but for a step back", func() {
			for range 2 {
				for m := range 500 {
					add(b, 0, m)
				}
			}
			add(f, 0, 0)
		}, []string{"x 500 +1: 0B0", "x 500 +1: 0B0", "x 1 +0: 0F0"}},
		{"drops differ", func() {
			for m := range 100 {
				list = append(list, schedule.NewAction(f, 0, m).WithDrop(schedule.Drop(m/50)))
			}
		}, []string{"x 50 +1: 0F0", "x 50 +1: 0F50~p"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			list = nil
			test.make()
			require.Equal(t, list, listed(built(list)))
			if test.want != nil {
				require.Equal(t, test.want, lines(t, built(list)))
			}
		})
	}
}

// TestBuilderKeepsTheList builds programs from lists of random pieces and repetitions. The programs must have the same
// actions, and the builder must find a period that repeats often enough.
func TestBuilderKeepsTheList(t *testing.T) {
	action := rapid.Custom(func(t *rapid.T) schedule.Action {
		return schedule.NewAction(schedule.Kind(rapid.IntRange(1, 2).Draw(t, "kind")), rapid.IntRange(0, 1).Draw(t, "stage"),
			rapid.IntRange(0, 3).Draw(t, "mb")).WithJoin(rapid.IntRange(0, 9).Draw(t, "join") == 0)
	})
	rapid.Check(t, func(t *rapid.T) {
		var list []schedule.Action
		most := 0 // the maximum number of actions in all bodies
		for range rapid.IntRange(0, 5).Draw(t, "pieces") {
			body := rapid.SliceOfN(action, 0, 6).Draw(t, "body")
			repeat := rapid.SampledFrom([]int{1, 2, 3, 40, 500}).Draw(t, "repeat")
			stride := rapid.IntRange(1, 2).Draw(t, "stride")
			for r := range repeat {
				for _, a := range body {
					list = append(list, a.Shift(r*stride))
				}
			}
			most += 100 + 8*len(body)
		}
		for i := range list { // a joined action must be followed by one that is not joined
			list[i] = list[i].WithJoin(list[i].Joined() && i+1 < len(list) && (i == 0 || !list[i-1].Joined()))
		}
		before := slices.Clone(list)
		program := built(list)
		require.Equal(t, before, list)
		require.Equal(t, slices.Clip(list), listed(program))
		for _, s := range program {
			require.False(t, s.Body[len(s.Body)-1].Joined())
		}
		written := 0
		for _, s := range program {
			written += len(s.Body)
		}
		require.LessOrEqual(t, written, most)
	})
}

// TestBuilderRepeats repeats random numbers of the last actions, and requires the same list as if the
// repeats were written out.
func TestBuilderRepeats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b schedule.Builder
		var list []schedule.Action
		next := 0
		for range rapid.IntRange(1, 8).Draw(t, "pieces") {
			since := len(list)
			body := rapid.IntRange(1, 5).Draw(t, "body")
			for i := range body * rapid.IntRange(0, 40).Draw(t, "microbatches") {
				a := schedule.NewAction(schedule.Kind(1+i%body), 0, next+i/body)
				b.Append(a)
				list = append(list, a)
			}
			if rapid.Bool().Draw(t, "from before") {
				since = rapid.IntRange(0, len(list)).Draw(t, "since")
			}
			n, stride := rapid.IntRange(0, 30).Draw(t, "n"), rapid.IntRange(0, 40).Draw(t, "stride")
			n = min(n, 10_000/(len(list)+1)) // otherwise the list grows too long
			b.Repeat(int64(since), n, stride)
			last := list[since:]
			for i := 1; i <= n; i++ {
				for _, a := range last {
					list = append(list, a.Shift(i*stride))
				}
			}
			for i := range len(last) * rapid.IntRange(0, 5).Draw(t, "halves behind it") / 2 { // they continue the repeats
				a := last[i%len(last)].Shift((n + 1 + i/len(last)) * stride)
				b.Append(a)
				list = append(list, a)
			}
			require.Equal(t, int64(len(list)), b.Len())
			if n := len(list); n > 0 {
				next = list[n-1].Microbatch() + rapid.IntRange(0, 1).Draw(t, "on")
			}
		}
		require.Equal(t, list, listed(b.Program()))
	})
}

// TestBuilderContinuesLoops writes a loop of loops and two and a half of its repeats after it.
func TestBuilderContinuesLoops(t *testing.T) {
	var b schedule.Builder
	group := func(mb, actions int) {
		for i := range actions {
			b.Append(schedule.NewAction(schedule.F, i/100, mb+i%100))
		}
	}
	group(0, 200)
	b.Repeat(0, 5, 100)
	group(600, 200)
	group(700, 200)
	group(800, 100)
	b.Append(schedule.NewAction(schedule.B, 0, 0))
	require.EqualValues(t, 8*200+101, b.Len())
	require.Equal(t, []string{"x 8 +100: (", "x 100 +1: 0F0", "x 100 +1: 1F0", ")", "x 100 +1: 0F800", "x 1 +0: 0B0"}, lines(t, b.Program()))
}

// TestBuilderSegments writes two segments, which become one if the second continues the first.
func TestBuilderSegments(t *testing.T) {
	f := func(repeat, stride int, mbs ...int) (s schedule.Segment) {
		for _, mb := range mbs {
			s.Body = append(s.Body, schedule.NewAction(schedule.F, 0, mb))
		}
		s.Repeat, s.Stride = repeat, stride
		return s
	}
	for _, test := range []struct {
		name        string
		first, next schedule.Segment
		want        []string
	}{
		{"once and often", f(1, 0, 0, 1), f(5, 2, 2, 3), []string{"x 6 +2: 0F0 0F1"}},
		{"more and often", f(1, 0, 7, 0, 1), f(5, 2, 2, 3), []string{"x 1 +0: 0F7", "x 6 +2: 0F0 0F1"}},
		{"often and once", f(3, 2, 0, 1), f(1, 0, 6, 7), []string{"x 4 +2: 0F0 0F1"}},
		{"often and often", f(3, -1, 9), f(6, -1, 6), []string{"x 9 -1: 0F9"}},
		{"another stride", f(3, 1, 0), f(2, 2, 4), []string{"x 3 +1: 0F0", "x 2 +2: 0F4"}},
		{"another stride behind one", f(1, 0, 0), f(2, 2, 3), []string{"x 1 +0: 0F0", "x 2 +2: 0F3"}},
		{"a gap", f(3, 1, 0), f(2, 1, 4), []string{"x 3 +1: 0F0", "x 2 +1: 0F4"}},
		{"another length", f(3, 1, 0), f(1, 0, 4, 5), []string{"x 3 +1: 0F0", "x 1 +0: 0F4 0F5"}},
		{"another order", f(1, 0, 0, 1), f(1, 0, 3, 2), []string{"x 1 +0: 0F0 0F1 0F3 0F2"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var b schedule.Builder
			b.Segment(test.first)
			b.Segment(test.next)
			require.Equal(t, test.want, lines(t, b.Program()))
		})
	}
}
