"""Named random streams. Every random draw of a study comes from one of them, as an argument.

A stream is ``numpy.random.SeedSequence(study_seed, spawn_key=(seed, stream, *index))``: changing
how much one stream draws (evaluating more often, a larger group) cannot move another.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """What a stream of random numbers is for. The numbers are part of every result: append only."""

    INIT = 0
    """Initial weights."""
    DATA = 1
    """Order of training data."""
    TASKS = 2
    """Scripted choices: which demonstration, which goal."""
    SAMPLING = 3
    """Actions sampled while training or collecting."""
    EVALUATION = 4
    """Actions sampled while evaluating."""
    STATISTICS = 5
    """Bootstrap resamples."""
    PROBE = 6
    """Episodes of the base in large groups, which no arm learns from."""
    AUDIT = 7
    """Scripted policies under every reward."""


def sequence(study_seed: int, seed: int, stream: Stream, *index: int) -> np.random.SeedSequence:
    """Seed sequence of one stream; ``index`` opens independent sub-streams (update, episode)."""
    return np.random.SeedSequence(study_seed, spawn_key=(seed, int(stream), *index))


def generator(study_seed: int, seed: int, stream: Stream, *index: int) -> np.random.Generator:
    """Generator of one stream."""
    return np.random.default_rng(sequence(study_seed, seed, stream, *index))


def integer_seed(study_seed: int, seed: int, stream: Stream, *index: int) -> int:
    """A 31-bit seed for libraries that take an integer."""
    return int(sequence(study_seed, seed, stream, *index).generate_state(1)[0] >> 1)
