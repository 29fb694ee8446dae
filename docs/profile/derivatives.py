"""Compares what the operators of ten models save on fake CUDA tensors with PyTorch's derivatives, and prints a table: python derivatives.py

For each kind of node in the graphs of the models of compare.py, the tensors that it has saved are compared with those that the
formulas in PyTorch's derivatives.yaml (which its wheel has) name. The exit status is 1 if a node has saved a tensor that no formula names.
"""

import os
import re
import sys

import torch
import torchgen
import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "python"), HERE]
from compare import MODELS, config  # noqa: E402

from weir.profile._books import Graph  # noqa: E402
from weir.profile._model import Model, Settings  # noqa: E402
from weir.profile._transformers import from_config  # noqa: E402

FILE = os.path.join(os.path.dirname(torchgen.__file__), "packaged", "autograd", "derivatives.yaml")


def formulas():
    """Returns a dict from each operator's name to its line in the file, the set of words in its formulas, and its signature."""
    with open(FILE, encoding="utf-8") as file:
        text = file.read()
    lines = {m.group(1): text[:m.start()].count("\n") + 1 for m in re.finditer(r"^- name: (\w+(?:\.\w+)?)\(", text, re.M)}
    out = {}
    for entry in yaml.load(text, yaml.CSafeLoader):
        name = entry["name"].split("(")[0]
        words = set()
        for part in (entry, *entry.get("dispatch", {}).values()):
            words |= set(re.findall(r"\w+", " ".join(str(v) for k, v in part.items() if k not in ("name", "output_differentiability", "dispatch"))))
        out[name] = (lines.get(name, 0), words, entry["name"])
    return out


def named(tensor, words, signature):
    """Reports whether formulas name a tensor: a result, or an argument of the operator that is a tensor."""
    return tensor in words and (re.search(rf"Tensor\S* {tensor}\b", signature) is not None or re.search(rf"\b{tensor}\b", signature) is None) or tensor == "result"


def main():
    known, found = formulas(), {}
    for name in list(MODELS)[:10]:
        attention = "eager" if name == "gpt_oss" else "flash"
        for autocast in (None, "bfloat16"):
            build, batch = from_config(config(name), attention=attention, dtype="float32" if autocast else "bfloat16")
            model = Model(build, batch, None, None, Settings(device="cuda", capability="9.0", attention="math" if attention == "eager" else attention, autocast=autocast, checkpoint=False))
            model.short = False
            with model.contexts():
                loss = model.forward(1, 64)
                for node in Graph(loss.grad_fn, model.books).nodes:
                    kept = {}
                    for key in dir(node):
                        if key.startswith("_raw_saved_"):
                            value = getattr(node, key)
                            data = [getattr(one, "data", None) for one in (value if isinstance(value, (list, tuple)) else (value,))]
                            if any(isinstance(t, torch.Tensor) for t in data):
                                kept[key[len("_raw_saved_"):]] = data
                    found.setdefault(node.name(), set()).update(kept)
                del loss, node
    wrong = 0
    print("| node | operator | saves | derivatives.yaml, line |\n|---|---|---|--:|")
    for node, kept in sorted(found.items()):
        if not kept:
            continue
        stem = re.sub(r"Backward\d*$", "", node).lower()
        fits = [(n, v) for n, v in known.items() if n.split(".")[0].replace("_", "").lower() in (stem, stem + "forward") and all(named(k, *v[1:]) for k in kept)]
        wrong += not fits
        name, (line, _, _) = min(fits, key=lambda one: len(one[1][1])) if fits else ("none names all of these", (0, 0, 0))
        print(f"| {node} | `{name}` | {', '.join(sorted(kept))} | {line} |")
    silent = sorted(n for n, kept in found.items() if not kept and "Accumulate" not in n)
    print(f"\n{len(found)} kinds of nodes in ten models, with bfloat16 and with autocast, PyTorch {torch.__version__}. These save no tensor: {', '.join(silent)}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
