#!/usr/bin/env python3
"""Trains in torchtitan's and NeMo AutoModel's own trainers on two ranks, with PyTorch's schedule and with Weir's plan in its place.

    WEIR=weir PYTHON=~/trainers/bin/python tests/pytorch/doors/compare.py [torchtitan[:zb-v]] [automodel[:zb-v]]

PYTHON is a Python that has PyTorch 2.15, torchtitan 0.3.0 and nemo-automodel 0.7.0; WEIR is the
command. The losses and gradient norms of every step must be the same numbers.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = {"1f1b": "1F1B", "interleaved": "Interleaved1F1B", "zb-v": "ZBVZeroBubble"}


def train(trainer, name, out, **environment):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
              "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.path.join(HERE, "../../../python"), **environment}
    ranks = [subprocess.Popen([os.environ["PYTHON"], f"{HERE}/train_{trainer}.py", out, name], env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(2)]
    said = [rank.communicate(timeout=600)[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit(f"{trainer}, {name}, {environment}:\n" + "\n".join(text[-3000:] for text in said))
    return [json.load(open(f"{out}.{rank}")) for rank in range(2)]


def main():
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for trainer, _, only in (argument.partition(":") for argument in sys.argv[1:] or ["torchtitan", "automodel"]):
            for plan, name in ((only, NAMES[only]),) if only else NAMES.items():
                path = f"{folder}/{plan}.json"
                subprocess.run([os.environ["WEIR"], "plan", plan, "--ranks=2", "--microbatches=8", "--to=plan", "-o", path], check=True)
                own, weir = train(trainer, name, f"{folder}/own"), train(trainer, name, f"{folder}/weir", WEIR_PLAN=path)
                good &= own == weir
                print(f"{trainer}, {name}: {'the same losses and norms' if own == weir else f'DIFFERENT: {own} {weir}'}: {own[-1]}", flush=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
