"""Hangs jobs of four ranks, records them with PyTorch's own flight recorder on gloo, and compares the ranks that
weir hang blames with those that were made to fail. Every job also runs without its fault, and then no rank may be
blamed. The exit status is 1 if an innocent rank is blamed as certain, a healthy job is blamed, or the right rank is
blamed in fewer than four fifths of the hangs without a plan.

usage: jobs.py WEIR FOLDER [JOB...]     needs PyTorch 2.15 and g++; the dumps stay in FOLDER
"""
import datetime, json, os, shutil, subprocess, sys, sysconfig, threading, time

import torch
import torch.distributed as dist
from torch.distributed.pipelining import (PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B,
                                          ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble, schedules)

RANKS, MICROBATCHES, WIDTH = 4, 8, 16
FOREVER = 1000
HERE = os.path.dirname(os.path.abspath(__file__))


def build(folder):
    """Compiles hgloo/hgloo.cpp, unless the folder has it."""
    library, root = os.path.join(folder, "hgloo.so"), os.path.dirname(torch.__file__)
    if not os.path.exists(library):
        include = [f"-I{root}/include", f"-I{root}/include/torch/csrc/api/include", "-I" + sysconfig.get_paths()["include"]]
        subprocess.run(["g++", "-O1", "-std=c++20", "-shared", "-fPIC", "-DTORCH_EXTENSION_NAME=hgloo", "-DTORCH_API_INCLUDE_EXTENSION_H",
                        *include, HERE + "/hgloo/hgloo.cpp", "-o", library, f"-L{root}/lib", "-ltorch_cpu", "-ltorch_python", "-lc10", "-ltorch",
                        f"-Wl,-rpath,{root}/lib"], check=True)
    sys.path.insert(0, folder)


class Stop(torch.autograd.Function):
    """Returns a copy of its input, and calls a function in its backward."""

    @staticmethod
    def forward(ctx, x, call):
        ctx.call = call
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.call()
        return grad, None


class Fault:
    """Fails at the nth event of a kind, if this rank is the one to fail."""

    def __init__(self, active, how, at, nth, folder):
        self.active, self.how, self.at, self.left, self.folder = active, how, at, nth, folder

    def __call__(self, event):
        if not self.active or event != self.at:
            return False
        self.left -= 1
        if self.left == 0 and self.how == "sleep":
            time.sleep(FOREVER)
        if self.left == 0 and self.how == "die":
            os._exit(7)
        if self.left == 0 and self.how == "raise":
            raise RuntimeError("the fault")
        return self.left == 0


class Net(torch.nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.linear, self.fault = torch.nn.Linear(WIDTH, WIDTH), fault

    def forward(self, x):
        self.fault("forward")
        return Stop.apply(torch.tanh(self.linear(x)), lambda: self.fault("backward"))


def pipeline(rank, fault, schedule=Schedule1F1B, stages=1, steps=3, ranks=None, after=None, vshape=False):
    """Trains a pipeline on the given ranks, by default on all, and calls after() after each step."""
    ranks = ranks or list(range(RANKS))
    group = dist.new_group(ranks) if len(ranks) < RANKS else None
    return train(rank, fault, ranks, group, schedule, stages, steps, after, vshape)


def train(rank, fault, ranks, group, schedule, stages, steps, after, vshape=False):
    place, places = ranks.index(rank), len(ranks)
    own = [place, 2 * places - 1 - place] if vshape else [place + i * places for i in range(stages)]
    built = [PipelineStage(Net(fault), stage, places * len(own), torch.device("cpu"), group=group) for stage in own]
    runner = schedule(built if len(own) > 1 else built[0], MICROBATCHES, loss_fn=torch.nn.functional.mse_loss)
    skip(fault)
    if rank == 0 and len(own) > 1:
        runner._dump_csv(fault.folder + "/plan.csv")
    x, y = torch.randn(MICROBATCHES * 4, WIDTH), torch.randn(MICROBATCHES * 4, WIDTH)
    for _ in range(steps):
        fault("step")
        runner.step(*([x] if 0 in own else []), **({"target": y} if places * len(own) - 1 in own else {}))
        if after:
            fault("after")
            after()


def skip(fault):
    """Patches PyTorch to omit a send when the fault occurs."""
    issue = schedules._batch_p2p

    def some(ops, desc=None):
        return issue([op for op in ops if not (op.op is dist.isend and fault("send " + str(op.peer)))], desc)
    schedules._batch_p2p = some


def beside(rank, fault, **options):
    """Trains two pipelines of two ranks each, with a group across them for each stage."""
    pipelines = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
    data = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    train(rank, fault, [rank % 2, rank % 2 + 2], pipelines[rank % 2], Schedule1F1B, 1, 3, lambda: dist.all_reduce(torch.ones(8), group=data[rank // 2]))


def reduced():
    dist.all_reduce(torch.ones(8))


def collectives(rank, fault, first=lambda: dist.all_reduce(torch.ones(8)), other=None, times=6):
    """Runs a collective several times. The failing rank calls other instead, once."""
    for _ in range(times):
        if fault("collective") and other:
            other()
        else:
            first()


def order(rank, fault):
    for _ in range(4):
        calls = [reduced, lambda: dist.all_gather([torch.ones(8) for _ in range(RANKS)], torch.ones(8))]
        if fault("collective"):
            calls.reverse()
        for call in calls:
            call()


def ring(rank, fault):
    """Passes a message around all ranks. The failing rank receives from the wrong side once."""
    for _ in range(4):
        x, wrong = torch.ones(8), fault("message")
        if rank == 0:
            dist.send(x, 1)
        dist.recv(x, (rank + (1 if wrong else -1)) % RANKS)
        if rank:
            dist.send(x, (rank + 1) % RANKS)


def anyone(rank, fault):
    """Rank 1 receives from whichever rank sends."""
    for _ in range(3):
        if rank == 1:
            dist.recv(torch.ones(8))
        elif rank == 0:
            fault("message")
            dist.send(torch.ones(8), 1)
        dist.barrier()


def subgroups(rank, fault):
    """Runs collectives in two halves of the ranks, and on all ranks."""
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    for _ in range(4):
        fault("collective")
        dist.all_reduce(torch.ones(8), group=halves[rank // 2])
        reduced()


ONEFONEB = "--schedule 1f1b --stages 4 --microbatches 8"
# the failing rank, its failure, the event and its number; the job; the flags of the plan; options of the recording
JOBS = {
    "forward sleeps": (2, "sleep", "forward", 20, pipeline, ONEFONEB, {}),
    "first step sleeps": (2, "sleep", "forward", 4, pipeline, ONEFONEB, {}),
    "backward sleeps": (1, "sleep", "backward", 12, pipeline, ONEFONEB, {}),
    "rank dies": (3, "die", "forward", 13, pipeline, ONEFONEB, {}),
    "send skipped": (1, "skip", "send 2", 12, pipeline, ONEFONEB, {}),
    "gpipe sleeps": (0, "sleep", "backward", 11, lambda r, f: pipeline(r, f, ScheduleGPipe), "--schedule gpipe --stages 4 --microbatches 8", {}),
    "interleaved sleeps": (2, "sleep", "forward", 25, lambda r, f: pipeline(r, f, ScheduleInterleaved1F1B, 2), "--plan FOLDER/plan.csv", {}),
    "interleaved raises": (1, "raise", "forward", 20, lambda r, f: pipeline(r, f, ScheduleInterleaved1F1B, 2), "--plan FOLDER/plan.csv", {}),
    "zbv sleeps": (3, "sleep", "backward", 20, lambda r, f: pipeline(r, f, ScheduleZBVZeroBubble, vshape=True), "--plan FOLDER/plan.csv", {}),
    "mixed sleeps": (2, "sleep", "after", 2, lambda r, f: pipeline(r, f, after=reduced), ONEFONEB, {}),
    "groups sleep": (3, "sleep", "forward", 13, beside, "--schedule 1f1b --stages 2 --microbatches 8", {}),
    "active alone": (1, "sleep", "forward", 13, pipeline, ONEFONEB, {"active": True}),
    "active groups": (2, "sleep", "after", 2, beside, "--schedule 1f1b --stages 2 --microbatches 8", {"active": True}),
    "short history": (2, "sleep", "forward", 20, pipeline, ONEFONEB, {"buffer": 60}),
    "behind sends": (3, "sleep", "forward", 20, lambda r, f: pipeline(r, f, ScheduleGPipe, after=reduced), "--schedule gpipe --stages 4 --microbatches 8", {}),
    "batched sleeps": (2, "sleep", "forward", 13, pipeline, ONEFONEB, {"backend": "hnccl"}),
    "batched short": (1, "sleep", "forward", 20, lambda r, f: pipeline(r, f, after=reduced), ONEFONEB, {"backend": "hnccl", "buffer": 80}),
    "batched dies": (0, "die", "backward", 13, lambda r, f: pipeline(r, f, after=reduced), ONEFONEB, {"backend": "hnccl"}),
    "collective sleeps": (1, "sleep", "collective", 4, collectives, "", {"backend": "gloo"}),
    "gloo times out": (1, "sleep", "collective", 4, collectives, "", {"backend": "gloo", "timeout": 3}),
    "gloo dies": (1, "die", "collective", 3, collectives, "", {"backend": "gloo"}),
    "halves sleep": (3, "sleep", "collective", 3, subgroups, "", {"backend": "gloo"}),
    "another collective": (2, "other", "collective", 3, lambda r, f: collectives(r, f, other=lambda: dist.broadcast(torch.ones(8), 0)), "", {}),
    "skips one": (1, "other", "collective", 3, lambda r, f: collectives(r, f, other=lambda: None), "", {}),
    "another size": (3, "other", "collective", 3, lambda r, f: collectives(r, f, other=lambda: dist.all_reduce(torch.ones(1 << 20))), "", {}),
    "another order": (2, "other", "collective", 2, order, "", {}),
    "wrong side": (2, "other", "message", 3, ring, "", {}),
    "any source": (0, "sleep", "message", 3, anyone, "", {}),
    "root sleeps": (0, "sleep", "collective", 3, lambda r, f: collectives(r, f, first=lambda: dist.broadcast(torch.ones(8), 0)), "", {}),
}


def rank_of_job(rank, name, dumps, folder, healthy):
    """Runs a rank, and writes its dump when all ranks have ended, or after 8 seconds (60 in a healthy job)."""
    planted, how, at, nth, body, _, record = JOBS[name]
    backend, limit = record.get("backend", "hgloo"), datetime.timedelta(seconds=record.get("timeout", 600))
    os.environ["TORCH_FR_BUFFER_SIZE"] = str(record.get("buffer", 2000))
    recorder = {"hnccl": "nccl2"}.get(backend, backend)
    ended = lambda: [r for r in range(RANKS) if os.path.exists(f"{folder}/ended.{r}")]

    def dump():
        begun = time.time()
        while time.time() - begun < (60 if healthy else 8) and len(ended()) < RANKS:
            time.sleep(.05)
        time.sleep(.5)
        with open(f"{dumps}/dump_{rank}", "wb") as file:
            file.write(torch._C._distributed_c10d._dump_fr_trace(includeStackTraces=False, onlyActive=record.get("active", False), backend=recorder))
        time.sleep(1)
        os._exit(0)
    threading.Thread(target=dump, daemon=True).start()
    os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo")
    if backend != "gloo":
        import hgloo
        dist.Backend.register_backend(backend, lambda o, b: hgloo.create(dist.distributed_c10d._create_gloo_process_group(o, None), backend == "hnccl"), extended_api=True, devices=["cpu"])
    dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=RANKS, timeout=limit)
    torch.manual_seed(rank)
    try:
        body(rank, Fault(rank == planted and not healthy, how, at, nth, folder))
        open(f"{folder}/ended.{rank}", "w").close()
    except Exception as fault:
        print(f"rank {rank}: {str(fault)[:300]}", file=sys.stderr)
    time.sleep(FOREVER)


def run(name, dumps, healthy):
    folder = dumps + ".work"
    for one in (dumps, folder):
        shutil.rmtree(one, ignore_errors=True)
        os.makedirs(one)
    processes = []
    for rank in range(RANKS):
        process = os.fork()
        if process == 0:
            log = os.open(f"{folder}/log.{rank}", os.O_CREAT | os.O_WRONLY)
            os.dup2(log, 1), os.dup2(log, 2)
            rank_of_job(rank, name, dumps, folder, healthy)
        processes.append(process)
    for process in processes:
        os.waitpid(process, 0)


def main(weir, folder, names):
    os.makedirs(folder, exist_ok=True)
    build(folder)
    right, wrong = {"": 0, "with a plan": 0}, 0  # reports on jobs that hang, and reports that blame an innocent rank
    for name in names or JOBS:
        planted, plan = JOBS[name][0], JOBS[name][5]
        for healthy in (False, True):
            dumps = f"{folder}/{name.replace(' ', '-')}{'-healthy' if healthy else ''}"
            run(name, dumps, healthy)
            for with_plan in ("", "with a plan") if plan else ("",):
                told = subprocess.run([weir, "hang", dumps, "--json", *(plan.replace("FOLDER", dumps + ".work").split() if with_plan else [])], capture_output=True, text=True)
                if told.returncode > 1 or not told.stdout:
                    raise SystemExit(f"{name}: {told.stderr}")
                report = json.loads(told.stdout)
                innocent = [r for reason in report["reasons"] or [] if reason["certain"] for r in reason["rank_list"] if healthy or r != planted]
                fine = report["blamed"] == ([] if healthy else [planted])
                right[with_plan] += fine and not healthy
                wrong += bool(innocent) or healthy and not fine
                print(f"{'healthy: ' if healthy else ''}{name}{', ' if with_plan else ''}{with_plan}: planted {[] if healthy else [planted]}, blamed {report['blamed']}"
                      f"{' (certain)' if report['certain'] else ''}{'' if fine else ' NOT RIGHT'}{' INNOCENT' if innocent else ''}"
                      f"{'' if not with_plan or report['plan']['fits'] else ', which does not fit'}", flush=True)
    print(f"{right['']} of {len(names or JOBS)} hangs named right without a plan; {wrong} reports blame a healthy job, or an innocent rank as certain")
    return wrong > 0 or 5 * right[""] < 4 * len(names or JOBS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3:]))
