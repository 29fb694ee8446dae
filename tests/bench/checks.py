"""Measures what checksums and audits cost a step: runs examples/train with and without them, in turn.

go build -o train ./examples/train && python3 tests/bench/checks.py ./train [rounds]
"""

import csv
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

STEPS = 20
MODEL = "-ranks 2 -plan 1f1b -replicas 2 -width 128 -layers 4 -heads 4 -seq 64 -microbatches 32 -evaluate 0"
KINDS = {"neither": [], "-sums": ["-sums"], "-audit 10": ["-audit", "10"], "-audit 1": ["-audit", "1"]}


def run(train: str, flags: list[str], steps: int) -> tuple[list[float], float]:
    """Returns the seconds of each step, and the seconds of processor time of the run."""
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([train, *MODEL.split(), "-steps", str(steps), "-run", f"{folder}/run", *flags], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        with pathlib.Path(folder, "run", "losses.csv").open() as file:
            took = [float(row["seconds"]) for row in csv.DictReader(file) if row["seconds"]]
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    train, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 4
    took: dict[str, list[float]] = {kind: [] for kind in KINDS}
    cpu: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind, flags in KINDS.items():
            steps, seconds = run(train, flags, STEPS)
            took[kind] += steps[2:]
            cpu[kind].append((seconds - run(train, flags, 2)[1]) / (STEPS - 2))  # without the start of the process
    base, base_cpu = statistics.median(took["neither"]), statistics.median(cpu["neither"])
    print("| | median step, s | mean step, s | | processor s a step | |\n|---|---|---|---|---|---|")
    for kind in KINDS:
        median, seconds = statistics.median(took[kind]), statistics.median(cpu[kind])
        print(f"| {kind} | {median:.3f} | {statistics.mean(took[kind]):.3f} | {median / base - 1:+.1%} | {seconds:.3f} | {seconds / base_cpu - 1:+.1%} |")


if __name__ == "__main__":
    main()
