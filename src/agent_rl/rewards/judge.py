"""A relative judge: a model reads all trajectories of a group together and scores each in [0, 1].

The idea is that of RULER (OpenPipe, 2025): trajectories are easier to compare than to grade alone,
and an advantage needs no more than the comparison. What differs here: a group is shown in several
orders, whose effect on the scores is measured; an answer that is not complete is refused, never
repaired; and a group without a valid answer is invalid as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from agent_rl.config import JudgeConfig
from agent_rl.errors import UserError
from agent_rl.rewards.judge_client import Endpoint
from agent_rl.rewards.judge_text import Fault, labels, messages, read_reply
from agent_rl.trajectory import EndReason, Trajectory

_HOPELESS = 8
"""Questions after which a server that refused every request is given up."""

_PAUSE = 0.1
"""Seconds before a server that refused a request is asked again; doubled each time."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Scores of N trajectories, each shown in ``orders`` orders."""

    scores: NDArray[np.float64]
    """(N,) mean over orders, in [0, 1]; 0 where the judge said nothing."""
    invalid: NDArray[np.bool_]
    """(N,) members of groups that the judge gave no valid answer for. Crashed members and those
    without another to compare with were not asked about: score 0, but not invalid."""
    by_order: NDArray[np.float64]
    """(N, orders) score in each order; nan where invalid or not asked about."""
    positions: NDArray[np.int64]
    """(N, orders) place at which the member was shown, from 0; -1 where not asked about."""
    requests: int
    """Requests sent."""
    retries: int
    """Requests that repeated a question."""
    faults: dict[str, int]
    """Reason -> answers that were refused for it."""


@dataclass(frozen=True, slots=True)
class _Question:
    """One group in one order."""

    rows: NDArray[np.int64]
    """(n,) trajectories in the order in which they are shown."""
    order: int
    seeds: tuple[int, ...]
    """One per attempt."""


@dataclass(frozen=True, slots=True)
class _Reply:
    scores: list[float] | None
    """In the order shown; None without a valid answer."""
    faults: list[Fault]


def judge(
    trajectories: Sequence[Trajectory], config: JudgeConfig, seed: np.random.SeedSequence
) -> Judgement:
    """Ask for scores of every group with two or more members that did not crash.

    Equal seeds and equal answers of the server give equal judgements, in whatever order the
    answers come.

    Args:
        trajectories: N episodes; groups are told by ``group_id``.
        config: endpoint, number of orders, attempts and bounds.
        seed: draws the orders and the seeds of the requests; it is not changed.

    Raises: UserError when the endpoint's settings are wrong, it cannot be reached, or it refuses
        every request for want of a key, a right or an address.
    """
    questions = _questions(trajectories, config, seed)
    shape = (len(trajectories), config.orders)
    by_order, positions = np.full(shape, np.nan), np.full(shape, -1, dtype=np.int64)
    invalid = np.zeros(len(trajectories), dtype=np.bool_)
    replies = _ask_all(trajectories, questions, config) if questions else []
    for question, reply in zip(questions, replies, strict=True):
        positions[question.rows, question.order] = np.arange(len(question.rows))
        if reply.scores is None:
            invalid[question.rows] = True
        else:
            by_order[question.rows, question.order] = reply.scores
    by_order[invalid] = np.nan
    asked = ~np.isnan(by_order).any(axis=1)
    scores = np.zeros(len(trajectories))
    scores[asked] = by_order[asked].mean(axis=1)
    reasons = Counter(fault.reason for reply in replies for fault in reply.faults)
    requests = sum(len(reply.faults) + (reply.scores is not None) for reply in replies)
    return Judgement(
        scores=scores,
        invalid=invalid,
        by_order=by_order,
        positions=positions,
        requests=requests,
        retries=requests - len(questions),
        faults=dict(sorted(reasons.items())),
    )


def _questions(
    trajectories: Sequence[Trajectory], config: JudgeConfig, seed: np.random.SeedSequence
) -> list[_Question]:
    groups: dict[int, list[int]] = {}
    for row, trajectory in enumerate(trajectories):
        rows = groups.setdefault(trajectory.group_id, [])
        if trajectory.end is not EndReason.ERROR:
            rows.append(row)
    questions = []
    for position, rows in enumerate(groups.values()):
        if len(rows) < 2:
            continue
        rng = np.random.default_rng(_child(seed, position))
        shown = np.array(rows, dtype=np.int64)
        for order in range(config.orders):
            # Every second order is the one before it reversed: then each member stands as often
            # before as behind each other one.
            shown = shown[::-1] if order % 2 else rng.permutation(np.array(rows, dtype=np.int64))
            drawn = _child(seed, position, order).generate_state(config.attempts) >> 1
            questions.append(_Question(shown, order, tuple(int(value) for value in drawn)))
    return questions


def _child(seed: np.random.SeedSequence, *index: int) -> np.random.SeedSequence:
    """A sub-stream by its index; ``spawn`` would count how often it was called."""
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, *index))


def _ask_all(
    trajectories: Sequence[Trajectory], questions: Sequence[_Question], config: JudgeConfig
) -> list[_Reply]:
    """Replies in the order of the questions."""
    endpoint = Endpoint(config)
    ask = partial(_ask, trajectories, endpoint, config)
    replies: list[_Reply] = []
    with ThreadPoolExecutor(min(config.concurrency, len(questions))) as pool:
        futures = [pool.submit(ask, question) for question in questions]
        try:
            for future in futures:
                replies.append(future.result())
                if len(replies) == min(_HOPELESS, len(questions)):
                    _refuse_hopeless(replies, endpoint.address)
        finally:
            # Without effect unless an error or an interrupt ended the loop above.
            pool.shutdown(wait=False, cancel_futures=True)
            endpoint.stop()
    return replies


def _ask(
    trajectories: Sequence[Trajectory], endpoint: Endpoint, config: JudgeConfig, question: _Question
) -> _Reply:
    """Ask until an answer is valid or the attempts are used up."""
    shown = [trajectories[row] for row in question.rows]
    asked, names = messages(shown), labels(len(shown))
    faults: list[Fault] = []
    for attempt, seed in enumerate(question.seeds):
        try:
            return _Reply(read_reply(endpoint.ask(asked, seed), names), faults)
        except Fault as fault:
            faults.append(fault)
            if fault.reason in ("http", "unreachable") and attempt + 1 < config.attempts:
                endpoint.pause(min(fault.pause or _PAUSE * 2**attempt, config.timeout))
    return _Reply(None, faults)


def _refuse_hopeless(replies: Sequence[_Reply], address: str) -> None:
    """Raise UserError when every request so far failed for a reason that time does not mend."""
    faults = [fault for reply in replies for fault in reply.faults]
    if all(reply.scores is None for reply in replies) and all(fault.hopeless for fault in faults):
        common = Counter(fault.hopeless for fault in faults).most_common(1)[0][0]
        raise UserError(f"the judge at {address} answered none of {len(faults)} requests: {common}")


def order_effect(judgement: Judgement, groups: NDArray[np.int64]) -> float:
    """Mean difference of score between the last and the first place shown; 0 means none.

    The slope of score on place (scaled to 0..1) by least squares over all members and orders of a
    group, both centred within the group, then the mean over groups. With an even number of orders
    every member stands as often at place p as at 1 - p, so that its quality cancels.

    Args:
        judgement: what the judge said.
        groups: (N,) group ids.

    Returns: positive when late places are scored higher; nan without a valid group.
    """
    valid = ~np.isnan(judgement.by_order).any(axis=1)
    slopes = []
    for group in np.unique(groups[valid]):
        rows = valid & (groups == group)
        places = judgement.positions[rows] / (rows.sum() - 1)
        places -= places.mean()
        scores = judgement.by_order[rows] - judgement.by_order[rows].mean()
        slopes.append((places * scores).sum() / (places**2).sum())
    return float(np.mean(slopes)) if slopes else float("nan")


def order_disagreement(judgement: Judgement) -> float:
    """Mean absolute difference between the scores of one trajectory in two orders.

    The mean over all pairs of orders and all trajectories with valid scores; nan with one order or
    without such a trajectory.
    """
    valid = judgement.by_order[~np.isnan(judgement.by_order).any(axis=1)]
    first, second = np.triu_indices(valid.shape[1], k=1)
    differences = np.abs(valid[:, first] - valid[:, second])
    return float(differences.mean()) if differences.size else float("nan")


def pair_agreement(
    scores: NDArray[np.float64],
    success: NDArray[np.bool_],
    groups: NDArray[np.int64],
    invalid: NDArray[np.bool_],
) -> tuple[float, int]:
    """Share of pairs of one success and one failure of a group that the scores rank rightly.

    Args:
        scores: (N,) scores.
        success: (N,) whether the episode succeeded.
        groups: (N,) group ids.
        invalid: (N,) rows to leave out: invalid ones, and crashed ones, which have no score.

    Returns: the share, ties counted half (nan without pairs), and the number of pairs.
    """
    ranked, pairs = 0.0, 0
    for group in np.unique(groups[~invalid]):
        rows = (groups == group) & ~invalid
        won, lost = scores[rows & success], scores[rows & ~success]
        gap = won[:, None] - lost[None, :]
        ranked += float((gap > 0).sum() + 0.5 * (gap == 0).sum())
        pairs += gap.size
    return (ranked / pairs if pairs else float("nan")), pairs
