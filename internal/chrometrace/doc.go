// Package chrometrace is for writing Chrome trace events in JSON, which Perfetto
// (ui.perfetto.dev) and chrome://tracing open.
package chrometrace
