"""Episodes on a task's first training instances, without a study."""

import numpy as np

from agent_rl.rollouts.engine import Episode
from agent_rl.tasks.instances import build_instances


def first_episodes(family, settings, horizon, count):
    """One episode of each of ``count`` instances within the horizon's reach."""
    found, _ = build_instances(family, settings, {"train": count}, max_distance=horizon)
    return [
        Episode(i.instance_id, i.hash, number, 0, np.random.SeedSequence([number]))
        for number, i in enumerate(found)
    ]
