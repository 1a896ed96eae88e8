"""Held-out evaluation: episodes played by a finished policy, and the statistics of a claim.

:mod:`agent_rl.evaluation.statistics` knows nothing of the rest of the package: it takes per-seed
numbers and returns estimates with intervals.
"""
