"""Independent runs in parallel processes, one torch thread each, under one progress bar."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import queue
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from tqdm import tqdm

from agent_rl.errors import UserError, out_of_memory

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
"""Parameters of glibc's ``mallopt``."""

Item = TypeVar("Item")
Result = TypeVar("Result")

PRELOAD = "AGENT_RL_PRELOAD"
"""What ``preload.py`` calls it; to import that module is to do its work."""

_ticks: Any = None


def tick(share: float) -> None:
    """Report that a further share (0..1) of the present item is done."""
    if _ticks is not None:
        _ticks.put(share)


def _start_worker(ticks: Any) -> None:
    global _ticks
    _ticks = ticks
    os.environ["TQDM_DISABLE"] = "1"  # libraries' bars; the only one is the parent's
    prepare_process()


def prepare_process() -> None:
    """Settings of every process that runs a model.

    One torch thread: small models gain nothing from two, and the order of a parallel sum would
    make results depend on the machine's load. Libraries' own progress bars are off; ours is the
    only one.
    """
    import datasets
    import torch
    import transformers

    _keep_freed_memory()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    warnings.filterwarnings("ignore", category=FutureWarning)

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # CUDA's part of determinism
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    # That mode also fills every fresh buffer with NaN, which costs more than the training of a
    # small model; no code here reads memory that it did not write.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _keep_freed_memory() -> None:
    """Let glibc keep freed blocks: a training step frees and allocates the same megabytes again
    and again, and giving them back to the kernel each time costs a quarter of the step."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)
        mallopt(_M_TOP_PAD, 1 << 27)


def run_parallel(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int,
    title: str,
    preload: Sequence[str] = (),
) -> list[Result]:
    """``[function(item) for item in items]`` in processes; results in the order of the items.

    ``function`` must be importable (a module-level function or a partial of one) and may call
    :func:`tick`. The first exception stops the run.

    Args:
        function: what is done with an item.
        items: its arguments.
        workers: most processes at a time.
        title: what the progress bar and an error call it.
        preload: modules that every worker needs; they are imported once for all of them.

    Raises: UserError when a worker died without an exception.
    """
    bar = tqdm(total=len(items), desc=title, unit="run", bar_format=_BAR)
    # A worker costs an import of torch and transformers: never start one that has nothing to do.
    workers = min(workers, len(items))
    context = _context(preload)
    # Threads of numerical libraries are read at their import, so set them for the children.
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    with _children_deaf_to_interrupts():
        ticks = context.Manager().Queue()
    before = set(multiprocessing.active_children())
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=_start_worker, initargs=(ticks,)
    ) as pool:
        try:
            with _children_deaf_to_interrupts():
                futures = [pool.submit(function, item) for item in items]
            _watch(futures, ticks, bar)
            bar.n = len(items)
        except BrokenProcessPool as error:
            raise _lost_worker(title) from error
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            if out_of_memory(error):
                raise _lost_worker(title) from error
            if isinstance(error, KeyboardInterrupt):
                for child in set(multiprocessing.active_children()) - before:
                    child.terminate()
            raise
        finally:
            bar.close()  # ends its line, so that an error has one of its own
    return [future.result() for future in futures]


def _context(preload: Sequence[str]) -> Any:
    """Workers fork from a process that has imported ``preload`` and done nothing else: no thread,
    no generator and no model of the parent comes along. Where that cannot be done, each imports."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    os.environ[PRELOAD] = ",".join(["torch", "transformers", "datasets", __name__, *preload])
    context.set_forkserver_preload(["agent_rl.preload"])
    return context


def _lost_worker(title: str) -> UserError:
    return UserError(
        f"{title}: a worker process was killed or ran out of memory; free memory or set "
        "workers: 1, and run the same command again (what is finished is kept)"
    )


@contextlib.contextmanager
def _children_deaf_to_interrupts() -> Iterator[None]:
    """Processes started in the block never see Ctrl-C, which a terminal sends to all at once: the
    parent alone answers it, in one line, and ends them."""
    resource_tracker.ensure_running()  # its start would clear the mask
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


_BAR = "{desc}: {percentage:3.0f}%|{bar}| {n:.1f}/{total} {unit}s [{elapsed}, {remaining} left]"


def _watch(futures: Sequence[Future[Any]], ticks: Any, bar: Any) -> None:
    pending = set(futures)
    while pending:
        finished, pending = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in finished:
            future.result()
        while True:
            try:
                bar.n = min(bar.total, bar.n + ticks.get_nowait())
            except queue.Empty:
                break
        bar.refresh()
