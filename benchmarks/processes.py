"""Fresh processes for timings: one torch thread, nothing cached, nothing left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from agent_rl.errors import UserError


def _prepared(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    from agent_rl.parallel import prepare_process

    os.environ["TQDM_DISABLE"] = "1"  # libraries' bars; the only one is the parent's
    prepare_process()
    return work(*arguments)


def in_a_new_process(work: Callable[..., Any], *arguments: Any, torch: bool = True) -> Any:
    """Result of a call in a process that has imported and cached nothing yet.

    Args:
        work: an importable function.
        torch: whether it runs a model and needs the settings for that.

    Raises: UserError when the process was killed, e.g. for memory; what ``work`` raised.
    """
    # Threads of numerical libraries are read at their import, so set them for the child.
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    # Not a Pool, whose processes may not have children: a case may play in two processes at once.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        future = pool.submit(_prepared, work, arguments) if torch else pool.submit(work, *arguments)
        try:
            return future.result()
        except BrokenProcessPool as error:
            raise UserError(
                "a process of the benchmark was killed or ran out of memory; free memory and run "
                "the same command again"
            ) from error


def settle() -> None:
    """Let no search for garbage among the imported libraries (0.2 s) fall on what is timed next."""
    gc.collect()
    gc.freeze()


def peak_memory() -> float:
    """Largest resident size of this process so far, libraries included, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
