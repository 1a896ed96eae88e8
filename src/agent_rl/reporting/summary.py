"""The numbers that the report states: cells, contrasts paired by seed, and budgets.

Wording follows rules, not judgement: an interval that excludes 0 is "higher" or "lower", one that
does not is "inconclusive", fewer than ``MIN_SEEDS`` seeds is "descriptive", and two arms that did
not process the same number of tokens are not compared at all.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from agent_rl.evaluation import statistics as st
from agent_rl.reporting import style
from agent_rl.reporting.tables import UNSEEDED, Results

LEVEL = 0.95
MIN_SEEDS = 8
BUDGET_TOLERANCE = 0.05
BOOTSTRAP_REPS = 10_000
_BOOTSTRAP_SEED = 20250
COMPARISON_ARM = "grpo_shaped"
"""The RL arm that the registered hypotheses H1 to H3 name; choosing it after the fact would favour
RL by the number of its arms."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """The difference of two arms on one task, paired by training seed."""

    task: str
    left: str
    right: str
    split: str
    decoding: str
    estimate: st.Estimate
    p_value: float
    """Exact sign-flip p, not adjusted; nan below ``MIN_SEEDS`` pairs."""
    word: str
    """higher, lower, inconclusive, descriptive, refused or missing."""
    reason: str = ""
    """Why a comparison is refused or missing."""


@lru_cache(maxsize=4)
def _finished(results: Results) -> dict[tuple[str, str, str, str], pd.DataFrame]:
    """Rows that have numbers by task, method, split and decoding: asked for hundreds of times."""
    finished = results.runs[results.runs["status"] != "failed"].sort_values("seed", kind="stable")
    keys = ["task", "method", "split", "decoding"]
    return {tuple(key): rows for key, rows in finished.groupby(keys, sort=False)}


def select(results: Results, task: str, method: str, split: str, decoding: str) -> pd.DataFrame:
    """Rows of one arm that have numbers: finished runs, the collapsed ones included."""
    rows = _finished(results).get((task, method, split, decoding))
    return results.runs.iloc[:0] if rows is None else rows


def rates(
    results: Results, task: str, method: str, split: str = "test", decoding: str = "greedy"
) -> dict[int, float]:
    """Success rate of each training seed; an untrained policy has the one seed -1."""
    rows = select(results, task, method, split, decoding)
    return {
        int(row.seed): float(row.successes / row.episodes)
        for row in rows.itertuples()  # the exact ratio, not the rounded column
    }


def cell(
    results: Results, task: str, method: str, split: str = "test", decoding: str = "greedy"
) -> st.Estimate:
    """Success of one arm: t-interval over seeds, or Wilson over episodes without seeds."""
    by_seed = rates(results, task, method, split, decoding)
    if list(by_seed) == [UNSEEDED]:
        row = select(results, task, method, split, decoding).iloc[0]
        return st.wilson(int(row["successes"]), int(row["episodes"]), LEVEL)
    return st.t_interval(list(by_seed.values()), LEVEL)


def iqm_cell(results: Results, task: str, method: str) -> st.Estimate:
    """Interquartile mean over seeds with its bootstrap interval (greedy, test split)."""
    by_seed = rates(results, task, method)
    # One stream per cell: an arm that is added or missing does not move the others.
    rng = np.random.default_rng([_BOOTSTRAP_SEED, zlib.crc32(f"{task}/{method}".encode())])
    return st.stratified_bootstrap_iqm([list(by_seed.values())], rng, BOOTSTRAP_REPS, LEVEL)


def ceiling_fraction(results: Results, task: str, method: str) -> float:
    """Mean success as a fraction of the oracle's (greedy, test split); nan without an oracle."""
    ceiling = cell(results, task, "oracle").value
    value = cell(results, task, method).value
    return value / ceiling if ceiling > 0 else math.nan


@lru_cache(maxsize=256)
def costs(results: Results, task: str, method: str) -> pd.DataFrame:
    """One row per finished run with what its training cost; sampled, trained and context tokens.

    ``total`` is the ledger's total where it was recorded, else the sum of the three parts where
    all of them were.
    """
    parts = [rows for key, rows in _finished(results).items() if key[:2] == (task, method)] or [
        results.runs.iloc[:0]
    ]
    first = pd.concat(parts).sort_values(["seed", "split", "decoding"]).drop_duplicates("seed")
    frame = pd.DataFrame(
        {
            "seed": first["seed"],
            "sampled": first["train_sampled_tokens"],
            "trained": first["train_trained_tokens"],
            "context": first["train_context_tokens"],
            "env_steps": first["train_env_steps"],
            "expert_labels": first["expert_labels"],
            "optimizer_steps": first["optimizer_steps"],
        }
    )
    known = frame[["sampled", "trained", "context"]].sum(axis=1, min_count=3)
    frame["total"] = first["total_tokens"].fillna(known)
    return frame.reset_index(drop=True)


def common_budget(results: Results, task: str) -> float:
    """Tokens each arm may process: the configured budget, else the median of the arms' means."""
    configured = results.provenance["budget_tokens"].get(task)
    if configured:
        return float(configured)
    means = [costs(results, task, method)["total"].mean() for method in results.trained(task)]
    known = [mean for mean in means if mean > 0]
    return float(np.median(known)) if known else math.nan


def budget_deviation(results: Results, task: str, method: str) -> float:
    """Largest relative deviation from the common budget among an arm's runs, with its sign.

    nan when a total was not recorded: then nothing is known to match.
    """
    total = costs(results, task, method)["total"]
    if total.empty or total.isna().any():
        return math.nan
    deviations = (total / common_budget(results, task) - 1.0).to_numpy()
    return float(deviations[np.abs(deviations).argmax()])


def budget_objection(results: Results, task: str, methods: tuple[str, ...]) -> str:
    """Why trained arms must not be compared at equal tokens; empty when they may be."""
    objections = []
    for method in methods:
        deviation = budget_deviation(results, task, method)
        if math.isnan(deviation):
            objections.append(f"total tokens of {style.label(method)} are not recorded")
        elif abs(deviation) > BUDGET_TOLERANCE:
            objections.append(
                f"{style.label(method)} is {deviation:+.1%} off the common token budget, "
                f"more than {BUDGET_TOLERANCE:.0%}"
            )
    return "; ".join(objections)


def contrast(
    results: Results,
    task: str,
    left: str,
    right: str,
    split: str = "test",
    decoding: str = "greedy",
) -> Contrast:
    """left - right, paired by seed, with the word that the rule allows.

    An arm without seeds (the base) is one fixed policy and is subtracted from every seed: the
    interval then speaks of training seeds, with the base and the instances given.
    """
    a, b = (rates(results, task, method, split, decoding) for method in (left, right))
    if list(b) == [UNSEEDED] and a and UNSEEDED not in a:
        b = dict.fromkeys(a, b[UNSEEDED])
    estimate = st.paired_difference(a, b, LEVEL)
    if not a.keys() & b.keys():
        absent = [style.label(name) for name, by_seed in ((left, a), (right, b)) if not by_seed]
        reason = f"no finished run of {' and '.join(absent)}" if absent else "no common seed"
        return Contrast(task, left, right, split, decoding, estimate, math.nan, "missing", reason)
    # Against an untrained policy there is no budget to match: the claim is "did it learn at all".
    trained = not {left, right} & set(style.UNTRAINED)
    reason = budget_objection(results, task, (left, right)) if trained else ""
    if reason:
        return Contrast(task, left, right, split, decoding, estimate, math.nan, "refused", reason)
    if estimate.n < MIN_SEEDS:
        word, p_value = "descriptive", math.nan
    else:
        word = "inconclusive"
        if estimate.excludes(0.0):
            word = "higher" if estimate.value > 0 else "lower"
        exact = estimate.n <= st.MAX_EXACT
        p_value = st.sign_flip_p(st.paired_values(a, b)) if exact else math.nan
    return Contrast(task, left, right, split, decoding, estimate, p_value, word)


def best_rl(results: Results, task: str) -> tuple[str, str] | None:
    """The RL arm without expert labels that did best, and the split it was chosen on.

    Chosen on validation instances where every candidate has them: the best on test would be an
    optimistic estimate of itself, and is named as such when nothing else is left.
    """
    arms = [arm for arm in style.PURE_RL if rates(results, task, arm)]
    if not arms:
        return None
    validation = {arm: final_validation(results, task, arm) for arm in arms}
    if all(not math.isnan(value) for value in validation.values()):
        return max(arms, key=lambda arm: validation[arm]), "validation"
    return max(arms, key=lambda arm: cell(results, task, arm).value), "test"


def final_validation(results: Results, task: str, method: str) -> float:
    """Mean over seeds of the last validation success of each run; nan when there is none."""
    curves = results.curves
    mask = (curves["task"] == task) & (curves["method"] == method)
    last = curves[mask].dropna(subset=["val_success_rate"]).groupby("seed").last()
    return float(last["val_success_rate"].mean()) if len(last) else math.nan


def answer_pairs(results: Results, task: str) -> list[tuple[str, str]]:
    """The contrasts that answer the question, in order: base, DPO, RFT, SFT, RL after SFT."""
    best = best_rl(results, task)
    first = [(best[0], "base")] if best else []
    rest = [(COMPARISON_ARM, right) for right in ("dpo", "rft", "sft")]
    return [*first, *rest, ("sft_grpo", "sft")]


def all_pairs(results: Results, task: str) -> list[tuple[str, str]]:
    """Every trained arm against the base, then each RL arm against the other methods."""
    present = results.trained(task)
    pairs = [(method, "base") for method in present]
    pairs += [
        (left, right)
        for right in ("dpo", "rft", "sft")
        for left in style.RL
        if left in present and right in present
    ]
    return pairs
