"""Tools for PyTorch training loops in which no tensor of a microbatch outlives the microbatch.

    guard = weir.Guard(model)            # names the tensors that do, in any training loop
    loss_fn = weir.detached(loss_fn)     # makes losses that can be kept without their graph
    runner = weir.Runner(plan, modules)  # trains with a plan and its lifetimes
    weir.profile(build, batch, loss)     # returns what each layer keeps and computes, without a GPU

The package needs PyTorch 2.9 or later and nothing else. The command `weir`, which the same wheel
installs, makes and checks plans.
"""

import importlib
from typing import TYPE_CHECKING, Any

try:
    from .detached import detached
    from .guard import Guard, Leak, LeakError, LeakWarning
    from .pack import Packer, PackError, Packing, pack
    from .plan import Plan, PlanError, plan
    from .schedule import schedule
except ModuleNotFoundError as e:
    if e.name != "torch":
        raise
    raise ModuleNotFoundError("weir needs PyTorch 2.9 or later: pip install torch (see python/README.md)", name="torch") from e

if TYPE_CHECKING:
    from .profile import Profile, ProfileError, profile
    from .runner import Result, Runner, StepError

__all__ = [
    "Guard", "Leak", "LeakError", "LeakWarning", "PackError", "Packer", "Packing", "Plan", "PlanError", "Profile", "ProfileError", "Result", "Runner", "StepError",
    "detached", "pack", "plan", "profile", "schedule"]


def __getattr__(name: str) -> Any:
    if name in ("Result", "Runner", "StepError"):  # which import torch.distributed
        from . import runner

        return getattr(runner, name)
    if name in ("Profile", "ProfileError", "profile"):  # which imports the tools that it uses, for a second
        module: Any = importlib.import_module(".profile", __name__)
        return module if name == "profile" else getattr(module, name)
    if name == "__version__":  # of the installed distribution; a clone has none
        from importlib import metadata

        try:
            return metadata.version("weir-ml")
        except metadata.PackageNotFoundError:
            pass
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
