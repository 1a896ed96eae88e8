"""A task of two splits that differ in their settings, with its instances and no model."""

import dataclasses

import pytest

from agent_rl.config import SplitSizes
from agent_rl.stages import instances
from agent_rl.stages.common import Artifacts

TASK = "chain"


@pytest.fixture(scope="session")
def chain(study):
    """A study of one task whose shifted split needs one look-up more."""
    task = dataclasses.replace(
        study.task("babyai"),
        family="sqlqa",
        settings={"hops": 1, "tables": 6, "mode": "sql"},
        shifted_settings={"hops": 2},
        held_out=(),
        horizon=8,
        instances=SplitSizes(train=4, val=4, test=12, shifted=10),
    )
    return dataclasses.replace(study, tasks={TASK: task})


@pytest.fixture(scope="session")
def chain_made(chain, tmp_path_factory):
    folder = Artifacts(tmp_path_factory.mktemp("evaluate") / TASK)
    instances.build(chain, TASK, folder)
    return folder
