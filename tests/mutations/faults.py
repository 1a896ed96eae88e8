"""Faults that were met elsewhere, written into this package: the whole table.

``docs/pitfalls.md`` tells what each pitfall is.
"""

from tests.mutations import (
    faults_credit,
    faults_data,
    faults_episodes,
    faults_rewards,
    faults_runs,
    faults_sampling,
    faults_tokens,
)

_PARTS = (
    faults_tokens,
    faults_sampling,
    faults_episodes,
    faults_credit,
    faults_rewards,
    faults_data,
    faults_runs,
)

FAULTS = tuple(
    sorted((fault for part in _PARTS for fault in part.FAULTS), key=lambda f: int(f.pitfall[1:]))
)
