"""What each piece of a model keeps and computes, from the model's own code: weir.profile(...), and python -m weir.profile."""

import sys
import types
from typing import Any

from ._file import SCHEMA, Amount, Kind, Parameters, Piece, Profile, ProfileError, Shared, Tied
from ._profile import profile

__all__ = ["SCHEMA", "Amount", "Kind", "Parameters", "Piece", "Profile", "ProfileError", "Shared", "Tied", "profile"]


class _Package(types.ModuleType):
    """This package, which is called as its function is: weir.profile is both."""

    def __call__(self, *args: Any, **kwargs: Any) -> Profile:
        return profile(*args, **kwargs)


sys.modules[__name__].__class__ = _Package
