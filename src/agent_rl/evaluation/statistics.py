"""Estimates and intervals for studies whose replicate is the training seed.

Every function takes one number per training seed. Episodes are nested inside a run, so they are
averaged into a rate *before* they come here: there is no argument through which a duplicated
episode could narrow an interval. Generators are arguments; nothing touches the global ones.

Sources: Colas et al. 2018 (arXiv 1806.08295) for paired t-intervals at small n; Agarwal et al.
2021 (arXiv 2108.13264) for the interquartile mean and its stratified bootstrap; Holm 1979; Wilson
1927. The percentile bootstrap covers too little at few seeds (about 0.88 for a nominal 0.95 at
n = 8), which is why the t-interval is the primary one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

MAX_EXACT = 20
"""Most differences for which all 2^n sign patterns are enumerated."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, how sure we are of it, and how many replicates say so."""

    value: float
    """Point estimate; nan when there is no replicate."""
    low: float
    """Lower bound; nan when the interval is undefined."""
    high: float
    """Upper bound; nan when the interval is undefined."""
    n: int
    """Number of replicates: training seeds, or episodes for :func:`wilson`."""
    method: str
    """How the interval was made, in words."""

    @property
    def has_interval(self) -> bool:
        """Whether both bounds are finite."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def excludes(self, value: float = 0.0) -> bool:
        """Whether the interval exists and ``value`` lies outside it."""
        return self.has_interval and not self.low <= value <= self.high


def _vector(x: ArrayLike, name: str) -> NDArray[np.float64]:
    values = np.asarray(x, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"{name} must have one value per seed, got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has a value that is not finite; leave failed runs out by name")
    return values


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie between 0 and 1, got {level}")


def t_interval(x: ArrayLike, level: float = 0.95) -> Estimate:
    """Mean with Student's t-interval: mean +- t_{n-1, (1+level)/2} * s / sqrt(n).

    ``x`` has one value per seed, shape (n,). With n < 2 the bounds are nan: one run says nothing
    about the spread of runs. The bounds are not cut to [0, 1].
    """
    _check_level(level)
    values = _vector(x, "x")
    n = int(values.size)
    method = f"t-interval, {level:.0%}"
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, method)
    mean = float(values.mean())
    if n < 2:
        return Estimate(mean, math.nan, math.nan, n, method)
    half = float(stats.t.ppf(0.5 + level / 2.0, n - 1) * values.std(ddof=1) / math.sqrt(n))
    return Estimate(mean, mean - half, mean + half, n, method)


def iqm(x: ArrayLike) -> float:
    """Interquartile mean: the mean after floor(n / 4) values are cut at each end.

    Agarwal et al. 2021, section 4.3. Below four values nothing is cut and it is the mean.
    """
    values = _vector(x, "x")
    return math.nan if values.size == 0 else float(stats.trim_mean(values, 0.25))


def stratified_bootstrap_iqm(
    strata: Sequence[ArrayLike],
    rng: np.random.Generator,
    reps: int = 10_000,
    level: float = 0.95,
) -> Estimate:
    """Interquartile mean over all runs, with a percentile interval from a stratified bootstrap.

    ``strata`` holds one vector of per-seed rates for each task (a matrix tasks x seeds will do).
    Runs are drawn with replacement inside their task, so that a draw never changes the mix of
    tasks (Agarwal et al. 2021, section 4.1). ``n`` is the smallest number of runs of a task.
    """
    _check_level(level)
    if reps < 1:
        raise ValueError(f"reps must be at least 1, got {reps}")
    groups = [_vector(group, "stratum") for group in strata]
    method = f"stratified percentile bootstrap, {level:.0%}, {reps} draws"
    if not groups or min(group.size for group in groups) == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, method)
    n = int(min(group.size for group in groups))
    value = iqm(np.concatenate(groups))
    if n < 2:
        return Estimate(value, math.nan, math.nan, n, method)
    draws = np.concatenate(
        [group[rng.integers(group.size, size=(reps, group.size))] for group in groups], axis=1
    )
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(stats.trim_mean(draws, 0.25, axis=1), [tail, 1.0 - tail])
    return Estimate(value, float(low), float(high), n, method)


def paired_values(left: Mapping[int, float], right: Mapping[int, float]) -> NDArray[np.float64]:
    """Differences left - right over the seeds that both have, in the order of the seeds."""
    return np.array([left[seed] - right[seed] for seed in sorted(left.keys() & right.keys())])


def paired_difference(
    left: Mapping[int, float], right: Mapping[int, float], level: float = 0.95
) -> Estimate:
    """Mean of left - right over common seeds, with the paired t-interval.

    Both map a training seed to that run's rate. A seed that only one side has (its partner
    failed) is left out, and ``n`` shows it.
    """
    return t_interval(paired_values(left, right), level)


def sign_flip_p(differences: ArrayLike) -> float:
    """Exact two-sided p-value of mean difference 0 under random signs (Fisher 1935, section 21).

    The share of all 2^n sign patterns whose absolute sum is at least the observed one, so the
    smallest possible value is 2 / 2^n. nan without a difference; more than ``MAX_EXACT`` are
    refused rather than approximated in silence.
    """
    values = _vector(differences, "differences")
    if values.size == 0:
        return math.nan
    if values.size > MAX_EXACT:
        raise ValueError(f"exact enumeration is limited to {MAX_EXACT} seeds, got {values.size}")
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    # Patterns that tie with the observed one must count, whatever the order of the additions.
    slack = 1e-12 * max(1.0, float(np.abs(values).sum()))
    return float(np.mean(np.abs(sums) >= abs(float(values.sum())) - slack))


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down adjusted p-values (Holm 1979), in the order given.

    A nan (a registered test that could not be made) stays nan and still counts in the size of
    the family: losing a test must not make the others easier.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1:
        raise ValueError(f"p_values must be one-dimensional, got shape {p.shape}")
    known = np.flatnonzero(~np.isnan(p))
    if ((p[known] < 0.0) | (p[known] > 1.0)).any():
        raise ValueError("a p-value lies outside [0, 1]")
    adjusted = np.full(p.shape, math.nan)
    order = known[np.argsort(p[known], kind="stable")]
    factors = p.size - np.arange(order.size)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * p[order]))
    return adjusted


def wilson(successes: int, n: int, level: float = 0.95) -> Estimate:
    """A binomial rate with Wilson's score interval (Wilson 1927, equation 4 of Brown et al. 2001).

    For a policy that was not trained here (no seeds): the spread is that of its episodes alone.
    """
    _check_level(level)
    if n < 0 or not 0 <= successes <= n:
        raise ValueError(f"need 0 <= successes <= n, got {successes} of {n}")
    method = f"Wilson interval over episodes, {level:.0%}"
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, method)
    z = float(stats.norm.ppf(0.5 + level / 2.0))
    rate = successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return Estimate(rate, max(0.0, centre - half), min(1.0, centre + half), n, method)
