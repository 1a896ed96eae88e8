"""Splits of instances that share no initial state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_rl.errors import UserError
from agent_rl.tasks.base import TextTask
from agent_rl.tasks.registry import goal_keys, make_task

SPLITS = ("train", "val", "test", "shifted")

SEED_START: dict[str, int] = {
    "train": 0,
    "val": 10_000_000,
    "test": 20_000_000,
    "shifted": 30_000_000,
}
"""First seed of every split; a split never walks into the next range."""

BUILD_ORDER = ("test", "shifted", "val", "train")
"""Train comes last, so that its size never changes what the others hold."""

SEEDS_PER_INSTANCE = 50
MIN_SEEDS = 2_000
"""Seeds that are tried before a split counts as exhausted."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One start of one task."""

    split: str
    instance_id: int
    """Seed that generates the instance."""
    hash: str
    """Hash of the full initial state, equal for states that no observation can tell apart."""
    distance: int
    """Length of a shortest plan, in actions."""
    goal_key: str
    """What the goal is about."""


def build_instances(
    family: str,
    settings: Mapping[str, Any],
    sizes: Mapping[str, int],
    held_out: Sequence[str] = (),
    max_distance: int | None = None,
    seed_start: Mapping[str, int] = SEED_START,
    shifted_settings: Mapping[str, Any] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[list[Instance], dict[str, dict[str, int]]]:
    """Walk through the seeds of every split and keep the distinct, unsolved, reachable starts.

    Train, val and test hold only goals whose key is not in ``held_out``, shifted only goals
    whose key is; as bystanders the objects may appear anywhere. A goal that can be fulfilled on
    both sides ("red ball or grey key") belongs to no split. With ``shifted_settings`` the shifted
    split is made under other settings (say, one look-up more); where no goals are held out, its
    goals are then those of the other splits.

    Args:
        family: name of the task family.
        settings: its settings.
        sizes: instances per split; splits that are left out are empty.
        held_out: goal keys of the shifted split.
        max_distance: longest plan that is kept (the horizon); None keeps all that can be won.
        seed_start: first seed of every split that shall not start where ``SEED_START`` says.
        shifted_settings: settings that differ in the shifted split; the others stay.
        progress: called with (split, found, wanted) after every instance kept.

    Returns: the instances in the order of ``SPLITS``, and for every split the number of seeds
        passed over: ``duplicate``, ``goal`` (on the wrong side of ``held_out``), ``solved`` and
        ``too_far``.
    Raises: UserError for unknown splits or keys, or when a split runs out of seeds.
    """
    _check(family, sizes, held_out, shifted_settings)
    starts = {**SEED_START, **seed_start}
    by_split = {split: dict(settings) for split in SPLITS}
    by_split["shifted"].update(shifted_settings or {})
    trained = make_task(family, settings)
    shifted = make_task(family, by_split["shifted"]) if shifted_settings else trained
    held = frozenset(held_out)
    taken: set[str] = set()
    found: dict[str, list[Instance]] = {split: [] for split in SPLITS}
    skipped: dict[str, dict[str, int]] = {}
    for split in BUILD_ORDER:
        task = shifted if split == "shifted" else trained
        wanted = sizes.get(split, 0)
        counts = {"duplicate": 0, "goal": 0, "solved": 0, "too_far": 0}
        budget = _budget(split, wanted, starts)
        for seed in range(starts[split], starts[split] + budget):
            if len(found[split]) == wanted:
                break
            instance, reason = _look(task, split, seed, held, max_distance, taken)
            if instance is None:
                counts[reason] += 1
                continue
            taken.add(instance.hash)
            found[split].append(instance)
            if progress is not None:
                progress(split, len(found[split]), wanted)
        if len(found[split]) < wanted:
            raise UserError(
                f"split {split} of task {family} {by_split[split]}: only {len(found[split])} of "
                f"{wanted} distinct instances in {budget} seeds (passed over: {counts}); ask for "
                "fewer, or choose settings under which more starts differ"
            )
        skipped[split] = counts
    return [one for split in SPLITS for one in found[split]], {s: skipped[s] for s in SPLITS}


def overlap(instances: Iterable[Instance]) -> int:
    """Number of initial states that occur in more than one split; 0 in a sound study."""
    splits: defaultdict[str, set[str]] = defaultdict(set)
    for instance in instances:
        splits[instance.hash].add(instance.split)
    return sum(len(where) > 1 for where in splits.values())


def _look(
    task: TextTask,
    split: str,
    seed: int,
    held: frozenset[str],
    max_distance: int | None,
    taken: set[str],
) -> tuple[Instance | None, str]:
    """The instance of this seed, or None and why it is passed over."""
    _, info = task.reset(seed=seed)
    key = task.goal_key()
    keys = frozenset(key.split(" or "))
    fits = keys <= held if split == "shifted" and held else not keys & held
    if not fits:
        return None, "goal"
    if info["success"]:
        return None, "solved"
    distance = info["distance"]
    if distance > (max_distance if max_distance is not None else 10**6):
        return None, "too_far"
    digest = task.instance_hash()
    if digest in taken:
        return None, "duplicate"
    return Instance(split, seed, digest, int(distance), key), ""


def _budget(split: str, wanted: int, seed_start: Mapping[str, int]) -> int:
    """Seeds to try: generous, but never into the range of another split."""
    budget = max(MIN_SEEDS, SEEDS_PER_INSTANCE * wanted)
    later = [start for start in seed_start.values() if start > seed_start[split]]
    return min([budget, *(start - seed_start[split] for start in later)])


def _check(
    family: str,
    sizes: Mapping[str, int],
    held_out: Sequence[str],
    shifted_settings: Mapping[str, Any] | None,
) -> None:
    for split, size in sizes.items():
        if split not in SPLITS:
            raise UserError(f"split {split!r} does not exist: choose among {', '.join(SPLITS)}")
        if size < 0:
            raise UserError(f"size {size} of split {split}: must not be negative")
    known = goal_keys(family)
    for key in held_out:
        if key not in known:
            raise UserError(
                f"held-out goal {key!r} of task {family} does not exist: "
                f"choose among {', '.join(known) or '(none)'}"
            )
    if sizes.get("shifted", 0) and not held_out and not shifted_settings:
        raise UserError(
            "split shifted is not empty, but held_out names no goals and shifted_settings no "
            "other settings"
        )
