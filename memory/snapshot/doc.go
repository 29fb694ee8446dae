// Package snapshot reads and writes PyTorch's memory snapshots: the pickle that
// torch.cuda.memory._dump_snapshot writes and that pytorch.org/memory_viz opens.
//
// A [Snapshot] has two parts: the segments of every device at the end, and a trace of the preceding
// events. [Write] writes a file that the viewer and torch.cuda._memory_viz can read; it uses only opcodes
// that the viewer supports. [Read] reads files written by PyTorch and by this package. It builds only
// numbers, strings, lists, tuples and dicts: it rejects a pickle that would call a function, and its
// limits bound the memory that any file can use.
//
// The schema is defined in torch/csrc/cuda/memory_snapshot.cpp of PyTorch 2.1 and later.
package snapshot
