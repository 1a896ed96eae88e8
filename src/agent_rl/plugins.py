"""Objects of the user's own modules, named as ``module:ATTRIBUTE``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TypeVar

from agent_rl.errors import UserError

T = TypeVar("T")


def load_attribute(name: str, kind: type[T], what: str, example: str) -> T:
    """The object that ``name`` stands for, of type ``kind``.

    Modules are found in the current folder and on PYTHONPATH, so this also works in configs and in
    the processes that the stages start.

    Args:
        what: the thing in messages, e.g. ``task``.
        example: a name that exists, for messages.

    Raises: UserError naming what is missing.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise UserError(f"{what} {name!r}: expected module:ATTRIBUTE, e.g. {example}")
    # ``python -m`` finds modules of the current folder; the console script and DVC shall as well.
    here = str(Path.cwd())
    if not {"", here} & set(sys.path):
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and _names(error.name, module_name):
            raise UserError(
                f"{what} {name!r}: there is no module {error.name!r} in the current folder or on "
                "PYTHONPATH"
            ) from error
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{what} {name!r}: importing {module_name} failed with {reason}") from error
    found = getattr(module, attribute, None)
    if found is None:
        raise UserError(f"{what} {name!r}: module {module_name} has no {attribute!r}")
    if not isinstance(found, kind):
        raise UserError(
            f"{what} {name!r}: {attribute} is of type {type(found).__name__}, not a "
            f"{kind.__name__} of {kind.__module__}"
        )
    return found


def _names(missing: str | None, module: str) -> bool:
    """Whether the missing module is the wanted one or a package above it, not one it imports."""
    return missing is not None and f"{module}.".startswith(f"{missing}.")
