"""Arithmetic of a training step: achieved GFLOP/s against what a matrix product reaches here.

Operations of one step over B sequences of L tokens, forward and backward, with N parameters in the
matrices of the layers, width d, n layers and V words:

    6 N B L  +  12 n d L B L  +  6 d V B L

Every matrix weight costs two operations per token forward and four backward (Kaplan et al. 2020,
arXiv 2001.08361, section 2.1). The second term is attention, queries times keys and weights times
values, 2 x 2 n d L per token forward and twice that backward, the causal half not taken off (the
convention of Chowdhery et al. 2022, arXiv 2204.02311, appendix B). The third is the product with
the tied embeddings that gives the logits. Norms, softmax and the optimiser count as no operations
and take time all the same: what they cost is part of the distance to the peak.

The step is that of the arms (``training/fast_forward.py``) with every token scored, so that nothing
can be left out: logits, log-probabilities, backward, AdamW.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import PretrainedConfig, PreTrainedModel

from agent_rl.training.fast_forward import scored
from benchmarks.base import described, fresh_model, make_tokenizer
from benchmarks.cases import Measure, Sizes
from benchmarks.room import study

CASE, ENGINE = "training", "torch"
REPEATS = 3
"""Timed repetitions inside a process, after one rehearsal; their median is the run's number."""


def step_operations(
    *, matrices: int, layers: int, width: int, vocabulary: int, batch: int, length: int
) -> int:
    """Floating-point operations of a training step, see the head of the module."""
    tokens = batch * length
    return tokens * (6 * matrices + 12 * layers * width * length + 6 * width * vocabulary)


def matrix_weights(model: PreTrainedModel) -> int:
    """Parameters in the matrices of the layers: no embeddings, no norms."""
    skipped = ("embed_tokens", "lm_head")
    return sum(
        p.numel()
        for name, p in model.named_parameters()
        if p.dim() == 2 and not any(part in name for part in skipped)
    )


def median_seconds(work: Callable[[], object]) -> float:
    """Median of ``REPEATS`` repetitions after one that does not count."""
    work()
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def peak(side: int, dtype: torch.dtype) -> float:
    """GFLOP/s of a square matrix product with one thread."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.rand(side, side, generator=generator).to(dtype) for _ in range(2))
    return 2 * side**3 / median_seconds(lambda: left @ right) / 1e9


def step_rate(model: PreTrainedModel, batch: int, length: int) -> float:
    """GFLOP/s of a training step."""
    config: PretrainedConfig = model.config
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(config.vocab_size, (batch, length), generator=generator)
    attention = torch.ones_like(ids)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model.train()

    def step() -> None:
        loss = scored(model, ids, attention, ids, 1.0).loss
        assert loss is not None
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    operations = step_operations(
        matrices=matrix_weights(model),
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        vocabulary=config.vocab_size,
        batch=batch,
        length=length,
    )
    return operations / median_seconds(step) / 1e9


def training(sizes: Sizes, folder: Path) -> list[Measure]:
    """Training steps and, right before and after them, the peak of the same process."""
    config, tokenizer = study(), make_tokenizer()
    batch, length = sizes.training_batch
    shape = f"{batch} x {length} tokens"
    before = peak(sizes.matmul, torch.float32)
    rates = {}
    for width, layers in sizes.training:
        model = fresh_model(config, tokenizer, width, layers)
        rates[described(model)] = step_rate(model, batch, length)
    best = max(before, peak(sizes.matmul, torch.float32))
    square = f"{sizes.matmul} x {sizes.matmul} matrices"
    found = [
        Measure(CASE, ENGINE, square, "none", 1, f"peak GFLOP/s, {name}", value)
        for name, value in (("fp32", best), ("bf16", peak(sizes.matmul, torch.bfloat16)))
    ]
    for model_name, rate in rates.items():
        found.append(Measure(CASE, ENGINE, shape, model_name, batch, "GFLOP/s", rate))
        found.append(
            Measure(CASE, ENGINE, shape, model_name, batch, "share of fp32 peak", rate / best)
        )
    return found
