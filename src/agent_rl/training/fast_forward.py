"""A faster forward pass for TRL's trainers, where the model is a plain Llama.

All of TRL's losses ask the model for log-probabilities through one call (``fused_lm_head=True``),
with label -100 where none is wanted. For a plain Llama that call is answered here: tokens without
padding, last layer and head only before the tokens that are scored (see ``rollouts/llama.py``).
Losses, batches and optimiser stay TRL's; every other call and every other model stays as it is.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from trl.trainer.utils import FusedCausalLMOutput

from agent_rl.rollouts.llama import Block, final_states, fits

IGNORE = -100
"""Label of tokens that carry no loss."""


def add_fast_forward(model: Any, temperature: float = 1.0) -> None:
    """Answer TRL's scoring calls of a plain Llama by :func:`scored`, after TRL's own patch.

    Args:
        model: the model that a trainer was made with; one that :func:`scored` does not compute
            stays as it is, and one that has become such (a hook was added) is asked itself.
        temperature: what TRL's trainer divides the logits by.
    """
    if not fits(model):
        return
    original = model.forward

    def forward(self: Any, *args: Any, fused_lm_head: bool = False, **kwargs: Any) -> Any:
        known = {"input_ids", "attention_mask", "labels", "use_cache"}
        plain = not args and kwargs.keys() <= known and not _autocast()
        if fused_lm_head and plain and fits(self):
            ids, labels = kwargs["input_ids"], kwargs["labels"]
            return scored(self, ids, kwargs["attention_mask"], labels, temperature)
        return original(*args, fused_lm_head=fused_lm_head, **kwargs)

    model.forward = MethodType(forward, model)


def scored(
    model: Any, ids: Tensor, attention: Tensor, labels: Tensor, temperature: float
) -> FusedCausalLMOutput:
    """Log-probability of every label, given the tokens before it in its row.

    Args:
        model: one that :func:`~agent_rl.rollouts.llama.fits`.
        ids: (B, L) tokens, padded on any side.
        attention: (B, L), 0 at padding.
        labels: (B, L), ``IGNORE`` where no log-probability is wanted; never at padding.
        temperature: divides the logits.

    Returns: what TRL's own call returns, fields of shape (B, L - 1), zero where nothing is wanted.
    """
    wanted = labels[:, 1:] != IGNORE
    real = attention.bool()
    lengths = real.sum(dim=1)
    position = (attention.cumsum(dim=1) - 1)[real]
    row = torch.arange(len(ids), device=ids.device).repeat_interleave(lengths)
    rows, span = len(ids), int(lengths.max())
    new = Block(row, position, position, rows=rows, width=span, span=span, causal=True)
    # The state before a label: the token to its left, which is real as the label is.
    before = F.pad(wanted, (0, 1))
    at = before[real].nonzero().squeeze(1)
    width = max(1, int(wanted.sum(dim=1).max()))
    column = (before.cumsum(dim=1) - 1)[before]
    asked = Block(row[at], column, position[at], rows=rows, width=width, span=span)

    def memory(number: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        return new.rectangle(keys), new.rectangle(values)

    states = final_states(model, ids[real], new, asked, at, memory)
    logits = F.linear(states, model.lm_head.weight) / temperature
    logprobs = F.log_softmax(logits, dim=-1)
    targets = labels[:, 1:][wanted]
    chosen = logprobs.gather(1, targets.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        entropy = -(logprobs.exp() * logprobs).sum(dim=-1)
        top = (logprobs.argmax(dim=-1) == targets).float()
        mean = logits.mean(dim=-1)

    def spread(listed: Tensor) -> Tensor:
        # Connected to the model even when nothing is wanted: its gradient is then exactly 0.
        return listed.new_zeros(wanted.shape).masked_scatter(wanted, listed)

    return FusedCausalLMOutput(
        loss=-chosen.sum() / max(1, len(chosen)),
        log_probs=spread(chosen),
        entropy=spread(entropy),
        mean_logits=spread(mean),
        is_top1=spread(top).bool(),
        label_mask=wanted,
    )


def _autocast() -> bool:
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
