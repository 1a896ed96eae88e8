"""Stage ``showcase``: episodes of one run on a task that the study need not hold, for the report.

One run of the arm that the rule of the transcripts names first, made as ``python -m agent_rl run``
makes it; the oracle and the base are evaluated beside it, and the episodes are chosen by the same
rule. One training seed describes a policy and supports no comparison.

Run it:  python -m agent_rl.stages.showcase --task textworld [--seed 0] [key=value as for run]
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_rl.errors import UserError
from agent_rl.evaluation.transcripts import FIRST_ARM, select, transcripts
from agent_rl.files import write_json
from agent_rl.stages.common import RESULTS, guarded, load_instances, shared_digest
from agent_rl.stages.run import ARM, Finished, Plan, make_run, plan, shared_artifacts, success_rate

FOLDER = "showcase"
"""Folder of the results in which every task shown has a file."""
ARM_WORDS = ("method=grpo", "reward=shaped", "credit=turn")
"""The words of ``run`` that make the arm :data:`FIRST_ARM` of the study."""
SPLIT, DECODING = "test", "greedy"


def planned_run(task: str, seed: str, words: Sequence[str]) -> Plan:
    """The run to show.

    Raises: UserError for a bad word, one that would make another arm, or settings without greedy
    decoding.
    """
    given = {word.partition("=")[0] for word in words}
    fixed = {word.partition("=")[0] for word in ARM_WORDS}
    if taken := sorted(given & fixed):
        raise UserError(f"{taken[0]}=: the arm shown is {' '.join(ARM_WORDS)}; leave the word out")
    if taken := sorted(given & {"task", "seed"}):
        raise UserError(f"{taken[0]}=: say --{taken[0]} VALUE instead")
    planned = plan([f"task={task}", f"seed={seed}", *ARM_WORDS, *words])
    decodings = planned.trained.evaluation.decodings
    if DECODING not in decodings:
        raise UserError(f"evaluation.decodings={list(decodings)}: {DECODING} episodes are shown")
    return planned


def command(planned: Plan, words: Sequence[str]) -> str:
    """What makes the file again."""
    options = ["--task", planned.task, "--seed", str(planned.seed)]
    return shlex.join(["python", "-m", "agent_rl.stages.showcase", *options, *words])


def header(
    planned: Plan, record: Mapping[str, Any], rows: Sequence[dict[str, Any]], made_by: str
) -> dict[str, Any]:
    """What was run and how well it did.

    Args:
        planned: the run.
        record: its ``run.json``.
        rows: evaluation episodes of the oracle, the base and the run, named as reports name them.
        made_by: the command.

    Returns: plain containers; rates are of greedy test episodes, rounded to six decimals.
    """
    task = planned.trained.task(planned.task)
    methods = dict.fromkeys(row["method"] for row in rows)
    found = {
        method: success_rate([r for r in rows if r["method"] == method], SPLIT, DECODING)
        for method in methods
    }
    return {
        "task": planned.task,
        "family": task.family,
        "settings": task.settings,
        "horizon": task.horizon,
        "test_episodes": min(n for _, n in found.values()),
        "success": {method: round(rate, 6) for method, (rate, _) in found.items()},
        "arm": FIRST_ARM,
        "learning_rate": planned.trained.arm_on(ARM, planned.task).learning_rate,
        "budget_tokens": planned.trained.train_on(planned.task).budget_tokens,
        "total_tokens": record["ledger"]["total_tokens"],
        "seed": planned.seed,
        "study_seed": planned.study.seed,
        "profile": planned.study.profile,
        "run_digest": planned.digest,
        "base_digest": shared_digest(planned.study, planned.task),
        "command": made_by,
    }


def showcase(planned: Plan, made_by: str, results: Path) -> Path:
    """Make the run and write its file. Raises: UserError when the run failed."""
    from agent_rl.parallel import prepare_process
    from agent_rl.stages.evaluate import Contender, evaluate

    prepare_process()
    shared = shared_artifacts(planned.study, planned.task)
    finished = _named(make_run(planned, shared))
    rows, samples = list(finished.rows), list(finished.kept)
    for contender in (Contender("oracle", None, None), Contender("base", None, shared.base)):
        played, kept = evaluate(
            contender, study=planned.trained, task_name=planned.task, artifacts=shared
        )
        rows += played
        samples += kept
    chosen = select(samples, load_instances(shared.instances), [FIRST_ARM])
    path = results / FOLDER / f"{planned.task}.json"
    write_json(
        path,
        {
            "header": header(planned, finished.record, rows, made_by),
            **transcripts(planned.trained, {planned.task: chosen}),
        },
    )
    return path


def _named(finished: Finished) -> Finished:
    """A run calls its arm by a name of its own; the report knows the arm of the study."""
    return finished._replace(
        rows=[{**row, "method": FIRST_ARM} for row in finished.rows],
        kept=[dataclasses.replace(t, policy=FIRST_ARM) for t in finished.kept],
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", required=True, help="a file of configs/task/, e.g. textworld")
    parser.add_argument("--seed", default="0", help="training seed (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("words", nargs="*", metavar="key=value", help="as for `agent_rl run`")
    options = parser.parse_intermixed_args(argv)

    def run() -> None:
        planned = planned_run(options.task, options.seed, options.words)
        path = showcase(planned, command(planned, options.words), options.results)
        print(f"showcase:   {path}")

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
