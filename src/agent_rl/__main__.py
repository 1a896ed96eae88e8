"""Command line: one run, and four ways to look at tasks and rewards; `make help` lists the rest."""

from __future__ import annotations

import sys
from collections.abc import Sequence

USAGE = """usage: python -m agent_rl COMMAND ...

  run [key=value ...]   one run, see below
  play TASK             play a task yourself, in the terminal
  watch TASK            see a policy play, turn by turn: --policy oracle|base|random|FOLDER
  audit TASK            what scripted exploits earn under each reward: --reward NAME
  tasks                 the tasks, their sizes and how long they take an expert
  COMMAND --help        all options of play, watch, audit and tasks

run: base policy (made once, then reused), training, evaluation
  task=babyai  method=grpo|sft|rft|dpo  reward=sparse|dense|shaped|dense_naive|rubric
  credit=trajectory|turn  group_size=8  horizon=12  seed=0  profile=smoke|default|full
  any other key=value is a Hydra override of configs/study.yaml, e.g. train.budget_tokens=500000

examples: python -m agent_rl run task=babyai method=grpo reward=shaped credit=turn seed=3
          python -m agent_rl play babyai --seed 3
          python -m agent_rl watch babyai --policy artifacts/babyai/train/grpo_shaped/seed-0
          python -m agent_rl audit babyai --reward dense_naive --reward shaped
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
    if command == "play":
        from agent_rl.stages.play import main as play

        return play(rest)
    if command == "watch":
        from agent_rl.stages.watch import main as watch

        return watch(rest)
    if command == "audit":
        from agent_rl.stages.audit_table import main as audit

        return audit(rest)
    if command == "tasks":
        from agent_rl.stages.tasks import main as tasks

        return tasks(rest)
    print(f"error: unknown command {command!r}; try `python -m agent_rl --help`", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
