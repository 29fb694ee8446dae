// Package traces reads profiles of training runs: the times at which each rank ran the actions of
// a pipeline.
//
// [Read] reads Chrome traces in JSON, as torch.profiler (Kineto) and Weir write them, and Megatron-LM's
// OpenTelemetry spans, as OTLP JSON or as Python's console exporter writes them. Files may be
// compressed. Each is read as a stream and only its actions are kept, so memory grows only with the
// number of actions.
//
// A span is an action if it has one of these names: "PP:2F7" (PyTorch's annotations), "2F7",
// "(2F7;3B1)OVERLAP_F_B" (two joined actions), "F stage 2 mb 7", "Forward 7" or "Backward 7" (of a stage that
// the trace does not name). If a file has annotations on the device, those on the host are ignored, because the
// host runs ahead of the device.
//
// Files may be hostile: the size of every value that is held is bounded.
package traces
