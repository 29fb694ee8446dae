"""Lifetimes in PyTorch: nothing of a microbatch outlives it.

    guard = weir.Guard(model)            # names what does, for any training loop
    loss_fn = weir.detached(loss_fn)     # a loss that is kept keeps no graph

The package needs PyTorch 2.9 or later and nothing else. Plans and proofs come from the command
`weir`, which the same wheel installs.
"""

from .detached import detached
from .guard import Guard, Leak, LeakError, LeakWarning
from .plan import Plan, PlanError, plan
from .schedule import schedule

__all__ = ["Guard", "Leak", "LeakError", "LeakWarning", "Plan", "PlanError", "detached", "plan", "schedule"]
