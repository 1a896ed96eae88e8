"""One arm, one seed: from the shared base to a trained policy, a curve and a bill."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from agent_rl.config import (
    ArmConfig,
    GRPOArmConfig,
    PreferenceConfig,
    StudyConfig,
    SupervisedConfig,
    TaskConfig,
)
from agent_rl.files import atomic_directory, code_digest, digest, write_json
from agent_rl.rollouts.engine import Episode
from agent_rl.rollouts.model_policy import ModelPolicy
from agent_rl.rollouts.models import (
    add_adapters,
    load_policy,
    save_policy,
    tokenizer_fingerprint,
    weights_fingerprint,
)
from agent_rl.rollouts.policies import TokenRecord
from agent_rl.rollouts.setup import make_chat, make_engine
from agent_rl.seeding import Stream, generator, integer_seed, sequence
from agent_rl.tasks.instances import Instance
from agent_rl.training.checkpoints import Checkpoints
from agent_rl.training.grpo import train_grpo
from agent_rl.training.ledger import CURVE, RUN, Ledger
from agent_rl.training.loop import RunLog, TrainingCollapse, Validation
from agent_rl.training.preference import branch_pairs, train_preference
from agent_rl.training.supervised import supervised_dataset, train_supervised, written_tokens
from agent_rl.trajectory import Trajectory, TrajectoryGroup

LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate")
"""A run is not continued by other versions of these."""


@dataclass(frozen=True, slots=True)
class ArmInputs:
    """What an arm may learn from."""

    study: StudyConfig
    task_name: str
    instances: Sequence[Instance]
    base: Path
    """Folder of the base policy."""
    expert: Callable[[], Sequence[Trajectory]]
    """Expert demonstrations on training instances; read only by arms that use them."""
    groups: Callable[[], Sequence[TrajectoryGroup]]
    """Groups that the base policy played on training instances."""

    @property
    def task(self) -> TaskConfig:
        return self.study.task(self.task_name)

    def split(self, name: str) -> list[Instance]:
        return [instance for instance in self.instances if instance.split == name]


class Run:
    """One training run: the model under training with everything that surrounds it."""

    def __init__(
        self, inputs: ArmInputs, arm_name: str, seed: int, tick: Callable[[float], Any]
    ) -> None:
        study, task = inputs.study, inputs.task
        self.inputs = inputs
        self.arm: ArmConfig = study.arm_on(arm_name, inputs.task_name)
        self.arm_name = arm_name
        self.seed = seed
        model, tokenizer, card = load_policy(inputs.base, "dvc repro warmstart")
        self.tokenizer: PreTrainedTokenizerBase = tokenizer
        self.base_weights = str(card["weights"])
        # Adapters wrap the model without changing how it is called.
        self.model = cast(PreTrainedModel, model)
        if study.model.lora.enabled:
            init = integer_seed(study.seed, seed, Stream.INIT)
            self.model = cast(PreTrainedModel, add_adapters(self.model, study.model, init))
        self.chat = make_chat(tokenizer, task, study.model)
        self.engine = make_engine(inputs.task_name, task, seed=seed)
        self.ledger = Ledger()
        self.settings = study.train_on(inputs.task_name)
        self.checkpoints: Checkpoints | None = None
        self.log = RunLog(
            self.settings,
            self.ledger,
            self._validation(),
            tick,
            stop=self.settings.budget_tokens,
        )

    def card(self) -> dict[str, str]:
        """What decides the run, so that a checkpoint of another one is refused."""
        return {
            "run": run_digest(self.inputs.study, self.inputs.task_name, self.arm_name, self.seed),
            "code": code_digest(),
            "libraries": digest({name: version(name) for name in LIBRARIES}),
            "base": self.base_weights,
            "tokenizer": tokenizer_fingerprint(self.tokenizer),
            "instances": digest([instance.hash for instance in self.inputs.instances]),
        }

    def train(self) -> None:
        """Run the arm's method until the token budget is spent."""
        if isinstance(self.arm, SupervisedConfig):
            records = self._expert() if self.arm.kind == "sft" else self._own_successes()
            self._supervised(records, self.arm.learning_rate, self.arm.batch_size)
        elif isinstance(self.arm, PreferenceConfig):
            self._preference(self.arm)
        else:
            self._grpo(self.arm)

    def _supervised(
        self, records: Sequence[TokenRecord], learning_rate: float, batch_size: int
    ) -> None:
        self._begin_phase(0)
        train_supervised(
            self.model,
            self.tokenizer,
            supervised_dataset(records),
            learning_rate=learning_rate * self._adapter_factor,
            batch_size=batch_size,
            config=self.settings,
            log=self.log,
            seed=self._data_seed(0),
            checkpoints=self.checkpoints,
        )

    def _preference(self, arm: PreferenceConfig) -> None:
        rng = generator(self.inputs.study.seed, self.seed, Stream.DATA)
        pairs = branch_pairs(self._groups(), arm.pairs_per_group, rng)
        if not pairs:
            raise TrainingCollapse(
                "the collected groups hold no branch point with one success and one failure, so "
                "there is no preference pair to learn from"
            )
        self._begin_phase(0)
        train_preference(
            self.model,
            self.tokenizer,
            pairs,
            arm=arm,
            learning_rate=arm.learning_rate * self._adapter_factor,
            config=self.settings,
            log=self.log,
            seed=self._data_seed(0),
            checkpoints=self.checkpoints,
        )

    def _grpo(self, arm: GRPOArmConfig) -> None:
        train = self.inputs.split("train")
        usable = list(range(len(train)))
        if arm.skip_dead_instances:
            dead = {
                group.trajectories[0].instance_id
                for group in self._groups()
                if len({t.success for t in group.trajectories}) == 1
            }
            usable = [i for i in usable if train[i].instance_id not in dead]
        phase = 1 if arm.sft_share > 0 else 0
        if phase and not self._reached(phase):
            self._sft_phase(arm)
        self._begin_phase(phase)
        train_grpo(
            self.model,
            self.tokenizer,
            usable,
            self._rollout(train, arm),
            arm=arm,
            learning_rate=arm.learning_rate * self._adapter_factor,
            config=self.settings,
            max_tokens=self.inputs.task.max_tokens,
            log=self.log,
            seed=self._data_seed(1),
            checkpoints=self.checkpoints,
        )

    def _sft_phase(self, arm: GRPOArmConfig) -> None:
        budget = self.settings.budget_tokens
        self.log.stop = min(budget, self.ledger.total_tokens + int(budget * arm.sft_share))
        self._supervised(self._expert(), arm.sft_learning_rate, arm.sft_batch_size)
        self.log.stop = budget

    def _begin_phase(self, phase: int) -> None:
        """Warm-up and decay run over the tokens of training; data that was paid for before, such as
        the collected groups, must not use them up."""
        self.log.start = self.ledger.total_tokens
        if self.checkpoints is not None:
            self.checkpoints.begin(phase, self.model, self.log)

    def _reached(self, phase: int) -> bool:
        """Whether a checkpoint says that the phases before are done."""
        return self.checkpoints is not None and self.checkpoints.reached(phase)

    def _rollout(
        self, train: Sequence[Instance], arm: GRPOArmConfig
    ) -> Callable[[PreTrainedModel, Sequence[int], int], list[Trajectory]]:
        study, task = self.inputs.study, self.inputs.task

        def rollout(
            model: PreTrainedModel, indices: Sequence[int], update: int
        ) -> list[Trajectory]:
            policy = ModelPolicy(
                self.arm_name,
                model,
                self.chat,
                temperature=arm.temperature,
                max_action_tokens=task.max_action_tokens,
                max_tokens=task.max_tokens,
                weights=weights_fingerprint(model),
            )
            episodes = [
                Episode(
                    train[index].instance_id,
                    train[index].hash,
                    group_id=position // arm.group_size,
                    member=position % arm.group_size,
                    seed=sequence(study.seed, self.seed, Stream.SAMPLING, update, position),
                )
                for position, index in enumerate(indices)
            ]
            played = self.engine.play(policy, episodes)
            self.ledger.env_steps += sum(len(t.turns) for t in played)
            self.ledger.sampled_tokens += policy.sampled_tokens
            self.ledger.context_tokens += policy.context_tokens
            return played

        return rollout

    def _expert(self) -> list[TokenRecord]:
        demonstrations = self.inputs.expert()
        self.ledger.expert_labels += sum(len(t.turns) for t in demonstrations)
        return [written_tokens(t, self.chat) for t in demonstrations]

    def _own_successes(self) -> list[TokenRecord]:
        records = [
            TokenRecord(t.token_ids, t.mask, t.logprobs)
            for group in self._groups()
            for t in group.trajectories
            if t.success
        ]
        if not records:
            raise TrainingCollapse("the base never succeeded, so there is nothing to imitate")
        return records

    def _groups(self) -> Sequence[TrajectoryGroup]:
        """Collected groups; whoever uses them pays for their generation."""
        groups = self.inputs.groups()
        for group in groups:
            for trajectory in group.trajectories:
                sampled = int(trajectory.mask.sum())
                self.ledger.env_steps += len(trajectory.turns)
                self.ledger.sampled_tokens += sampled
                self.ledger.context_tokens += len(trajectory.token_ids) - sampled
        return groups

    def _validation(self) -> Validation:
        study, task = self.inputs.study, self.inputs.task
        chosen = self.inputs.split("val")[: study.train.validation_instances]
        return Validation(
            engine=make_engine(
                self.inputs.task_name,
                task,
                seed=self.seed,
                batch_size=study.evaluation.batch_size,
            ),
            episodes=[
                Episode(
                    instance.instance_id,
                    instance.hash,
                    group_id=index,
                    member=0,
                    seed=sequence(study.seed, self.seed, Stream.EVALUATION, index),
                )
                for index, instance in enumerate(chosen)
            ],
            chat=self.chat,
            max_action_tokens=task.max_action_tokens,
            max_tokens=task.max_tokens,
        )

    @property
    def _adapter_factor(self) -> float:
        lora = self.inputs.study.model.lora
        return lora.learning_rate_factor if lora.enabled else 1.0

    def _data_seed(self, phase: int) -> int:
        return integer_seed(self.inputs.study.seed, self.seed, Stream.DATA, phase)


def run_digest(study: StudyConfig, task_name: str, arm_name: str, seed: int) -> str:
    """Digest of everything that decides a run: equal digest, equal result."""
    settings = dataclasses.asdict(study)
    for irrelevant in (
        *("arms", "tasks", "workers", "seeds", "profile", "evaluation"),
        "learning_rates",  # the arm has its own
    ):
        settings.pop(irrelevant)
    settings["arm"] = dataclasses.asdict(study.arm_on(arm_name, task_name))
    settings["task"] = dataclasses.asdict(study.task(task_name))
    return digest({**settings, "train_seed": seed})


def train_arm(
    inputs: ArmInputs,
    arm_name: str,
    seed: int,
    folder: Path,
    tick: Callable[[float], Any],
    unfinished: Path | None = None,
) -> None:
    """Train one arm with one seed into ``folder``: policy, ``curve.json``, ``run.json``.

    A run that cannot go on (NaN, no data) is recorded as failed with its reason; it is never
    silently left out. Other exceptions are bugs and escape.

    Args:
        unfinished: folder for checkpoints and results that wait; a run that was killed goes on
            from there. What is kept belongs to the same settings, code, base and data, or it is
            not found.

    Raises: UserError for a checkpoint that was put there from another run or is damaged.
    """
    run = Run(inputs, arm_name, seed, tick)
    if unfinished is None:
        _train_into(folder, run)
        return
    card = run.card()
    run.checkpoints = Checkpoints(unfinished / f"seed-{seed}-{digest(card)}", card)
    finished = run.checkpoints.finished
    if not (finished / RUN).exists():  # written last
        _train_into(finished, run)
    with atomic_directory(folder) as temporary:
        shutil.copytree(finished, temporary, dirs_exist_ok=True)


def _train_into(folder: Path, run: Run) -> None:
    status, reason = "ok", ""
    inputs = run.inputs
    card: dict[str, Any] = {
        "task": inputs.task_name,
        "method": run.arm_name,
        "seed": run.seed,
        "digest": run_digest(inputs.study, inputs.task_name, run.arm_name, run.seed),
    }
    try:
        run.train()
    except TrainingCollapse as error:
        status, reason = "failed", str(error)
    else:
        save_policy(folder, run.model, run.tokenizer, card, run.base_weights)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / CURVE, run.log.rows)
    write_json(
        folder / RUN, {**card, "status": status, "reason": reason, "ledger": run.ledger.as_dict()}
    )
