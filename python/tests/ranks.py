"""Runs a function on several ranks over gloo, each in a separate process that starts within a tenth of a second."""

import multiprocessing
import os
import pickle
import signal
import socket
import tempfile
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch._dynamo", "torch.distributed.checkpoint.state_dict", "torch.distributed.fsdp", "torch.distributed.pipelining"])


def on_ranks(n, function, *args, limit=120, store="file"):
    """Returns what function(rank, *args) has returned on each rank: None for a rank that was killed, or by force after limit seconds.

    The store of the process group is a file, or with store="rank 0" in that process, or with store="parent"
    in this one, as under torchrun. An exception on a rank is raised here.
    """
    with tempfile.TemporaryDirectory() as folder:
        where = f"file://{folder}/store"
        if store != "file":
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            where = f"tcp://127.0.0.1:{port}"
        hosted = dist.TCPStore("127.0.0.1", port, n, is_master=True, wait_for_workers=False) if store == "parent" else None
        started = [CONTEXT.Process(target=_main, args=(rank, n, where, store, folder, function, args), daemon=True) for rank in range(n)]
        for process in started:
            process.start()
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline and not all(map(_ended, started)):
            time.sleep(0.02)
        for process in started:
            process.kill()
            process.join()
        del hosted
        found, errors = [None] * n, []
        for rank in range(n):
            path = f"{folder}/{rank}"
            if os.path.exists(path):
                with open(path, "rb") as file:
                    ok, found[rank] = pickle.load(file)
                if not ok:
                    errors.append(f"rank {rank}:\n{found[rank]}")
        if errors:
            raise AssertionError("\n".join(errors))
        return found


def _ended(process):
    """Reports whether a process has ended, or was stopped."""
    try:
        with open(f"/proc/{process.pid}/stat") as file:
            return not process.is_alive() or file.read().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return True


def _main(rank, n, where, store, folder, function, args):
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also in a shell's background, which ignores it
    try:
        if store == "parent":
            port = int(where.rpartition(":")[2])
            dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", port, n, is_master=False, wait_for_workers=False), rank=rank, world_size=n)
        else:
            dist.init_process_group("gloo", init_method=where, rank=rank, world_size=n, timeout=timedelta(seconds=60))
        result = True, function(rank, *args)
    except BaseException:  # noqa: BLE001
        result = False, traceback.format_exc()
    with open(f"{folder}/{rank}.part", "wb") as file:
        pickle.dump(result, file)
    os.rename(f"{folder}/{rank}.part", f"{folder}/{rank}")
    os._exit(0)  # no clean end: others may have been killed
