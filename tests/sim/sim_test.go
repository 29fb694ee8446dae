package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

var (
	seed     = plantest.SeedFlag // the first one of TestSeeds; 0 is the time
	lasting  = flag.Duration("for", 0, "how long TestSeeds goes on; 0 is 300 seeds")
	state    = flag.String("state", "", "a file in which TestSeeds stores its progress, and from which it resumes")
	longs    = flag.Bool("replicas", false, "TestSeeds draws only replicas of short pipelines, with long steps")
	scenario = flag.String("scenario", "", "the scenario that TestScenario runs, as JSON")
)

// progress is the content of the state file.
type progress struct {
	Next    uint64 // seed
	Seconds float64
	Tally   tally
}

func (p *progress) save(t *testing.T, began time.Time, before float64) {
	p.Seconds = before + time.Since(began).Seconds()
	text, err := json.Marshal(p)
	require.NoError(t, err)
	t.Logf("%s", text)
	if *state != "" {
		require.NoError(t, os.WriteFile(*state+".new", text, 0o666))
		require.NoError(t, os.Rename(*state+".new", *state))
	}
}

// TestSeeds runs the scenarios of consecutive seeds.
func TestSeeds(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one rank runs at a time, so that one processor is enough
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	began := time.Now()
	p := progress{Next: *seed}
	if p.Next == 0 {
		p.Next = uint64(began.UnixNano())
	}
	if text, err := os.ReadFile(*state); err == nil {
		require.NoError(t, json.Unmarshal(text, &p))
	} else if *state != "" {
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	before := p.Seconds
	t.Logf("the first seed is %d", p.Next)
	saved := began
	for n := 1; *lasting == 0 && n <= 300 || time.Since(began) < *lasting; n++ {
		s := draw(p.Next)
		if *longs {
			s.lengthen()
		}
		if _, err := Run(t, s, &p.Tally); err != nil {
			report(t, s, err)
			break
		}
		if p.Next++; time.Since(saved) > time.Minute {
			p.save(t, began, before)
			saved = time.Now()
		}
	}
	p.save(t, began, before)
	t.Logf("%.0f microbatches a second", float64(p.Tally.Microbatches)/p.Seconds)
	if !*longs {
		p.Tally.Marks.report(t, seedMarks, p.Tally.Runs)
	}
}

// report reports a violation and the smallest scenario that shows a violation.
func report(t *testing.T, s Scenario, err error) {
	t.Helper()
	t.Errorf("seed %d: %v\n%s", s.Seed, err, command(s))
	var turns int64
	least := shrink(s, func(c Scenario) bool {
		var sum tally
		_, found := Run(t, c, &sum)
		if found != nil {
			err, turns = found, sum.Turns
		}
		return found != nil
	})
	t.Errorf("smaller, in %d turns: %v\n%s", turns, err, command(least))
}

func command(s Scenario) string {
	text, _ := json.Marshal(s)
	return fmt.Sprintf("go test ./tests/sim -run TestScenario -scenario '%s'", text)
}

// TestScenario runs the scenario given by its flag.
func TestScenario(t *testing.T) {
	if *scenario == "" {
		t.Skip("there is no -scenario")
	}
	var s Scenario
	require.NoError(t, json.Unmarshal([]byte(*scenario), &s))
	trace, err := Run(t, s, new(tally))
	t.Logf("the trace is %016x", trace)
	require.NoError(t, err)
}

// TestReplay runs scenarios repeatedly, on one processor and on several. The turns must be the same
// every time.
func TestReplay(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	runs := 15
	if *testkit.Long {
		runs = 100
	}
	for first := range uint64(10) {
		var want uint64
		for n := range runs {
			runtime.GOMAXPROCS([]int{1, 2, 8}[n%3])
			trace, err := Run(t, draw(first), new(tally))
			require.NoError(t, err)
			if n == 0 {
				want = trace
			}
			require.Equal(t, want, trace, "seed %d, run %d", first, n)
		}
	}
}

// TestShrink shrinks a scenario to the part that fails.
func TestShrink(t *testing.T) {
	s := draw(4)
	s.Ranks, s.Stages, s.Faults = 4, 8, []Fault{{1, 2, slow}, {2, 3, hangs}, {3, 4, exits}}
	least := shrink(s, func(c Scenario) bool {
		for _, f := range c.Faults {
			if f.Kind == hangs && c.Ranks > 1 && c.Microbatches > 2 {
				return true
			}
		}
		return false
	})
	require.Equal(t, Scenario{Seed: s.Seed, Ranks: 2, Stages: 2, Schedule: "gpipe", Microbatches: 3, Capacity: s.Capacity, Whole: true, Faults: []Fault{{0, 3, hangs}}}, least)
}
