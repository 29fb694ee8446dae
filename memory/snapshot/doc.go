// Package snapshot is for the memory snapshots of PyTorch: it reads and writes the pickle that
// torch.cuda.memory._dump_snapshot makes and that pytorch.org/memory_viz opens.
//
// A [Snapshot] has two halves: the segments of every device as they are in the end,
// and the trace of what led there. [Write] makes a file of them that the viewer and
// torch.cuda._memory_viz read; it uses no opcode that the viewer lacks. [Read] reads
// what PyTorch and this package have written. It builds numbers, texts, lists, tuples
// and dicts, and nothing else: a pickle that would call something is refused, and no
// file makes it hold more memory than its limits say.
//
// [Snapshot.Rewind] undoes the trace from its end, as the viewer does, and so proves
// that both halves belong together.
//
// The schema is that of torch/csrc/cuda/memory_snapshot.cpp, PyTorch 2.1 and later.
package snapshot
