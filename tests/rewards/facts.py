"""Facts of made-up episodes."""

import numpy as np

from agent_rl.rewards import EpisodeFacts


def make_facts(
    lengths,
    *,
    groups=None,
    success=None,
    crashed=None,
    distances=None,
    horizon=None,
    valid=None,
    repeated=None,
    answered=None,
):
    """Facts with defaults: one group, no success, all actions valid and new."""
    lengths = np.array(lengths)
    size, width = len(lengths), max(int(lengths.max()), 1)
    if distances is None:
        distances = np.ones((size, width + 1))
    width = distances.shape[1] - 1
    taken = np.arange(width)[None, :] < lengths[:, None]
    success = np.zeros(size, bool) if success is None else np.array(success)
    return EpisodeFacts(
        distances=distances,
        lengths=lengths,
        success=success,
        crashed=np.zeros(size, bool) if crashed is None else np.array(crashed),
        groups=np.zeros(size, int) if groups is None else np.array(groups),
        horizon=np.full(size, horizon if horizon is not None else width),
        valid=taken if valid is None else np.array(valid),
        repeated=np.zeros((size, width), bool) if repeated is None else np.array(repeated),
        answered=success if answered is None else np.array(answered),
    )
