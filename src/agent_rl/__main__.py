"""Command line: ``python -m agent_rl run ...`` makes one run; ``make help`` lists the rest."""

from __future__ import annotations

import sys
from collections.abc import Sequence

USAGE = """usage: python -m agent_rl run [key=value ...]

one run: base policy (made once, then reused), training, evaluation
  task=babyai  method=grpo|sft|rft|dpo  reward=sparse|dense|shaped|dense_naive
  credit=trajectory|turn  group_size=8  horizon=12  seed=0  profile=smoke|default|full
  any other key=value is a Hydra override of configs/study.yaml, e.g. train.budget_tokens=500000

example: python -m agent_rl run task=babyai method=grpo reward=shaped credit=turn seed=3
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Dispatch; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    command, *rest = arguments
    if command == "run":
        from agent_rl.stages.run import main as run

        return run(rest)
    print(f"error: unknown command {command!r}; try `python -m agent_rl --help`", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
