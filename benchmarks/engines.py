"""Rollout engines on the same episodes: same task, model, tokens per turn, batch and temperature.

* ``agent_rl``: this repository's engine, which keeps the key-value cache across turns.
* ``generate``: transformers' ``generate`` once per turn, the whole history read again each time,
  padded on the left.
* ``continuous``: the same with transformers' continuous batching (paged cache), whose manager lives
  as long as the case.
* ``trl``: TRL's stock multi-turn path, see :mod:`benchmarks.stock_trl`.

What makes them comparable. All load one model (the study's size, trained a little on turns at
random, so that it keeps to the format) and one tokenizer, whose template writes a tool call of
``act`` in the same tokens as a plain answer. The room of :mod:`benchmarks.room` never ends an
episode before the horizon, so every engine samples the same number of turns and of tokens and
reads the same texts. An answer may take three tokens and takes two; :func:`speeds` refuses a run in
which an engine played another number of turns than it should.

The first batch is a rehearsal, on instances of its own; the second is timed, from the resets of
the environments to the last action read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    ContinuousBatchingConfig,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from agent_rl.rollouts.chat import Chat
from agent_rl.rollouts.engine import Episode, RolloutEngine
from benchmarks.base import described, load_base, sampler
from benchmarks.cases import Measure, Sizes
from benchmarks.processes import peak_memory, settle
from benchmarks.room import TASK, groups, make_room, study

CASE = "engines"
MAX_ACTION_TOKENS = 3
REHEARSAL, TIMED = 1, 2
"""Streams of instances and random numbers."""
PAGE, BLOCKS, STEP_TOKENS = 16, 2560, 512
"""Continuous batching: tokens of a page, pages, and tokens of a forward pass. Small pages let it
share the read history between turns; the best of the four settings that were tried."""
TOLERANCE = 0.005
"""Share of the turns by which an engine may miss the horizon: a sampled answer may be empty."""

Histories = list[list[int]]
Answer = Callable[[Histories], Histories]
"""Token ids of whole conversations -> ids sampled for each, up to the end of the turn."""


def speeds(
    engine: str,
    model: str,
    batch: int,
    horizon: int,
    *,
    seconds: float,
    turns: int,
    tokens: int,
    memory: tuple[float, float],
) -> list[Measure]:
    """What an engine managed.

    Args:
        memory: peak before the first rollout and after the last, MiB.

    Raises: RuntimeError when it played another number of turns than was due.
    """
    due = batch * horizon
    if abs(turns - due) > TOLERANCE * due:
        raise RuntimeError(f"engine {engine} played {turns} turns where {due} were due")
    found = {
        "turns/s": turns / seconds,
        "sampled tokens/s": tokens / seconds,
        "episodes/s": batch / seconds,
        "turns per episode": turns / batch,
        "sampled tokens per turn": tokens / turns,
        "peak memory of rollouts, MiB": memory[1],
        "memory added by rollouts, MiB": memory[1] - memory[0],
    }
    return [measure(engine, model, batch, metric, value) for metric, value in found.items()]


def measure(engine: str, model: str, batch: int, metric: str, value: float) -> Measure:
    """A number of an engine."""
    return Measure(CASE, engine, TASK, model, batch, metric, value)


def agent_rl(sizes: Sizes, folder: Path) -> list[Measure]:
    """Our engine, then whole updates of GRPO around it."""
    model, tokenizer = load_base(folder)
    before = peak_memory()
    task = study().task(TASK)
    engine = RolloutEngine(TASK, lambda: make_room(task, sizes.horizon), batch_size=sizes.batch)
    seconds, turns, policy = 0.0, 0, sampler(model, tokenizer, MAX_ACTION_TOKENS)
    for stream in (REHEARSAL, TIMED):
        policy = sampler(model, tokenizer, MAX_ACTION_TOKENS)
        batch = groups(task, sizes.batch, stream)
        settle()
        start = time.perf_counter()
        played = engine.play(policy, batch)
        seconds = time.perf_counter() - start
        turns = sum(len(trajectory.turns) for trajectory in played)
    name = described(model)
    found = speeds(
        "agent_rl",
        name,
        sizes.batch,
        sizes.horizon,
        seconds=seconds,
        turns=turns,
        tokens=policy.sampled_tokens,
        memory=(before, peak_memory()),
    )
    from benchmarks.updates import our_update  # TRL comes with it: its memory is not the rollouts'

    return found + our_update(model, tokenizer, name, sizes)


def generate(sizes: Sizes, folder: Path) -> list[Measure]:
    """``generate`` once per turn."""
    model, tokenizer = load_base(folder)
    model.eval()
    config = sampling(tokenizer)

    def answer(histories: Histories) -> Histories:
        width = max(map(len, histories))
        pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id
        ids = torch.tensor([[pad] * (width - len(row)) + row for row in histories])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in histories])
        with torch.inference_mode():
            output: Any = model.generate(
                input_ids=ids, attention_mask=mask, generation_config=config
            )
        return [until(row, end) for row in output[:, width:].tolist()]

    return reread("generate", answer, model, tokenizer, sizes)


def continuous(sizes: Sizes, folder: Path) -> list[Measure]:
    """``ContinuousBatchingManager``, kept alive over all turns."""
    model, tokenizer = load_base(folder)
    model.eval()
    manager: Any = model.init_continuous_batching(
        generation_config=sampling(tokenizer), continuous_batching_config=_paged()
    )
    manager.start()

    def answer(histories: Histories) -> Histories:
        asked = manager.add_requests(histories, max_new_tokens=MAX_ACTION_TOKENS)
        found: dict[str, list[int]] = {}
        while len(found) < len(asked):
            result = manager.get_result(timeout=1)
            if result is not None and result.is_finished():
                found[result.request_id] = list(result.generated_tokens)
            elif not manager.is_running():
                raise RuntimeError("the manager of continuous batching died")
        return [until(found[name], tokenizer.eos_token_id) for name in asked]

    try:
        return reread("continuous", answer, model, tokenizer, sizes)
    finally:
        manager.stop(block=True)


def _paged() -> ContinuousBatchingConfig:
    """Settings for a CPU. The defaults fill the memory with cache, which takes longer than the
    whole benchmark, and build attention masks of gigabytes."""
    return ContinuousBatchingConfig(page_size=PAGE, num_blocks=BLOCKS, max_batch_tokens=STEP_TOKENS)


def sampling(tokenizer: PreTrainedTokenizerBase) -> GenerationConfig:
    """Plain sampling at temperature 1, as our engine does it."""
    return GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=MAX_ACTION_TOKENS,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )


def until(ids: list[int], end: int) -> list[int]:
    """The ids up to the first ``end``, which is kept."""
    return ids[: ids.index(end) + 1] if end in ids else ids


def reread(
    engine: str,
    answer: Answer,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sizes: Sizes,
) -> list[Measure]:
    """Time an engine that is given whole conversations."""
    before = peak_memory()
    task = study().task(TASK)
    chat = Chat(tokenizer)
    environments = [make_room(task, sizes.horizon) for _ in range(sizes.batch)]
    seconds, turns, tokens = 0.0, 0, 0
    for stream in (REHEARSAL, TIMED):
        batch = groups(task, sizes.batch, stream)
        torch.manual_seed(stream)
        settle()
        start = time.perf_counter()
        turns, tokens = play(answer, chat, environments, batch)
        seconds = time.perf_counter() - start
    return speeds(
        engine,
        described(model),
        sizes.batch,
        sizes.horizon,
        seconds=seconds,
        turns=turns,
        tokens=tokens,
        memory=(before, peak_memory()),
    )


def play(
    answer: Answer, chat: Chat, environments: list[Any], batch: list[Episode]
) -> tuple[int, int]:
    """Play one batch to its end in lock-step. Returns: turns taken and tokens sampled."""
    histories = [
        list(chat.opening(env.reset(seed=episode.instance_id)[0]))
        for env, episode in zip(environments, batch, strict=True)
    ]
    alive = list(range(len(batch)))
    turns = tokens = 0
    while alive:
        answers = answer([histories[index] for index in alive])
        going_on = []
        for index, ids in zip(alive, answers, strict=True):
            turns += 1
            tokens += len(ids)
            text, _, terminated, truncated, _ = environments[index].step(chat.read(tuple(ids)))
            histories[index] += [*ids, *chat.observe(text, closed=ids[-1] == chat.end_id)]
            if not (terminated or truncated):
                going_on.append(index)
        alive = going_on
    return turns, tokens
