"""The cost ledger: every token, step and label that a run used."""

from __future__ import annotations

from dataclasses import asdict, dataclass

RUN = "run.json"
"""File of a run's folder: status, reason and ledger."""
CURVE = "curve.json"
"""File of a run's folder: the rows of its learning curve."""


@dataclass(slots=True)
class Ledger:
    """Running totals of one training run. Evaluation is not a cost of training."""

    env_steps: int = 0
    """Steps taken in the environment by a policy that learns from them."""
    sampled_tokens: int = 0
    """Tokens sampled from a model."""
    context_tokens: int = 0
    """Tokens read without being sampled or trained on: prompts and observations of rollouts, passes
    of a reference model."""
    trained_tokens: int = 0
    """Tokens of training sequences that went forward and backward, padding not counted."""
    expert_labels: int = 0
    """Distinct expert actions that the run had access to."""
    optimizer_steps: int = 0
    """Parameter updates."""

    @property
    def total_tokens(self) -> int:
        """Tokens processed: the budget that arms are matched on."""
        return self.sampled_tokens + self.context_tokens + self.trained_tokens

    def add(self, other: Ledger) -> None:
        """Add another ledger's totals (data that was generated beforehand)."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    def as_dict(self) -> dict[str, int]:
        """Plain numbers, with the total."""
        return {**asdict(self), "total_tokens": self.total_tokens}
