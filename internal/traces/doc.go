// Package traces is for reading what a profiler recorded of a training run: which action of the
// pipeline ran when on every rank.
//
// [Read] takes Chrome traces in JSON, as torch.profiler (Kineto) and Weir write them, and spans of
// OpenTelemetry as Megatron-LM has them, from OTLP's JSON or Python's console exporter. Files may
// be compressed. They are read as a stream: everything but the actions is skipped, so memory
// grows with the actions alone.
//
// A span is an action if its name says so: "PP:2F7" (PyTorch's annotations), "2F7", "(2F7;3B1)OVERLAP_F_B"
// (two actions at once), "F stage 2 mb 7", "Forward 7" or "Backward 7" (of a stage that the
// trace does not name). A file with annotations on the device has those of the host ignored,
// because the host runs ahead of the device.
//
// Files may come from strangers: the size of every value that is held is bounded.
package traces
