"""Checkpoints inside a run: a run that was killed goes on and ends with the same bytes.

A checkpoint holds the trained weights, the optimiser's moments, the step of the schedule, the
curve, the ledger, the place in the data and torch's generator; everything else that is drawn comes
from streams that are functions of the update and the episode. It is safetensors and JSON, never a
pickle, and it appears whole or not at all. Saving changes nothing, so how often it happens is no
part of a result.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from agent_rl.errors import UserError
from agent_rl.files import atomic_directory, read_json, write_json
from agent_rl.training.loop import RunLog

STATE = "state.json"
TENSORS = "tensors.safetensors"
TRAINER = "trainer_state.json"
"""The name under which transformers looks for its own step counter."""
FINISHED = "finished"

INTERVAL = 30.0
"""Seconds between checkpoints: what a kill may cost."""


@dataclass(slots=True)
class Checkpoints:
    """The checkpoints of one run in a folder of its own."""

    folder: Path
    card: Mapping[str, Any]
    """What decides the run: settings, code, base, tokenizer, data. Another card is refused."""
    interval: float = INTERVAL
    phase: int = 0
    """Phase under way: a run may first imitate and then interact."""
    _last: float = field(default_factory=lambda: time.monotonic())
    _read: Saved | None = None
    """The last checkpoint once it was read: its files are hashed once."""

    @property
    def finished(self) -> Path:
        """Where the result of a finished run waits for the others of its stage."""
        return self.folder / FINISHED

    def due(self) -> bool:
        """Whether enough time has passed since the last checkpoint."""
        return time.monotonic() - self._last >= self.interval

    def saved(self) -> Saved | None:
        """The last checkpoint when it is of the phase under way."""
        found = self.latest()
        return found if found is not None and found.phase == self.phase else None

    def reached(self, phase: int) -> bool:
        """Whether the phases before this one are done."""
        saved = self.latest()
        return self._start(phase).is_dir() or (saved is not None and saved.phase >= phase)

    def begin(self, phase: int, model: torch.nn.Module, log: RunLog) -> None:
        """Enter a phase.

        The weights from which a later phase starts are kept, since it may compare with them; when
        the run goes on in that phase they are put into ``model`` again, and the log with them.

        Raises: UserError as :meth:`latest`.
        """
        self.phase = phase
        start = self._start(phase)
        if not phase:
            return
        if start.is_dir():
            saved = Saved.read(start, self.card)
            put_weights(model, saved.tensors())
            log.restore(saved.state["log"])
        else:
            self._write(start, weights_of(model), {"log": log.state()})

    def _start(self, phase: int) -> Path:
        return self.folder / f"start-{phase}"

    def save(
        self, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any], trainer: TrainerState
    ) -> None:
        """Write the next checkpoint, then remove the one before. Raises: UserError (full disk)."""
        name = f"{self.phase}-{trainer.global_step:09d}"
        self._write(self.folder / name, tensors, state, trainer)
        self._read = None
        for old in self._all():
            if old.name != name:
                shutil.rmtree(old, ignore_errors=True)
        self._last = time.monotonic()

    def _write(
        self,
        path: Path,
        tensors: Mapping[str, torch.Tensor],
        state: Mapping[str, Any],
        trainer: TrainerState | None = None,
    ) -> None:
        with atomic_directory(path) as folder:
            plain = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
            save_file(plain, folder / TENSORS)
            if trainer is not None:
                trainer.save_to_json(str(folder / TRAINER))
            content = {"card": dict(self.card), "phase": self.phase, "sha256": _sums(folder)}
            write_json(folder / STATE, {**content, **state})

    def latest(self) -> Saved | None:
        """The last whole checkpoint, or None.

        Raises: UserError for one of another run, or one whose files are not as they were written.
        """
        found = self._all()
        if found and (self._read is None or self._read.path != found[-1]):
            self._read = Saved.read(found[-1], self.card)
        return self._read if found else None

    def clear(self) -> None:
        """Forget everything."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _all(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return sorted(p for p in self.folder.iterdir() if p.is_dir() and p.name[0].isdigit())


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint on disk."""

    path: Path
    phase: int
    state: dict[str, Any]

    @classmethod
    def read(cls, path: Path, card: Mapping[str, Any]) -> Saved:
        """Check a checkpoint. Raises: UserError."""
        hint = f"delete {path.parent} to start the run anew"
        state = read_json(path / STATE, hint)
        for key, expected in card.items():
            found = state.get("card", {}).get(key)
            if found != expected:
                raise UserError(
                    f"{path} is a checkpoint of another run: {key} is {found!r}, this run has "
                    f"{expected!r}; {hint}"
                )
        if _sums(path) != state["sha256"]:
            raise UserError(f"{path} is damaged: a file is not as it was written; {hint}")
        return cls(path, int(state["phase"]), state)

    def tensors(self) -> dict[str, torch.Tensor]:
        """All tensors. Raises: UserError when they cannot be read."""
        try:
            return load_file(self.path / TENSORS)
        except (SafetensorError, OSError) as error:
            raise UserError(
                f"{self.path / TENSORS} cannot be read ({error}); delete {self.path.parent} to "
                "start the run anew"
            ) from error


def _sums(folder: Path) -> dict[str, str]:
    return {
        name: sha256((folder / name).read_bytes()).hexdigest()
        for name in (TENSORS, TRAINER)
        if (folder / name).exists()
    }


class Resumable:
    """Mixin before a trainer of transformers: saves and restores through :class:`Checkpoints`.

    The trainer's own format holds pickles; only its step counter and its skipping of batches that
    were seen are used.
    """

    _log: RunLog
    _checkpoints: Checkpoints | None = None
    _saved: Saved | None = None
    _sampler: Any = None
    _generator_state: torch.Tensor | None = None

    def train_from(self, checkpoints: Checkpoints | None) -> None:
        """Train, from the last checkpoint of this phase if there is one."""
        self._checkpoints = checkpoints
        trainer: Any = self
        if checkpoints is None:
            trainer.train()
            return
        trainer.add_callback(CheckpointCallback(self, checkpoints))
        self._saved = checkpoints.saved()
        if self._saved is None:
            trainer.train()
        else:
            trainer.train(resume_from_checkpoint=str(self._saved.path))

    def at_boundary(self) -> bool:
        """Whether the present step leaves nothing behind that a checkpoint could not hold."""
        return True

    def extra_state(self) -> dict[str, Any]:
        """What else a checkpoint must remember, as plain values."""
        return {}

    def restore_extra(self, state: dict[str, Any]) -> None:
        """Take :meth:`extra_state` back."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        trainer: Any = self
        assert self._checkpoints is not None
        tensors = weights_of(trainer.model)
        for name, moments in _moments(trainer).items():
            tensors |= {f"optimizer/{name}/{key}": value for key, value in moments.items()}
        tensors["rng/torch"] = torch.get_rng_state()
        state = {
            "log": self._log.state(),
            "schedule": {"last_epoch": trainer.lr_scheduler.state_dict()["last_epoch"]},
            "extra": self.extra_state(),
        }
        self._checkpoints.save(tensors, state, trainer.state)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Nothing yet: what reads the weights of the start (a reference) comes before."""

    def _load_scaler(self, checkpoint: str | None) -> None:
        """No scaler is used: training is in full precision."""

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None or self._saved is None:
            return
        trainer: Any = self
        tensors, state = self._saved.tensors(), self._saved.state
        self._generator_state = tensors["rng/torch"]
        put_weights(trainer.model, tensors)
        optimizer = _plain(trainer.optimizer)
        for name, parameter in trained(trainer.model):
            prefix = f"optimizer/{name}/"
            moments = {
                k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)
            }
            if moments:
                optimizer.state[parameter] = {
                    k: v.to(parameter.device) if v.dim() else v for k, v in moments.items()
                }
        self._log.restore(state["log"])
        # The rate is a function of the tokens spent, which the log has again.
        schedule = trainer.lr_scheduler
        schedule.last_epoch = state["schedule"]["last_epoch"]
        for group, base, factor in zip(
            optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True
        ):
            group["lr"] = base * factor(schedule.last_epoch)
        schedule._last_lr = [group["lr"] for group in optimizer.param_groups]
        for _ in range(int(trainer.state.epoch or 0)):
            self._next_epoch()
        self.restore_extra(state["extra"])

    def _next_epoch(self) -> None:
        """A sampler that draws each epoch's order from one generator must draw those passed."""
        generator = getattr(self._sampler, "generator", None)
        if generator is not None:
            torch.randperm(len(self._sampler.data_source), generator=generator)

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
        self._sampler = super()._get_train_sampler(*args, **kwargs)  # type: ignore[misc]
        return self._sampler

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None and self._generator_state is not None:
            torch.set_rng_state(self._generator_state)


class CheckpointCallback(TrainerCallback):
    """Asks for a checkpoint when one is due and the trainer can give one."""

    def __init__(self, trainer: Resumable, checkpoints: Checkpoints) -> None:
        self.trainer = trainer
        self.checkpoints = checkpoints

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        if not control.should_training_stop and self.checkpoints.due():
            control.should_save = self.trainer.at_boundary()


def resumed(checkpoints: Checkpoints | None) -> bool:
    """Whether the phase under way goes on from a checkpoint."""
    return checkpoints is not None and checkpoints.saved() is not None


def trained(model: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    """Parameters that training changes, by name."""
    return [(name, p) for name, p in model.named_parameters() if p.requires_grad]


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Trained weights under the names that a checkpoint gives them."""
    return {f"weights/{name}": parameter.detach() for name, parameter in trained(model)}


def put_weights(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Take :func:`weights_of` back."""
    with torch.no_grad():
        for name, parameter in trained(model):
            parameter.copy_(tensors[f"weights/{name}"])


def _plain(optimizer: Any) -> torch.optim.Optimizer:
    """The optimiser inside accelerate's wrapper."""
    return getattr(optimizer, "optimizer", optimizer)


def _moments(trainer: Any) -> dict[str, dict[str, torch.Tensor]]:
    state = _plain(trainer.optimizer).state
    return {name: dict(state[p]) for name, p in trained(trainer.model) if p in state}
