"""From a policy and instances to trajectories.

``engine`` plays many episodes in lock-step, ``policies`` act, ``chat`` turns text into the exact
tokens of a chat template, ``storage`` keeps trajectories as Parquet.
"""
