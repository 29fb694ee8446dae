// Package prometheus exports a run's memory, losses and times to Prometheus.
//
// It is a separate module, so that other users do not depend on client_golang. [Metrics] is a
// prometheus.Collector: its [Metrics.Microbatch] is a hook of the runner, and
// [Metrics.Step] takes the result of each step.
package prometheus
