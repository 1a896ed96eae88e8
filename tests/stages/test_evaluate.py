"""Evaluation: the listed instances, under the settings that made them, for everyone."""

import dataclasses

import pytest

from agent_rl.errors import UserError
from agent_rl.rollouts.engine import RolloutEngine
from agent_rl.seeding import Stream
from agent_rl.stages.common import load_instances
from agent_rl.stages.evaluate import Contender, evaluate

TASK = "chain"


@pytest.fixture
def made(chain_made):
    return chain_made


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


def test_p52_evaluation_draws_from_its_own_stream_which_no_policy_changes(chain, made, monkeypatch):
    names, play = [], RolloutEngine.play

    def spy(self, policy, episodes, progress=None):
        names.append([e.seed.spawn_key for e in episodes])
        return play(self, policy, episodes, progress)

    monkeypatch.setattr(RolloutEngine, "play", spy)
    played("random", chain, made)
    for_random, names = names, []
    played("oracle", chain, made)
    assert names == for_random  # common random numbers
    drawn = [key for batch in names for key in batch]
    assert {key[1] for key in drawn} == {Stream.EVALUATION}
    test, shifted = (set(batch) for batch in (names[0], names[-1]))
    assert not test & shifted and len(test) == 12 and len(shifted) == 10
