"""A process that has imported the heavy libraries and forks a child for every run of tests.

Importing torch and TRL takes longer than most tests that must catch a fault. A child starts with
them and with nothing of the package: it imports that from the copy it is told.

Reads one JSON request a line (``source``, ``arguments``, ``environment``, ``output``, ``limit``)
and answers each with the exit status of the child.
"""

import importlib
import json
import os
import signal
import sys

LIBRARIES = (
    "hypothesis",
    "matplotlib.pyplot",
    "minigrid.envs.babyai.core.verifier",
    "pandas",
    "peft",
    "pyarrow.parquet",
    "scipy.stats",
    "seaborn",
    "transformers.models.llama.modeling_llama",
    "trl.trainer.dpo_trainer",
    "trl.trainer.grpo_trainer",
    "trl.trainer.sft_trainer",
)


def child(request: dict) -> None:
    """Run pytest; never returns."""
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(request["environment"])
    sys.path.insert(0, request["source"])
    signal.alarm(request["limit"])  # a run that hangs is ended by the system
    import pytest

    status = int(pytest.main(request["arguments"]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    assert not any(name.split(".")[0] == "agent_rl" for name in sys.modules)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            child(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
