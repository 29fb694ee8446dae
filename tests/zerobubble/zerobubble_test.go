// Package zerobubble compares the orders that weir finds with those of the zero-bubble authors' heuristic.
package zerobubble

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/choose"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

var (
	seed     = flag.Uint64("seed", 1, "seed of the random settings")
	settings = flag.Int("settings", 500, "number of random settings")
	source   = flag.String("v_schedule", "", "the heuristic's file; by default it is downloaded")
)

// setting describes a step for which weir and the heuristic search an order. The times are those of one of a
// rank's two stages.
type setting struct {
	Ranks        int   `json:"ranks"`
	Microbatches int   `json:"microbatches"`
	F            int64 `json:"f"`
	I            int64 `json:"i"`
	W            int64 `json:"w"`
	Latency      int64 `json:"latency"`
	Cap          int   `json:"cap"`
}

// draw returns a random setting. The heuristic fails if the cap is below the number of ranks.
func draw(r *rand.Rand) setting {
	ranks := 2 + r.IntN(7)
	times := int64(2 + r.IntN(60))
	s := setting{
		Ranks: ranks, Microbatches: ranks + r.IntN(3*ranks), Cap: ranks + r.IntN(ranks+1),
		F: 1 + r.Int64N(times), I: 1 + r.Int64N(times), W: 1 + r.Int64N(times),
	}
	if r.IntN(4) > 0 {
		s.Latency = r.Int64N(times/2 + 1)
	}
	return s
}

// request returns the setting for choose.
func (s *setting) request(clock choose.Clock) choose.Request {
	return choose.Request{
		Ranks: s.Ranks, Stages: 2 * s.Ranks, Microbatches: s.Microbatches, Memory: int64(2 * s.Cap), Clock: clock, Capacity: 1,
		Costs: &simulate.Costs{Latency: s.Latency, Stages: []simulate.StageCosts{{F: s.F, I: s.I, W: s.W, Saved: 1}}},
	}
}

// action is an action in the output of orders.py: the kind, the stage and the microbatch.
type action [3]any

// simulated returns the simulation of an order of the heuristic.
func (s *setting) simulated(t *testing.T, order [][]action) *simulate.Report {
	plan := &schedule.Plan{Name: "peer", Placement: schedule.Wave(s.Ranks, 2*s.Ranks), Microbatches: s.Microbatches}
	kinds := map[any]schedule.Kind{"F": schedule.F, "I": schedule.I, "W": schedule.W}
	for _, actions := range order {
		var body []schedule.Action
		for _, a := range actions {
			body = append(body, schedule.NewAction(kinds[a[0]], int(a[1].(float64)), int(a[2].(float64))))
		}
		plan.Programs = append(plan.Programs, []schedule.Segment{{Body: body, Repeat: 1}})
	}
	r := s.request(choose.Makespan)
	facts := make([]schedule.StageInfo, r.Stages)
	for stage := range facts {
		facts[stage].Split = true
	}
	plan, err := lower.Prepare(plan, lower.Passes{StageInfo: facts, Capacity: r.Capacity, NoLifetimes: true})
	require.NoError(t, err)
	report, err := simulate.Run(plan, r.Costs, r.Capacity)
	require.NoError(t, err)
	for _, rank := range report.Ranks {
		require.LessOrEqual(t, rank.Peak, r.Memory)
	}
	return report
}

// heuristic returns the file of the heuristic in ColossalAI 0.5.0, which it downloads unless -v_schedule
// names it.
func heuristic(t *testing.T) string {
	if *source != "" {
		return *source
	}
	folder := t.TempDir()
	for _, command := range [][]string{
		{"python3", "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "colossalai==0.5.0"},
		{"tar", "-xzf", "colossalai-0.5.0.tar.gz", "colossalai-0.5.0/colossalai/pipeline/schedule/v_schedule.py"},
	} {
		c := exec.Command(command[0], command[1:]...)
		c.Dir = folder
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return filepath.Join(folder, "colossalai-0.5.0", "colossalai", "pipeline", "schedule", "v_schedule.py")
}

// By both clocks, the plan that Choose returns is at least as fast as the best of the heuristic's four variants.
func TestNeverBehind(t *testing.T) {
	if !*testkit.Long && *source == "" {
		t.Skip("it downloads ColossalAI: run it with -long")
	}
	r := rand.New(rand.NewPCG(*seed, 0))
	var list []setting
	var input bytes.Buffer
	for range *settings {
		s := draw(r)
		list = append(list, s)
		require.NoError(t, json.NewEncoder(&input).Encode(s))
	}
	peer := exec.Command("python3", "orders.py", heuristic(t))
	peer.Stdin, peer.Stderr = &input, os.Stderr
	out, err := peer.Output()
	require.NoError(t, err)
	output := json.NewDecoder(bytes.NewReader(out))
	compared, behind, ahead := [2]int{}, [2]int{}, [2]int{}
	for _, s := range list {
		var orders [][][]action
		require.NoError(t, output.Decode(&orders))
		var best [2]int64
		for _, order := range orders {
			if order == nil {
				continue
			}
			report := s.simulated(t, order)
			for clock, time := range []int64{report.Makespan, report.Span} {
				if best[clock] == 0 || time < best[clock] {
					best[clock] = time
				}
			}
		}
		for clock, time := range best {
			if time == 0 {
				continue
			}
			compared[clock]++
			choice, err := choose.Choose(s.request(choose.Clock(clock)))
			require.NoError(t, err)
			own := []int64{choice.Best.Report.Makespan, choice.Best.Report.Span}[clock]
			if own < time {
				ahead[clock]++
			}
			if own > time {
				behind[clock]++
				t.Errorf("clock %d: %s takes %d, the heuristic %d: %+v", clock, choice.Best.Name(), own, time, s)
			}
		}
	}
	t.Logf("seed %d, makespan and span: compared %d, ahead in %d, behind in %d", *seed, compared, ahead, behind)
	require.Positive(t, compared[0])
}
