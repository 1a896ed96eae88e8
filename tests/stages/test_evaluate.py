"""Evaluation: the listed instances, under the settings that made them, for everyone."""

import dataclasses

import pytest

from agent_rl.config import SplitSizes
from agent_rl.errors import UserError
from agent_rl.stages import instances
from agent_rl.stages.common import Artifacts, load_instances
from agent_rl.stages.evaluate import Contender, evaluate

TASK = "chain"


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
def made(chain, tmp_path_factory):
    folder = Artifacts(tmp_path_factory.mktemp("evaluate") / TASK)
    instances.build(chain, TASK, folder)
    return folder


def played(method, study, made):
    rows, _ = evaluate(Contender(method, None, None), study=study, task_name=TASK, artifacts=made)
    return rows


def test_p64_a_split_is_played_under_the_settings_that_made_it(chain, made):
    rows = played("oracle", chain, made)
    assert {row["end"] for row in rows} == {"success"}
    turns = {s: {r["turns"] for r in rows if r["split"] == s} for s in ("test", "shifted")}
    assert turns == {"test": {2}, "shifted": {3}}
    assert all(row["turns"] == row["distance"] for row in rows)


def test_p53_every_policy_plays_the_listed_instances_in_their_order(chain, made):
    listed = [
        (split, decoding, one.instance_id, one.distance)
        for split in ("test", "shifted")
        for decoding in chain.evaluation.decodings
        for one in load_instances(made.instances)
        if one.split == split
    ]
    for method in ("oracle", "random"):
        rows = played(method, chain, made)
        assert listed == [
            (r["split"], r["decoding"], r["instance_id"], r["distance"]) for r in rows
        ]


def test_p53_a_list_that_was_made_under_other_settings_is_refused(chain, made):
    task = chain.task(TASK)
    other = dataclasses.replace(task, settings={**task.settings, "tables": 5})
    changed = dataclasses.replace(chain, tasks={TASK: other})
    with pytest.raises(UserError, match="the instance list says") as refusal:
        played("oracle", changed, made)
    assert "\n" not in str(refusal.value)
