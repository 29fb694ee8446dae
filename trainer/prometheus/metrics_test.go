package prometheus_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/trainer/prometheus"
)

func Example() {
	m := prometheus.New(1)
	registry := client.NewRegistry()
	registry.MustRegister(m)                        // promhttp.HandlerFor(registry, ...) serves it
	hooks := runner.Hooks{Microbatch: m.Microbatch} // of the runner's configuration
	hooks.Microbatch(&memory.Sample{Live: 4096})
	families, err := registry.Gather()
	fmt.Println(err)
	for _, f := range families {
		if f.GetName() == "weir_live_bytes" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output:
	// <nil>
	// weir_live_bytes 4096
}

func TestMetrics(t *testing.T) {
	m := prometheus.New(2)
	for i := range int64(3) {
		m.Microbatch(&memory.Sample{Rank: 1, Live: 10 + i, Peak: 20, Reserved: 64, Excess: i})
	}
	m.Step(&runner.Result{
		Losses:   []loss.Value{{Name: "error", Value: 0.5, Present: true}, {Name: "absent"}},
		GradNorm: 3, Ranks: []runner.RankResult{{Wait: time.Second}, {Wait: 250 * time.Millisecond}},
	}, 30*time.Millisecond)
	m.Step(&runner.Result{Outcome: loss.Skipped, Ranks: []runner.RankResult{{}, {Wait: time.Second}}}, time.Second)
	require.NoError(t, testutil.CollectAndCompare(m, strings.NewReader(`
# HELP weir_excess_bytes Bytes that the allocator's book has more than the step's: 0 unless something leaks.
# TYPE weir_excess_bytes gauge
weir_excess_bytes{rank="0"} 0
weir_excess_bytes{rank="1"} 2
# HELP weir_live_bytes Bytes that are live after a microbatch's last action.
# TYPE weir_live_bytes gauge
weir_live_bytes{rank="0"} 0
weir_live_bytes{rank="1"} 12
# HELP weir_loss Losses of the last step, each the mean by its weights.
# TYPE weir_loss gauge
weir_loss{name="error"} 0.5
# HELP weir_microbatches_total Microbatches that were trained on.
# TYPE weir_microbatches_total counter
weir_microbatches_total{rank="0"} 0
weir_microbatches_total{rank="1"} 3
# HELP weir_steps_total Steps by their outcome.
# TYPE weir_steps_total counter
weir_steps_total{outcome="empty"} 0
weir_steps_total{outcome="out-of-range"} 0
weir_steps_total{outcome="skipped"} 1
weir_steps_total{outcome="stepped"} 1
# HELP weir_wait_seconds_total Seconds that a rank waited for others.
# TYPE weir_wait_seconds_total counter
weir_wait_seconds_total{rank="0"} 1
weir_wait_seconds_total{rank="1"} 1.25
`), "weir_excess_bytes", "weir_live_bytes", "weir_loss", "weir_microbatches_total", "weir_steps_total", "weir_wait_seconds_total"))
	problems, err := testutil.CollectAndLint(m)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// No result can cause a panic.
func TestNothingPanics(t *testing.T) {
	m := prometheus.New(1)
	m.Microbatch(&memory.Sample{Rank: 3, Live: 5})
	m.Microbatch(&memory.Sample{Rank: -1, Live: 7})
	m.Step(nil, time.Second)
	m.Step(&runner.Result{
		Outcome: loss.Outcome(9), GradNorm: math.NaN(), Losses: []loss.Value{{Name: "a\xffb", Value: math.Inf(1), Present: true}},
		Ranks: []runner.RankResult{{Wait: -time.Second}, {}, {Wait: time.Second}},
	}, -time.Second)
	require.NoError(t, testutil.CollectAndCompare(m, strings.NewReader(`
# HELP weir_live_bytes Bytes that are live after a microbatch's last action.
# TYPE weir_live_bytes gauge
weir_live_bytes{rank="-1"} 7
weir_live_bytes{rank="0"} 0
weir_live_bytes{rank="3"} 5
# HELP weir_loss Losses of the last step, each the mean by its weights.
# TYPE weir_loss gauge
weir_loss{name="a�b"} +Inf
# HELP weir_wait_seconds_total Seconds that a rank waited for others.
# TYPE weir_wait_seconds_total counter
weir_wait_seconds_total{rank="0"} 0
weir_wait_seconds_total{rank="1"} 0
weir_wait_seconds_total{rank="2"} 1
`), "weir_live_bytes", "weir_loss", "weir_wait_seconds_total"))
}

func TestAMicrobatchAllocatesNothing(t *testing.T) {
	m := prometheus.New(1)
	require.Zero(t, testing.AllocsPerRun(100, func() { m.Microbatch(&memory.Sample{Live: 1}) }))
}
