#!/usr/bin/env python3
"""Writes PyTorch's schedules and the slots that PyTorch itself finds for them: liveness.py FOLDER

For each schedule with transfers, FOLDER gets NAME.csv and NAME.json. The JSON is a list with a pair of numbers
for each rank, of activation slots that analyze_pipeline_activation_liveness finds: the sum over the rank's
stages, each analysed separately, and the number for all its stages together.
"""

import json
import sys

import dump_schedules
import torch
from torch.distributed.pipelining import analyze_pipeline_activation_liveness, schedules


def main():
    for name in "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV":
        for ranks in 2, 4, 8:
            for each in (2,) if name in ("ZBVZeroBubble", "DualPipeV") else (1, 2, 4):
                made = schedules.get_schedule_class(name)(dump_schedules.stages(ranks, each), 16, loss_fn=torch.nn.functional.mse_loss)
                found = []
                for rank, row in made.pipeline_order_with_comms.items():
                    own = sorted({part.stage_index for a in row for part in a.sub_actions or [a]})
                    slots = [analyze_pipeline_activation_liveness(made, pp_rank=rank, stage_indices=some, granularity="stage_microbatch").num_slots
                             for some in [[stage] for stage in own] + [own]]
                    found.append([sum(slots[:-1]), slots[-1]])
                path = f"{sys.argv[1]}/{name}-{ranks}-{each}"
                made._dump_csv(path + ".csv")
                with open(path + ".json", "w") as file:
                    json.dump(found, file)


if __name__ == "__main__":
    main()
