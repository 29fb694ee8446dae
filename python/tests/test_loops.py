"""Tests the documentation's lines for the loops of other libraries, in doubles that make calls in the same order."""

import torch
from conftest import batches, make

import weir

KEPT = []


def leaks_named(guard, microbatches):
    print(guard.table())
    guard.close()
    KEPT.clear()
    assert guard.microbatches == microbatches
    assert any("test_loops.KEPT[]" in leak.holder for leak in guard.leaks), guard.leaks


class Trainer:
    """transformers.Trainer: training_step computes the loss and runs the backward; evaluation has no gradients."""

    def __init__(self):
        self.model, self.optimizer = make()

    def train(self):
        for i, x in enumerate(batches(32)):
            self.model.train()
            loss = self.training_step(self.model, x)
            KEPT.append(loss)
            if i % 2:
                self.optimizer.step()
                self.model.zero_grad()
            if i % 8 == 7:
                self.model.eval()
                with torch.no_grad():
                    self.model(x)

    def training_step(self, model, x):
        loss = (model(x) - x).square()
        loss.mean().backward()
        return loss


def test_transformers():
    trainer = Trainer()
    guard = weir.Guard(trainer.model, on_leak=lambda leaks: None)
    trainer.train()
    leaks_named(guard, 32)


def test_transformers_with_a_model_compiled_in_place():
    guard = weir.Guard(torch.nn.Linear(1, 1), on_leak=lambda leaks: None)

    class Guarded(Trainer):
        def training_step(self, *args, **kwargs):
            with guard.microbatch():
                return super().training_step(*args, **kwargs)

    Guarded().train()
    leaks_named(guard, 32)


def test_lightning():
    """Lightning calls training_step, so a batch may never call the module's forward."""

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.optimizer = make()

        def training_step(self, batch, index):
            return (self.net(batch) - batch).square().mean()

    module = Module()
    guard = weir.Guard(module, on_leak=lambda leaks: None)

    class Guarded:  # (lightning.Callback)
        def on_train_batch_start(self, trainer, module, batch, index):
            guard.begin()

    callback = Guarded()
    for i, x in enumerate(batches(32)):
        callback.on_train_batch_start(None, module, x, i)
        loss = module.training_step(x, i)
        module.optimizer.zero_grad()
        loss.backward()
        module.optimizer.step()
        KEPT.append(x)
    leaks_named(guard, 32)


def test_accelerate():
    """prepare wraps the model, as DistributedDataParallel does."""

    class Wrapped(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, *args):
            return self.module(*args)

    model, optimizer = make()
    guard = weir.Guard(model, on_leak=lambda leaks: None)
    prepared = Wrapped(model)
    for x in batches(32):
        out = prepared(x)
        out.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        KEPT.append(out.detach())
    leaks_named(guard, 32)


def test_torchtitan():
    """Trainer.train_step calls forward_backward_step for each of a step's microbatches; its models are model_parts."""
    model, optimizer = make()
    model_parts = [model[0], model[1:]]
    guard = weir.Guard(model_parts, on_leak=lambda leaks: None)
    for _ in range(8):
        optimizer.zero_grad()
        for x in batches(4):
            out = model_parts[1](model_parts[0](x))
            loss = (out - x).square().sum()
            loss.backward()
            KEPT.append(out.detach())
        optimizer.step()
    leaks_named(guard, 32)
    assert guard.step == 8


def test_megatron():
    """get_forward_backward_func calls forward_step_func, then its loss function, then the backward: 1F1B, four in flight."""
    model, optimizer = make()
    guard = weir.Guard(model, on_leak=lambda leaks: None)

    def forward_step(data_iterator, model):
        x = next(data_iterator)
        return model(x), lambda out: ((out - x).square().mean(), {"lm loss": out.detach()})

    def guarded(*args, **kwargs):
        with guard.microbatch():
            return forward_step(*args, **kwargs)

    for _ in range(4):
        data, flying, forward_data_store = batches(16), [], KEPT
        for i in range(16 + 3):
            if i < 16:
                out, loss_func = guarded(data, model)
                loss, report = loss_func(out)
                forward_data_store.append(report["lm loss"])
                flying.append(loss)
            if i >= 3:
                flying.pop(0).backward()
        optimizer.step()
        optimizer.zero_grad()
    leaks_named(guard, 64)
    assert guard._depth == 3
