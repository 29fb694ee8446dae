"""A training loop that keeps a metric with its graph. python3 train.py"""

import torch

import weir

torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256))
optimizer = torch.optim.AdamW(model.parameters())
history = []
guard = weir.Guard(model, log="memory.jsonl")
for step in range(16):
    for microbatch in range(8):
        x = torch.randn(512, 256)
        out = model(x)
        ((out - x).square().mean() / 8).backward()
        history.append((out - x).abs().mean())
    optimizer.step()
    optimizer.zero_grad()
print(guard.table())
