package prometheus

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
)

// Metrics holds the numbers of one run. Several goroutines may call its methods concurrently.
type Metrics struct {
	ranks    []rankGauges
	rank     func(number int) rankGauges
	vectors  []prometheus.Collector
	loss     *prometheus.GaugeVec
	steps    *prometheus.CounterVec
	gradient prometheus.Gauge
	seconds  prometheus.Histogram
	wait     *prometheus.CounterVec
}

// rankGauges has the gauges of one rank, so that a microbatch needs no lookup.
type rankGauges struct {
	microbatches         prometheus.Counter
	live, peak, reserved prometheus.Gauge
	excess               prometheus.Gauge
}

// New returns the metrics of a run with the given number of ranks; register them with your
// registry. Other ranks may be added later.
func New(ranks int) *Metrics {
	m := &Metrics{}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return keep(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "weir", Name: name, Help: help}, []string{"rank"}))
	}
	counter := func(name, help, label string) *prometheus.CounterVec {
		return keep(m, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "weir", Name: name, Help: help}, []string{label}))
	}
	microbatches := counter("microbatches_total", "Microbatches that were trained on.", "rank")
	live := gauge("live_bytes", "Bytes that are live after a microbatch's last action.")
	peak := gauge("peak_bytes", "Most bytes that were live since the microbatch before.")
	reserved := gauge("reserved_bytes", "Bytes that the allocator holds.")
	excess := gauge("excess_bytes", "Bytes that the allocator's book has more than the step's: 0 unless something leaks.")
	m.steps = counter("steps_total", "Steps by their outcome.", "outcome")
	m.wait = counter("wait_seconds_total", "Seconds that a rank waited for others.", "rank")
	m.loss = keep(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "weir", Name: "loss", Help: "Losses of the last step, each the mean by its weights."}, []string{"name"}))
	m.gradient = keep(m, prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "weir", Name: "gradient_norm", Help: "Norm of the gradient of the last step."}))
	m.seconds = keep(m, prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "weir", Name: "step_seconds", Help: "How long steps took.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 16),
	}))
	m.rank = func(number int) rankGauges {
		n := strconv.Itoa(number)
		return rankGauges{
			microbatches.WithLabelValues(n), live.WithLabelValues(n), peak.WithLabelValues(n), reserved.WithLabelValues(n), excess.WithLabelValues(n),
		}
	}
	for i := range ranks {
		m.ranks = append(m.ranks, m.rank(i))
		m.wait.WithLabelValues(strconv.Itoa(i))
	}
	for outcome := range loss.OutOfRange + 1 {
		m.steps.WithLabelValues(outcome.String())
	}
	return m
}

func keep[C prometheus.Collector](m *Metrics, c C) C {
	m.vectors = append(m.vectors, c)
	return c
}

// Microbatch is for runner.Hooks.Microbatch. It does not allocate for the ranks passed to New.
func (m *Metrics) Microbatch(s *memory.Sample) {
	var r rankGauges
	if s.Rank >= 0 && s.Rank < len(m.ranks) {
		r = m.ranks[s.Rank]
	} else {
		r = m.rank(s.Rank)
	}
	r.microbatches.Inc()
	r.live.Set(float64(s.Live))
	r.peak.Set(float64(s.Peak))
	r.reserved.Set(float64(s.Reserved))
	r.excess.Set(float64(s.Excess))
}

// Step adds the result of a step, and the time that it took, including the update. It ignores a nil result,
// which a failed step has.
func (m *Metrics) Step(result *runner.Result, took time.Duration) {
	if result == nil {
		return
	}
	m.steps.WithLabelValues(result.Outcome.String()).Inc()
	m.seconds.Observe(took.Seconds())
	for i := range result.Losses {
		if l := &result.Losses[i]; l.Present {
			m.loss.WithLabelValues(strings.ToValidUTF8(l.Name, "\uFFFD")).Set(l.Value) // Prometheus requires valid UTF-8
		}
	}
	m.gradient.Set(result.GradNorm)
	for i := range result.Ranks {
		m.wait.WithLabelValues(strconv.Itoa(i)).Add(max(result.Ranks[i].Wait, 0).Seconds()) // a counter must not decrease
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, v := range m.vectors {
		v.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, v := range m.vectors {
		v.Collect(to)
	}
}
