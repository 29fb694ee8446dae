import json
import torch


class MemoryLog:
    def __init__(self, path, rank):
        self.file, self.rank = open(path, "w", buffering=1 << 20), rank  # written when a MiB is full, and at exit

    def microbatch(self, step, microbatch):
        stats = torch.cuda.memory_stats()  # counters on the host: nothing is synchronised
        self.file.write(json.dumps({
            "step": step, "rank": self.rank, "microbatch": microbatch,
            "allocated": stats["allocated_bytes.all.current"], "reserved": stats["reserved_bytes.all.current"],
            "peak": stats["allocated_bytes.all.peak"]}) + "\n")
        torch.cuda.reset_peak_memory_stats()  # a peak is since the line before
