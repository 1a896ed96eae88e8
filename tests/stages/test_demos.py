"""Demonstrations: on training instances alone, and on all of them."""

from agent_rl.rollouts.storage import load_trajectories
from agent_rl.stages import demos
from agent_rl.stages.common import load_instances


def test_p50_nothing_is_demonstrated_that_is_evaluated(chain, chain_made):
    demos.build(chain, "chain", chain_made)
    ids = {
        split: {i.instance_id for i in load_instances(chain_made.instances) if i.split == split}
        for split in ("train", "val", "test", "shifted")
    }
    for path in (chain_made.expert, chain_made.mixed):
        shown = {t.instance_id for t in load_trajectories(path, "test")}
        assert shown == ids["train"] and not shown & (ids["val"] | ids["test"] | ids["shifted"])
