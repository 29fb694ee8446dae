#!/usr/bin/env python3
"""Plants one fault at a time in mlp.py and prints PyTorch's output for it.

    python3 examples/mlp/pytorch/faults.py [NAME ...]

faults_test.go in the folder above plants the same faults in the trainer in Go. A run that
does not end within --timeout seconds is stopped, with the place where each rank waits.
"""

import argparse
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FAULTS = {  # the text to replace, and its replacement
    "none": ("", ""),
    "a loss is kept": (
        "        sums.add_(", "        kept.append(ring)\n        sums.add_("),
    "a stage keeps its output": (
        "        y = x @ self.weight\n", "        y = x @ self.weight\n        kept.append(y)\n"),
    "a point is NaN": (
        "    radius = xy.norm", "    xy[100] = math.nan\n    radius = xy.norm"),
    "the frozen stage's output is declared without a gradient": (
        "SHAPES[rank][1], requires_grad=True))", "SHAPES[rank][1], requires_grad=rank > 0))"),
    "labels in another order on one rank": (
        "    xy, labels = points()\n", "    xy, labels = points()\n    labels = labels.flip(0)\n"),
    "one rank has half of the microbatches": (
        "Schedule1F1B(stage, MICROBATCHES,", "Schedule1F1B(stage, MICROBATCHES if rank != 2 else MICROBATCHES // 2,"),
    "the batch does not divide evenly": (
        "torch.rand(ROWS * MICROBATCHES, 2", "torch.rand(ROWS * MICROBATCHES - 5, 2"),
    "the update is forgotten": (
        "                module.weight -= RATE / len(xy) * module.weight.grad\n", "                pass\n"),
    "gradients are not set to zero": (
        "        module.zero_grad()\n", ""),
    "a layer detaches its input": (
        "        y = x @ self.weight\n", "        y = (x.detach() if self.rank == 2 else x) @ self.weight\n"),
}
STUCK = "    import faulthandler\n    faulthandler.dump_traceback_later({}, exit=True)\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timeout", type=int, default=90)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("names", nargs="*", default=list(FAULTS))
    args = parser.parse_args()
    with open(HERE + "/mlp.py") as file:
        program = file.read()
    for name in args.names:
        old, new = FAULTS[name]
        assert old in program, name
        text = program.replace(old, new, 1).replace("WIDTH, ROWS", "kept = []\nWIDTH, ROWS", 1)
        text = text.replace("step % 50", "step % 10")
        text = text.replace("def run(rank, args):\n", "def run(rank, args):\n" + STUCK.format(args.timeout), 1)
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/mlp.py", "w") as file:
                file.write(text)
            ran = subprocess.run([sys.executable, folder + "/mlp.py", "--steps", str(args.steps), "--run", folder + "/run"],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            lines = [line for line in ran.stdout.splitlines() if line.strip()]
            grown = []
            for rank in range(4):
                with open(f"{folder}/run/memory{rank}.jsonl") as log:
                    sizes = [int(line.rpartition(" ")[2][:-2]) for line in log]
                grown.append((sizes[-1] - sizes[len(sizes) // 4]) >> 10 if sizes else 0)
            print(f"== {name}: exit {ran.returncode}, rank 0 to 3 grew by {grown} KiB in the last three quarters", flush=True)
            print("\n".join(lines if len(lines) < 40 else lines[:12] + ["..."] + lines[-12:]), flush=True)


if __name__ == "__main__":
    main()
