"""The study's settings as frozen dataclasses, loaded once and checked before any work starts.

``configs/`` (Hydra) is the source; ``params.yaml`` is its committed composition, which DVC tracks.
An unknown key, a wrong type or a wrong combination is refused with the key, the value and what to
do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agent_rl.errors import UserError

T = TypeVar("T")

PARAMS = Path("params.yaml")
MATRIX = "matrix"
"""Key of ``params.yaml`` under which ``dvc.yaml`` finds the names of tasks and arms."""


@dataclass(frozen=True, slots=True)
class SplitSizes:
    """Distinct instances per split."""

    train: int
    val: int
    test: int
    shifted: int


@dataclass(frozen=True, slots=True)
class DemonstrationConfig:
    """Demonstrations of mixed purpose that stand for pretraining; shares sum to 1."""

    episodes: int
    right: float
    wrong: float
    nearest: float
    wander: float
    quit: float
    noise: float


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """One task of the study."""

    family: str
    """Name in the task registry."""
    settings: dict[str, Any]
    """Arguments of the task (level, sizes)."""
    horizon: int
    """Turns an episode may take."""
    max_action_tokens: int
    """Tokens an action may take."""
    max_tokens: int
    """Tokens an episode may take."""
    held_out: tuple[str, ...]
    """Goals that only the shifted split contains."""
    shifted_settings: dict[str, Any]
    """Settings that differ in the shifted split, e.g. one look-up more."""
    instances: SplitSizes
    demonstrations: DemonstrationConfig
    budget_tokens: int | None
    """What ``train.budget_tokens`` is on this task, where it differs."""
    collect_instances: int | None
    """What ``collect.instances`` is on this task, where it differs."""

    def on(self, split: str) -> TaskConfig:
        """The task as it is played on one split."""
        if split != "shifted" or not self.shifted_settings:
            return self
        return replace(self, settings={**self.settings, **self.shifted_settings})


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """Low-rank adapters instead of full fine-tuning."""

    enabled: bool
    rank: int
    alpha: int
    target_modules: tuple[str, ...]
    learning_rate_factor: float
    """Multiplies every arm's learning rate when adapters are trained."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The policy's model."""

    source: str
    """``scratch``, or a hub id or folder of a causal LM with a chat template."""
    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int
    dropout: float
    instructions: bool
    """Whether the task's instructions are given as a system message."""
    tools: bool
    """Whether tasks that offer tools are played by calling them, in the model's own format."""
    lora: LoraConfig


@dataclass(frozen=True, slots=True)
class WarmstartConfig:
    """Training of the base policy on the mixed demonstrations."""

    steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float


@dataclass(frozen=True, slots=True)
class CollectConfig:
    """Episodes of the base policy on training instances, in groups."""

    instances: int
    group_size: int
    temperature: float
    probe_instances: int
    """Instances of the probe: larger groups that only tell how many groups would be dead."""
    probe_group_size: int
    """Episodes per instance of the probe; one half predicts, the other measures. No arm learns
    from them."""


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """Scripted policies under every reward."""

    instances: int
    """Training instances that each scripted policy plays."""


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """What all arms share."""

    budget_tokens: int
    """Tokens that every arm may process: sampling, training and data generation together."""
    validation_points: int
    """Evaluations on validation instances along the way, the first before training."""
    validation_instances: int
    warmup_share: float
    """Share of the budget over which the learning rate rises."""
    weight_decay: float
    max_grad_norm: float


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """Held-out episodes."""

    decodings: tuple[str, ...]
    batch_size: int


@dataclass(frozen=True, slots=True)
class JudgeConfig:
    """A model that ranks the trajectories of a group, behind an OpenAI-compatible endpoint."""

    url: str
    """Base address, e.g. ``http://localhost:8000/v1``; requests go nowhere else."""
    model: str
    """Name of the model at the endpoint."""
    key_variable: str
    """Environment variable that holds the key; empty for none. The key itself stands nowhere."""
    orders: int
    """Random orders in which a group is shown; their scores are averaged. Two or more tell how
    much the order matters."""
    attempts: int
    """Requests per group and order before the group counts as invalid."""
    timeout: float
    """Seconds that one request may take."""
    concurrency: int
    """Requests under way at once."""
    max_answer_tokens: int
    """Tokens that the answer may take."""


@dataclass(frozen=True, slots=True)
class RewardConfig:
    """A reward specification, see :mod:`agent_rl.rewards`."""

    name: str
    """A registered reward, or ``module:ATTRIBUTE`` for one of your own."""
    scale: float
    """k of the shaped reward; unused by the others."""
    gamma: float
    """Discount inside shaping and returns."""
    criteria: dict[str, float]
    """Criterion -> weight of the rubric reward; empty for the others."""
    judge: JudgeConfig | None
    """Only for the reward ``judge``."""


@dataclass(frozen=True, slots=True)
class CreditConfig:
    """How a return becomes an advantage."""

    name: Literal["trajectory", "turn"]
    normalisation: Literal["group", "batch", "none"]
    epsilon: float
    gae_lambda: float
    """Below 1, turn-level credit trusts the potential of the shaped reward more than what
    followed: GAE with V = k Phi."""


@dataclass(frozen=True, slots=True)
class SupervisedConfig:
    """Next-token training on the actions of demonstrations (sft) or own successes (rft)."""

    kind: Literal["sft", "rft"]
    learning_rate: float
    batch_size: int


@dataclass(frozen=True, slots=True)
class PreferenceConfig:
    """Single-turn DPO on branch-point pairs."""

    kind: Literal["dpo"]
    learning_rate: float
    batch_size: int
    beta: float
    pairs_per_group: int
    """Most pairs that one group may give."""


@dataclass(frozen=True, slots=True)
class GRPOArmConfig:
    """Trajectory-level RL, on-policy."""

    kind: Literal["grpo"]
    learning_rate: float
    reward: RewardConfig
    credit: CreditConfig
    group_size: int
    episodes_per_update: int
    minibatches: int
    """Optimiser steps per batch of rollouts."""
    iterations: int
    """Passes over a batch of rollouts."""
    micro_batches: int
    """Length-sorted pieces of a minibatch whose gradients are summed; changes speed only."""
    clip: float
    """PPO clip range."""
    beta: float
    """Weight of the KL to the start policy."""
    importance: Literal["token", "sequence"]
    loss: Literal["dapo", "grpo", "dr_grpo"]
    temperature: float
    top_p: float
    skip_dead_instances: bool
    """Leave out training instances that the base always or never solved in the collected groups."""
    sft_share: float
    """Share of the token budget spent on expert SFT before RL; 0 for none."""
    sft_learning_rate: float
    sft_batch_size: int


ArmConfig = SupervisedConfig | PreferenceConfig | GRPOArmConfig

_ARM_KINDS: dict[str, type[ArmConfig]] = {
    "sft": SupervisedConfig,
    "rft": SupervisedConfig,
    "dpo": PreferenceConfig,
    "grpo": GRPOArmConfig,
}


@dataclass(frozen=True, slots=True)
class StudyConfig:
    """Everything that decides a result."""

    profile: str
    seed: int
    """Root of every random stream."""
    seeds: tuple[int, ...]
    """Training seeds: the replicates."""
    workers: int
    """Processes inside a stage; changes speed, never results."""
    tasks: dict[str, TaskConfig]
    model: ModelConfig
    warmstart: WarmstartConfig
    collect: CollectConfig
    rewards: dict[str, RewardConfig]
    """Every reward that the audit and the reward stage look at, by the name of its file."""
    audit: AuditConfig
    train: TrainConfig
    evaluation: EvaluationConfig
    learning_rates: dict[str, dict[str, float]]
    """Task -> arm -> learning rate tuned there; what is not named keeps its method's."""
    arms: dict[str, ArmConfig] = field(default_factory=dict)

    def task(self, name: str) -> TaskConfig:
        """Settings of one task. Raises: UserError for an unknown name."""
        if name not in self.tasks:
            raise UserError(f"unknown task {name!r}; this study has: {', '.join(self.tasks)}")
        return self.tasks[name]

    def arm(self, name: str) -> ArmConfig:
        """Settings of one arm. Raises: UserError for an unknown name."""
        if name not in self.arms:
            raise UserError(f"unknown arm {name!r}; this study has: {', '.join(self.arms)}")
        return self.arms[name]

    def train_on(self, task: str) -> TrainConfig:
        """What all arms share on one task. Raises: UserError for an unknown task."""
        own = self.task(task).budget_tokens
        return self.train if own is None else replace(self.train, budget_tokens=own)

    def collect_on(self, task: str) -> CollectConfig:
        """Collection on one task. Raises: UserError for an unknown task."""
        own = self.task(task).collect_instances
        return self.collect if own is None else replace(self.collect, instances=own)

    def arm_on(self, name: str, task: str) -> ArmConfig:
        """Settings of one arm with the learning rates that were tuned on ``task``.

        A GRPO arm that starts with SFT has the rate of the arm ``sft`` in that phase.

        Raises: UserError for an unknown arm.
        """
        arm, rates = self.arm(name), self.learning_rates.get(task, {})
        arm = replace(arm, learning_rate=rates.get(name, arm.learning_rate))
        if isinstance(arm, GRPOArmConfig):
            arm = replace(arm, sft_learning_rate=rates.get("sft", arm.sft_learning_rate))
        return arm


def load_params(path: Path = PARAMS) -> StudyConfig:
    """Read ``params.yaml``.

    Raises: UserError when it is missing, is not YAML, or fails a check.
    """
    if not path.exists():
        raise UserError(f"{path} is missing; write it with `make params`")
    try:
        # OmegaConf reads 1e-4 as a number, as DVC does; plain PyYAML reads it as a string.
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OmegaConfBaseException, OSError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} cannot be read: {reason}; write it with `make params`") from error
    except Exception as error:  # the YAML parser's own classes
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is not valid YAML: {reason}") from error
    if isinstance(content, dict):
        matrix = content.pop(MATRIX, None)
        study = study_from(content, where=str(path))
        if matrix != matrix_of(study):
            raise UserError(
                f"{path}.{MATRIX} = {matrix!r}: must list the tasks and arms of the file; "
                "write it with `make params`"
            )
        return study
    return study_from(content, where=str(path))


def matrix_of(study: StudyConfig) -> dict[str, list[str]]:
    """Names over which ``dvc.yaml`` repeats its stages: DVC loops over lists, not over mappings."""
    return {"tasks": sorted(study.tasks), "arms": sorted(study.arms)}


def study_from(content: Any, where: str) -> StudyConfig:
    """Build and check the settings from plain containers."""
    if not isinstance(content, Mapping):
        raise UserError(f"{where}: expected a mapping of settings, got {type(content).__name__}")
    study = _convert(StudyConfig, content, where)
    _check(study, where)
    return study


def _convert(kind: Any, value: Any, where: str) -> Any:
    """Plain containers to dataclasses; every mismatch names its key."""
    origin = get_origin(kind)
    if kind is ArmConfig:
        return _convert_arm(value, where)
    if is_dataclass(kind) and isinstance(kind, type):
        return _convert_dataclass(kind, value, where)
    if origin is Literal:
        if value not in get_args(kind):
            raise UserError(f"{where}: {value!r} is not one of {', '.join(get_args(kind))}")
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise UserError(f"{where}: expected a list, got {value!r}")
        inner = get_args(kind)[0]
        return tuple(_convert(inner, item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise UserError(f"{where}: expected a mapping, got {value!r}")
        inner = get_args(kind)[1]
        return {str(key): _convert(inner, item, f"{where}.{key}") for key, item in value.items()}
    if origin in (Union, UnionType):
        if value is None and NoneType in get_args(kind):
            return None
        inner = next(option for option in get_args(kind) if option is not NoneType)
        return _convert(inner, value, where)
    if kind is Any:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise UserError(f"{where}: expected {kind.__name__}, got {value!r}")
    return value


def _convert_dataclass(kind: type[T], value: Any, where: str) -> T:
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: expected a mapping, got {value!r}")
    hints = get_type_hints(kind)
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    unknown = [str(key) for key in value if key not in known]
    if unknown:
        raise UserError(f"{where}: unknown key {unknown[0]!r}; known keys: {', '.join(known)}")
    missing = [name for name in known if name not in value]
    if missing:
        raise UserError(f"{where}: key {missing[0]!r} is missing")
    return kind(**{name: _convert(hints[name], value[name], f"{where}.{name}") for name in known})


def _convert_arm(value: Any, where: str) -> ArmConfig:
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if kind not in _ARM_KINDS:
        raise UserError(f"{where}.kind: {kind!r} is not one of {', '.join(_ARM_KINDS)}")
    return _convert_dataclass(_ARM_KINDS[kind], value, where)


def _check(study: StudyConfig, where: str) -> None:
    """Refuse combinations that would run and be wrong."""

    def refuse(key: str, value: object, why: str) -> None:
        raise UserError(f"{where}.{key} = {value!r}: {why}")

    _check_ranges(study, refuse)
    if not study.seeds or len(set(study.seeds)) != len(study.seeds):
        refuse("seeds", list(study.seeds), "training seeds must be distinct and at least one")
    if min(study.seeds) < 0:
        refuse("seeds", list(study.seeds), "training seeds must not be negative")
    if study.workers < 1:
        refuse("workers", study.workers, "at least one process is needed")
    if study.model.dropout != 0:
        refuse(
            "model.dropout",
            study.model.dropout,
            "dropout makes the sampler and the trainer disagree on every log-probability; set 0",
        )
    if study.model.hidden_size % study.model.heads:
        refuse("model.heads", study.model.heads, "must divide model.hidden_size")
    if study.train.validation_points < 2:
        refuse("train.validation_points", study.train.validation_points, "first and last are kept")
    if study.train.budget_tokens < 1:
        refuse("train.budget_tokens", study.train.budget_tokens, "must be positive")
    for decoding in study.evaluation.decodings:
        if decoding not in ("greedy", "t1"):
            refuse("evaluation.decodings", decoding, "known decodings: greedy, t1")
    if study.collect.group_size < 2:
        refuse("collect.group_size", study.collect.group_size, "a group needs two members or more")
    for name, task in study.tasks.items():
        shares = task.demonstrations
        total = shares.right + shares.wrong + shares.nearest + shares.wander + shares.quit
        if abs(total - 1) > 1e-9:
            refuse(
                f"tasks.{name}.demonstrations",
                total,
                "right + wrong + nearest + wander + quit must be 1",
            )
        if study.train.validation_instances > task.instances.val:
            refuse(
                "train.validation_instances",
                study.train.validation_instances,
                f"task {name} has only {task.instances.val} validation instances",
            )
        for key, wanted in (
            ("collect.probe_instances", study.collect.probe_instances),
            ("audit.instances", study.audit.instances),
        ):
            if wanted > task.instances.train:
                refuse(
                    key, wanted, f"task {name} has only {task.instances.train} training instances"
                )
        if study.collect_on(name).instances > task.instances.train:
            refuse(
                "collect.instances",
                study.collect_on(name).instances,
                f"task {name} has only {task.instances.train} training instances",
            )
    if study.collect.probe_group_size % 2:
        refuse(
            "collect.probe_group_size",
            study.collect.probe_group_size,
            "must be even: one half of the members predicts, the other measures",
        )
    for name, reward in study.rewards.items():
        _check_reward(reward, f"rewards.{name}", refuse)
    for name, rates in study.learning_rates.items():
        for arm_name, rate in rates.items():
            if not 0 < rate < float("inf"):
                refuse(f"learning_rates.{name}.{arm_name}", rate, "must be positive")
    for name, arm in study.arms.items():
        if arm.learning_rate <= 0:
            refuse(f"arms.{name}.learning_rate", arm.learning_rate, "must be positive")
        if isinstance(arm, GRPOArmConfig):
            _check_grpo(arm, f"arms.{name}", refuse)


def _check_ranges(study: StudyConfig, refuse: Any) -> None:
    """Numbers that would only fail later, some after hours of training."""
    least: list[tuple[str, float, float]] = [
        ("model.layers", study.model.layers, 1),
        ("model.hidden_size", study.model.hidden_size, 1),
        ("warmstart.steps", study.warmstart.steps, 1),
        ("warmstart.batch_size", study.warmstart.batch_size, 1),
        ("collect.instances", study.collect.instances, 1),
        ("collect.probe_instances", study.collect.probe_instances, 2),
        ("collect.probe_group_size", study.collect.probe_group_size, 4),
        ("audit.instances", study.audit.instances, 2),
        ("rewards", len(study.rewards), 1),
        ("train.validation_instances", study.train.validation_instances, 1),
        ("train.warmup_share", study.train.warmup_share, 0),
        ("evaluation.batch_size", study.evaluation.batch_size, 1),
        ("evaluation.decodings", len(study.evaluation.decodings), 1),
    ]
    for name, task in study.tasks.items():
        sizes, shares = task.instances, task.demonstrations
        least += [
            (f"tasks.{name}.horizon", task.horizon, 2),
            (f"tasks.{name}.max_action_tokens", task.max_action_tokens, 1),
            *(
                (f"tasks.{name}.{key}", own, 1)
                for key in ("budget_tokens", "collect_instances")
                if (own := getattr(task, key)) is not None
            ),
            (f"tasks.{name}.instances.train", sizes.train, 1),
            (f"tasks.{name}.instances.test", sizes.test, 1),
            (f"tasks.{name}.instances.shifted", sizes.shifted, 1),
            (f"tasks.{name}.demonstrations.episodes", shares.episodes, 1),
            (f"tasks.{name}.demonstrations.noise", shares.noise, 0),
            (f"tasks.{name}.demonstrations.1 - noise", 1 - shares.noise, 0),
            *(
                (f"tasks.{name}.demonstrations.{kind}", getattr(shares, kind), 0)
                for kind in ("right", "wrong", "nearest", "wander", "quit")
            ),
        ]
    for name, arm in study.arms.items():
        least.append((f"arms.{name}.learning_rate", arm.learning_rate, 0))
        if isinstance(arm, (SupervisedConfig, PreferenceConfig)):
            least.append((f"arms.{name}.batch_size", arm.batch_size, 1))
        if isinstance(arm, PreferenceConfig):
            least.append((f"arms.{name}.pairs_per_group", arm.pairs_per_group, 1))
            least.append((f"arms.{name}.beta", arm.beta, 0))
    for key, value, minimum in least:
        if not value >= minimum or value == float("inf"):  # nan fails the first
            refuse(key, value, f"must be a number of at least {minimum:g}")


def _check_grpo(arm: GRPOArmConfig, key: str, refuse: Any) -> None:
    if arm.group_size < 2:
        refuse(
            f"{key}.group_size",
            arm.group_size,
            "a group of one has no baseline: its advantage would be the raw reward or zero; "
            "take at least 2",
        )
    if arm.episodes_per_update % arm.group_size:
        refuse(
            f"{key}.group_size", arm.group_size, f"must divide {arm.episodes_per_update} episodes"
        )
    for name in ("minibatches", "iterations", "micro_batches"):
        if getattr(arm, name) < 1:
            refuse(f"{key}.{name}", getattr(arm, name), "must be at least 1")
    if arm.episodes_per_update % (arm.minibatches * arm.micro_batches):
        refuse(
            f"{key}.episodes_per_update",
            arm.episodes_per_update,
            f"must be a multiple of minibatches x micro_batches = "
            f"{arm.minibatches * arm.micro_batches}; fewer episodes would be played",
        )
    if arm.temperature <= 0:
        refuse(f"{key}.temperature", arm.temperature, "training samples, so it must be positive")
    if arm.top_p != 1:
        refuse(
            f"{key}.top_p",
            arm.top_p,
            "a truncated sampler renormalises: its log-probabilities are not the trainer's; set 1",
        )
    if arm.beta > 0 and arm.importance == "sequence":
        refuse(
            f"{key}.beta",
            arm.beta,
            "the KL term is wrong with sequence-level ratios; set beta 0 or importance token",
        )
    if not 0 <= arm.sft_share < 1:
        refuse(f"{key}.sft_share", arm.sft_share, "must lie in [0, 1)")
    _check_reward(arm.reward, f"{key}.reward", refuse)
    if arm.reward.gamma != 1 and arm.reward.name == "shaped" and arm.credit.name == "trajectory":
        refuse(
            f"{key}.reward.gamma",
            arm.reward.gamma,
            "an undiscounted sum of discounted shaping pays for dwelling; set 1 or credit turn",
        )
    _check_credit(arm, f"{key}.credit", refuse)


def _check_credit(arm: GRPOArmConfig, key: str, refuse: Any) -> None:
    if not arm.credit.epsilon >= 0:
        refuse(f"{key}.epsilon", arm.credit.epsilon, "must not be negative")
    if not 0 <= arm.credit.gae_lambda <= 1:
        refuse(f"{key}.gae_lambda", arm.credit.gae_lambda, "must lie in [0, 1]")
    if arm.credit.gae_lambda < 1 and (arm.credit.name != "turn" or arm.reward.name != "shaped"):
        refuse(
            f"{key}.gae_lambda",
            arm.credit.gae_lambda,
            "below 1 it leans on the potential of the shaped reward, turn by turn; "
            "set 1, or reward shaped with credit turn",
        )


def _check_reward(reward: RewardConfig, key: str, refuse: Any) -> None:
    """Refuse a reward whose settings contradict its name; names are resolved by ``rewards``."""
    if not 0 < reward.gamma <= 1:
        refuse(f"{key}.gamma", reward.gamma, "must lie in (0, 1]")
    if not -float("inf") < reward.scale < float("inf"):
        refuse(f"{key}.scale", reward.scale, "must be a finite number")
    if (reward.name == "rubric") != bool(reward.criteria):
        refuse(
            f"{key}.criteria",
            reward.criteria,
            "the reward rubric needs weights by criterion, and no other reward reads them",
        )
    for criterion, weight in reward.criteria.items():
        if not 0 <= weight <= 1:
            refuse(f"{key}.criteria.{criterion}", weight, "a weight must lie in [0, 1]")
    if reward.criteria and abs(sum(reward.criteria.values()) - 1) > 1e-9:
        refuse(f"{key}.criteria", reward.criteria, "the weights must sum to 1")
    if (reward.name == "judge") != (reward.judge is not None):
        refuse(
            f"{key}.judge",
            reward.judge,
            "the reward judge needs an endpoint, and no other reward reads it",
        )
    if reward.judge is not None:
        _check_judge(reward.judge, f"{key}.judge", refuse)


def _check_judge(judge: JudgeConfig, key: str, refuse: Any) -> None:
    if not judge.url.startswith(("http://", "https://")):
        refuse(
            f"{key}.url",
            judge.url,
            "no endpoint is configured; set the base address of an OpenAI-compatible server, "
            "e.g. http://localhost:8000/v1",
        )
    if not judge.model:
        refuse(f"{key}.model", judge.model, "name the model at the endpoint")
    for name in ("orders", "attempts", "concurrency", "max_answer_tokens"):
        if getattr(judge, name) < 1:
            refuse(f"{key}.{name}", getattr(judge, name), "must be at least 1")
    if not 0 < judge.timeout < float("inf"):
        refuse(f"{key}.timeout", judge.timeout, "must be a positive number of seconds")
