// Package chrometrace writes Chrome trace events in JSON, which Perfetto (ui.perfetto.dev) and
// chrome://tracing open.
package chrometrace
