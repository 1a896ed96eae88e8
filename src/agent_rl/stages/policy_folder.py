"""From a word on the command line to a policy that can play: scripted, the base, or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agent_rl.config import StudyConfig
from agent_rl.errors import UserError
from agent_rl.files import read_json
from agent_rl.rollouts.policies import OraclePolicy, Policy, RandomPolicy
from agent_rl.rollouts.policy_card import CARD, read_card
from agent_rl.rollouts.setup import make_chat
from agent_rl.stages.common import Artifacts

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SCRIPTED: dict[str, type[OraclePolicy] | type[RandomPolicy]] = {
    "oracle": OraclePolicy,
    "random": RandomPolicy,
}
BASES = Path(".work") / "base"
"""Where runs from the command line keep bases of other settings than the study's."""
MADE_BY = "make repro"


def make_policy(
    word: str,
    *,
    study: StudyConfig,
    task_name: str,
    artifacts: Artifacts,
    temperature: float | None,
) -> Policy:
    """The policy that a word names: ``oracle``, ``random``, ``base`` or a policy folder.

    Args:
        word: what was asked for.
        study: settings that hold the task.
        task_name: the task.
        artifacts: where the task's base lies.
        temperature: softmax temperature of a model; None is 0, greedy.

    Raises: UserError when there is no such policy, when it belongs to another task or base, or for
        a temperature that does not fit.
    """
    if word in SCRIPTED:
        if temperature is not None:
            raise UserError(f"--temperature {temperature:g}: policy {word} has none; leave it out")
        return SCRIPTED[word]()
    if temperature is not None and not 0 <= temperature < float("inf"):
        raise UserError(f"--temperature {temperature}: must be a number of at least 0")
    folder = _base_folder(artifacts) if word == "base" else find_folder(Path(word))
    card = read_card(folder, MADE_BY)
    if card["task"] != task_name:
        raise UserError(f"{folder} was trained on task {card['task']}, not on {task_name}")
    return _load(folder, card, study, task_name, artifacts, temperature or 0.0)


def _load(
    folder: Path,
    card: dict[str, Any],
    study: StudyConfig,
    task_name: str,
    artifacts: Artifacts,
    temperature: float,
) -> Policy:
    from agent_rl.parallel import prepare_process
    from agent_rl.rollouts.model_policy import ModelPolicy
    from agent_rl.rollouts.models import load_policy

    prepare_process()
    base = None
    if card["adapter"]:
        base = _base_of(card, artifacts)
    model, tokenizer, _ = load_policy(folder, MADE_BY, base)
    task = study.task(task_name)
    return ModelPolicy(
        str(card["method"]),
        cast("PreTrainedModel", model),  # adapters act like the model they wrap
        make_chat(tokenizer, task, study.model),
        temperature=temperature,
        max_action_tokens=task.max_action_tokens,
        max_tokens=task.max_tokens,
        weights=card["weights"],
    )


def _base_folder(artifacts: Artifacts) -> Path:
    if not (artifacts.base / CARD).exists():
        raise UserError(
            f"{artifacts.base}/{CARD} is missing; make the base with "
            f"`dvc repro warmstart@{artifacts.root.name}` (or the whole study with `make repro`)"
        )
    return artifacts.base


def find_folder(path: Path) -> Path:
    """The policy folder at a path, or the one that a run of the command line left below it.

    Raises: UserError that says what lies there instead.
    """
    for folder in (path, path / "policy"):
        if (folder / CARD).exists():
            return folder
        if (folder / "run.json").exists():
            record = read_json(folder / "run.json", MADE_BY)
            reason = record.get("reason") if isinstance(record, dict) else None
            raise UserError(f"{folder} holds a run without a policy: {reason or 'no reason given'}")
    if not path.is_dir():
        raise UserError(
            f"--policy {path}: no such folder; take oracle, base, random or a policy folder, "
            "e.g. artifacts/babyai/train/sft/seed-0"
        )
    inside = sorted(card.parent.name for card in path.glob(f"*/{CARD}"))
    hint = f"; choose one of the folders in it: {', '.join(inside)}" if inside else ""
    raise UserError(f"--policy {path}: no policy there ({CARD} is missing){hint}")


def _base_of(card: dict[str, Any], artifacts: Artifacts) -> Path:
    """Folder of the base that adapters belong to; the study's own where none fits, so that loading
    says what does not."""
    candidates = [artifacts.base, *sorted(BASES.glob(f"*/{card['task']}/base"))]
    for folder in candidates:
        if (folder / CARD).exists() and read_card(folder, MADE_BY)["weights"] == card[
            "base_weights"
        ]:
            return folder
    return artifacts.base
