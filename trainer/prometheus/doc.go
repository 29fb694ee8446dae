// Package prometheus is for those who watch their trainers by Prometheus: it gives it a run's
// memory, losses and times.
//
// It is a module of its own, so that nobody else carries client_golang. [Metrics] is a
// prometheus.Collector: its [Metrics.Microbatch] is a hook of the runner, and
// [Metrics.Step] takes the result of each step.
package prometheus
