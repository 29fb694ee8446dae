"""Packs batches with verl's own seqlen_balancing, for the comparison in compare_test.go.

Usage: python verl.py SEQLEN_BALANCING.PY. The file is that of the installed wheel (verl 0.9.1); it is
loaded from there with its PyTorch, and its other imports, which need the rest of verl, are left empty.
Each line of the input is a batch: {"lengths": [...], "work": [...] or null, "replicas": R, "budget": T}.
Each line of the output has the microbatches of each replica in order, as lists of indices of sequences.
With "work", the integers in it replace verl's formula for the work of a sequence.
"""

import importlib.util
import json
import sys
import types

import torch


def load(path):
    for name in ("verl", "verl.protocol", "verl.utils", "verl.utils.tensordict_utils", "verl.utils.device"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["verl.protocol"].DataProto = object
    sys.modules["verl.utils.device"].get_device_name = lambda: "cpu"
    tensordict = sys.modules["verl.utils.tensordict_utils"]
    tensordict.index_select_tensor_dict = lambda batch, partition: None
    sys.modules["verl.utils"].tensordict_utils = tensordict
    spec = importlib.util.spec_from_file_location("seqlen_balancing", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def deal(verl, lengths, workload, replicas):
    """Trainer._balance_batch: equal counts, Karmarkar-Karp, small sequences at both ends."""
    work = workload(torch.tensor(lengths)).tolist()
    parts = verl.get_seqlen_balanced_partitions(work, k_partitions=replicas, equal_size=True)
    for i, part in enumerate(parts):
        part.sort(key=lambda x: (work[x], x))
        parts[i] = part[::2] + part[1::2][::-1]
    return parts


def main():
    verl = load(sys.argv[1])
    formula = verl.calculate_workload
    for line in sys.stdin:
        batch = json.loads(line)
        lengths, replicas = batch["lengths"], batch["replicas"]
        workload = formula
        if batch["work"]:
            table = dict(zip(lengths, batch["work"]))
            workload = lambda tensor: torch.tensor([table[int(n)] for n in tensor])
        verl.calculate_workload = workload
        parts = deal(verl, lengths, workload, replicas) if replicas > 1 else [list(range(len(lengths)))]
        inputs = []
        for part in parts:
            mask = torch.zeros(len(part), max(lengths), dtype=torch.int8)
            for row, i in enumerate(part):
                mask[row, : lengths[i]] = 1
            ids = types.SimpleNamespace(is_nested=False)
            inputs.append({"input_ids": ids, "attention_mask": mask})
        # The ranks of a data-parallel group agree on the smallest number of microbatches that suits all.
        fewest, count = None, 0
        while True:
            answers = [verl.rearrange_micro_batches(x, max_token_len=batch["budget"], min_num_micro_batch=fewest)[1] for x in inputs]
            count = max(len(a) for a in answers)
            if all(len(a) == count for a in answers):
                break
            fewest = count
        print(json.dumps([[[part[i] for i in pack] for pack in answer] for part, answer in zip(parts, answers)]), flush=True)


main()
