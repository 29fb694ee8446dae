"""Trains a small language model in four stages on two ranks with weir.Runner: torchrun --nproc-per-node 2 docs/runner/train.py plan.json"""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

import weir

VOCABULARY, WIDTH, ROWS, LENGTH = 64, 128, 4, 32


class Embed(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.block = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)

    def forward(self, tokens):
        return self.block(self.tokens(tokens))


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.out = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, x):
        return self.out(self.block(x))


def loss_fn(logits, targets):
    """Returns the loss summed over the tokens that count, and their number."""
    counted = targets >= 0
    return nn.functional.cross_entropy(logits[counted], targets[counted], reduction="sum"), counted.sum()


def batches(step, microbatches):
    """Yields pairs of inputs and targets: a sequence counts upwards, and padding is -1."""
    generator = torch.Generator().manual_seed(step)
    for _ in range(microbatches):
        start = torch.randint(VOCABULARY, (ROWS, 1), generator=generator)
        tokens = (start + torch.arange(LENGTH + 1)) % VOCABULARY
        targets = tokens[:, 1:].clone()
        targets[0, LENGTH // 2:] = -1
        yield tokens[:, :-1], targets


def main():
    dist.init_process_group("gloo")
    plan = weir.Plan.load(sys.argv[1])
    torch.manual_seed(0)
    middle = [nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(plan.stages - 2)]
    model = [Embed(), *middle, Head()]
    stages = {s: model[s] for s in plan.on(dist.get_rank())}
    optimizer = torch.optim.AdamW([p for stage in stages.values() for p in stage.parameters()], lr=1e-3)
    runner = weir.Runner(plan, stages, loss_fn, shapes=torch.empty(ROWS, LENGTH, WIDTH, device="meta"), names=lambda stage, name: f"stages.{stage}.{name}")
    for step in range(20):
        result = runner.step(batches(step, plan.microbatches))
        norm = runner.clip_grad_norm_(1.0)
        optimizer.step()
        if dist.get_rank() == 0 and step % 5 == 4:
            print(f"step {step}: loss {result.loss:.4f} over {result.weight:.0f} tokens, gradient norm {norm:.3f}", flush=True)
    dcp.save({"train": runner.checkpoint(optimizer)}, checkpoint_id="checkpoint")
    runner.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
