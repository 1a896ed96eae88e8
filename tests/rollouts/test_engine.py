"""Task -> rollout -> trajectory: faults of a task are recorded, never told to the policy."""

import dataclasses

import numpy as np
import pytest

from agent_rl.errors import UserError
from agent_rl.rollouts.chat import Chat
from agent_rl.rollouts.engine import RolloutEngine
from agent_rl.rollouts.model_policy import ModelPolicy
from agent_rl.rollouts.policies import (
    Demonstrator,
    OraclePolicy,
    Purpose,
    RandomPolicy,
    SequencePolicy,
)
from agent_rl.seeding import Stream
from agent_rl.stages.common import episodes_of
from agent_rl.tasks.base import EpisodeOver
from agent_rl.tasks.instances import build_instances
from agent_rl.tasks.registry import make_env
from agent_rl.trajectory import (
    EndReason,
    Trajectory,
    TrajectoryGroup,
    Turn,
    group_trajectories,
)


class Listener(SequencePolicy):
    """Remembers everything that it was told."""

    def __init__(self):
        super().__init__(["w0"])
        self.told = []

    def act(self, slots, observations, tasks):
        self.told += observations
        return super().act(slots, observations, tasks)


@pytest.mark.parametrize("broken", [1, 3])
def test_p26_a_fault_of_the_task_ends_the_episode_and_is_never_read(stub, episodes_for, broken):
    policy = Listener()
    played = RolloutEngine("stub", lambda: stub(broken=broken)).play(policy, episodes_for([3, 7]))
    for trajectory in played:
        assert trajectory.end is EndReason.ERROR and not trajectory.success
        assert trajectory.error == "ZeroDivisionError: a bug in the task"
        assert len(trajectory.turns) == broken
        assert not trajectory.turns[-1].valid
        assert trajectory.final_observation == ""
    assert not any("bug" in text or "Error" in text or "Trace" in text for text in policy.told)
    assert len(policy.told) == 2 * broken


def test_p26_a_fault_reaches_no_token_of_a_model_s_episode(
    stub, episodes_for, make_model, word_tokenizer
):
    chat = Chat(word_tokenizer)
    policy = ModelPolicy(
        "m", make_model(word_tokenizer), chat, temperature=1.0, max_action_tokens=3, max_tokens=400
    )
    sound = RolloutEngine("stub", stub).play(policy, episodes_for([3]))[0]
    broken = RolloutEngine("stub", lambda: stub(broken=2)).play(policy, episodes_for([3]))[0]
    read = len(broken.token_ids)
    assert broken.end is EndReason.ERROR and broken.mask[-1] == 1
    assert broken.token_ids.tolist() == sound.token_ids[:read].tolist()


def test_p26_a_fault_at_reset_is_an_episode_without_turns(stub, episodes_for):
    policy = Listener()
    played = RolloutEngine("stub", lambda: stub(broken=0)).play(policy, episodes_for([2, 4]))
    assert [t.end for t in played] == [EndReason.ERROR] * 2
    assert [t.turns for t in played] == [(), ()] and policy.told == []
    for trajectory in played:
        trajectory.validate()


def test_p26_one_broken_episode_leaves_the_others_alone(stub, episodes_for):
    made = iter([stub(), stub(broken=2), stub()])
    engine = RolloutEngine("stub", lambda: next(made))
    played = engine.play(SequencePolicy(["w0"]), episodes_for([2, 6, 2]))
    assert [t.end for t in played] == [EndReason.SUCCESS, EndReason.ERROR, EndReason.SUCCESS]
    assert played[0].turns == played[2].turns


def test_a_fault_of_the_policy_is_a_bug_and_escapes(stub, episodes_for):
    class Broken(SequencePolicy):
        def choose(self, slot, observation, task):
            raise KeyError("policy")

    with pytest.raises(KeyError):
        RolloutEngine("stub", stub).play(Broken(["w0"]), episodes_for([0]))


def test_p53_another_instance_than_the_list_says_stops_the_run(stub, episodes_for):
    wrong = [dataclasses.replace(e, instance_hash="another") for e in episodes_for([4])]
    with pytest.raises(UserError, match=r"instance 4 .*hash-4.*another.*dvc repro instances"):
        RolloutEngine("stub", stub).play(SequencePolicy(["w0"]), wrong)


@pytest.fixture(scope="module")
def real():
    """BabyAI instances and an engine for them."""
    settings = {"level": "GoToLocal", "room_size": 6, "num_dists": 3}
    instances, _ = build_instances("babyai", settings, {"train": 6}, (), max_distance=12)
    engine = RolloutEngine("babyai", lambda: make_env("babyai", settings, 12), batch_size=8)
    return instances, engine


def test_p22_members_share_their_start_and_groups_do_not(real, study):
    instances, engine = real
    played = engine.play(
        RandomPolicy(), episodes_of(study, instances, 0, Stream.SAMPLING, members=4)
    )
    groups = group_trajectories(played)
    assert [len(group) for group in groups] == [4] * 6
    for group in groups:
        assert len({t.instance_hash for t in group.trajectories}) == 1
        assert len({t.turns[0].observation for t in group.trajectories}) == 1
        assert len({t.turns[0].distance_before for t in group.trajectories}) == 1
        assert len({tuple(u.action for u in t.turns) for t in group.trajectories}) > 1
    assert len({group.trajectories[0].instance_hash for group in groups}) == 6


@pytest.mark.parametrize(
    ("family", "settings"), [("sqlqa", {"hops": 1}), ("examples.jugs:FAMILY", {})]
)
def test_p22_members_share_their_start_in_every_family(study, family, settings):
    instances, _ = build_instances(family, settings, {"train": 5}, (), max_distance=12)
    engine = RolloutEngine("t", lambda: make_env(family, settings, 12), batch_size=7)
    episodes = episodes_of(study, instances, 0, Stream.SAMPLING, members=3)
    groups = group_trajectories(engine.play(RandomPolicy(), episodes))
    assert [len(group) for group in groups] == [3] * 5
    starts = [{t.turns[0].observation for t in group.trajectories} for group in groups]
    assert all(len(start) == 1 for start in starts)
    assert len({group.trajectories[0].instance_hash for group in groups}) == 5


def test_p62_trajectories_come_in_the_order_of_their_episodes(stub, episodes_for):
    # Lengths fall, rise and repeat, over several batches of unequal size.
    ids = (3, 0, 6, 1, 2, 9, 3, 12)
    for batch_size in (1, 3, 8):
        engine = RolloutEngine("stub", stub, batch_size=batch_size)
        played = engine.play(SequencePolicy(["w0"]), episodes_for(ids, 2))
        assert [(t.instance_id, t.group_id, t.member) for t in played] == [
            (i, group, member) for group, i in enumerate(ids) for member in range(2)
        ]


def test_p21_environments_of_one_batch_share_nothing(real, study):
    instances, engine = real
    episodes = episodes_of(study, instances, 0, Stream.SAMPLING, members=2)
    alone = RolloutEngine("babyai", engine._make_env, batch_size=1)
    for a, b in zip(
        engine.play(RandomPolicy(), episodes), alone.play(RandomPolicy(), episodes), strict=True
    ):
        assert (a.turns, a.end, a.final_observation) == (b.turns, b.end, b.final_observation)


def test_p21_environments_that_were_used_before_play_the_same_record(real, study):
    instances, engine = real
    episodes = episodes_of(study, instances, 0, Stream.SAMPLING, members=3)
    first = engine.play(RandomPolicy(), episodes)
    engine.play(RandomPolicy(), episodes_of(study, instances[::-1], 1, Stream.SAMPLING, members=2))
    again = engine.play(RandomPolicy(), episodes)
    for a, b in zip(first, again, strict=True):
        assert (a.turns, a.end, a.final_observation) == (b.turns, b.end, b.final_observation)


def test_the_oracle_wins_on_a_shortest_path_and_its_distances_count_down(real, study):
    instances, engine = real
    played = engine.play(OraclePolicy(), episodes_of(study, instances, 0, Stream.TASKS))
    for trajectory, instance in zip(played, instances, strict=True):
        assert trajectory.end is EndReason.SUCCESS
        assert trajectory.distances.tolist() == list(range(instance.distance, -1, -1))


def test_p17_running_out_of_turns_is_recorded_as_that_and_is_a_failure(stub, episodes_for, real):
    engine = RolloutEngine("stub", lambda: stub(horizon=4, endless=True))
    for trajectory in engine.play(SequencePolicy(["w0"]), episodes_for([2, 3])):
        assert trajectory.end is EndReason.TURN_LIMIT and not trajectory.success
        assert len(trajectory.turns) == trajectory.horizon == 4


def test_p17_a_model_that_closes_its_last_answer_still_ran_out_of_turns(
    stub, episodes_for, make_model, word_tokenizer
):
    chat = Chat(word_tokenizer)
    policy = ModelPolicy(
        "m", make_model(word_tokenizer), chat, temperature=1.0, max_action_tokens=9, max_tokens=900
    )
    engine = RolloutEngine("stub", lambda: stub(horizon=3, endless=True))
    played = engine.play(policy, episodes_for(range(20)))
    closed = [t for t in played if t.token_ids[-1] == chat.end_id]
    assert closed and all(t.end is EndReason.TURN_LIMIT for t in closed)


def test_the_four_ends_of_an_episode_stay_apart(stub, episodes_for):
    won, lost = RolloutEngine("stub", stub).play(SequencePolicy(["w0"]), episodes_for([0, 1]))
    assert (won.end, lost.end) == (EndReason.SUCCESS, EndReason.FAILURE)
    assert won.distances[-1] == 0 and lost.distances[-1] == np.inf


def test_p20_nobody_is_stepped_after_the_end(stub, episodes_for):
    env = stub()
    RolloutEngine("stub", lambda: env).play(SequencePolicy(["w0"]), episodes_for([0]))
    assert len(env.task.heard) == 1
    with pytest.raises(EpisodeOver):
        env.step("w0")


def test_progress_reports_every_episode_once(stub, episodes_for):
    told = []
    engine = RolloutEngine("stub", stub, batch_size=3)
    engine.play(SequencePolicy(["w0"]), episodes_for(range(8)), told.append)
    assert told == [3, 3, 2]


def trajectory(group=0, digest="h", horizon=3, **changes):
    turn = Turn("o", "a", (5, 2), (-0.5, -1.0), True, 2.0, 1.0)
    record = Trajectory(
        task="t", instance_id=0, instance_hash=digest, group_id=group, member=0, policy="p",
        weights="", seed=0, temperature=1.0, horizon=horizon, turns=(turn,), final_observation="",
        end=EndReason.TURN_LIMIT, token_ids=np.array([9, 5, 2], np.int32),
        mask=np.array([0, 1, 1], np.int8), logprobs=np.array([0, -0.5, -1.0], np.float32),
    )  # fmt: skip
    return dataclasses.replace(record, **changes)


@pytest.mark.parametrize(
    "members",
    [
        (trajectory(digest="a"), trajectory(digest="b")),
        (trajectory(group=0), trajectory(group=1)),
        (),
    ],
)
def test_p23_a_group_of_different_starts_cannot_be_made(members):
    with pytest.raises(ValueError, match="share one id and one initial state"):
        TrajectoryGroup(members)


def test_p23_grouping_follows_the_id_and_not_the_position():
    shuffled = [trajectory(group=g, digest=f"h{g}", member=m) for m in (0, 1) for g in (4, 2)]
    groups = group_trajectories(shuffled)
    assert [g.trajectories[0].group_id for g in groups] == [4, 2]
    assert [[t.member for t in g.trajectories] for g in groups] == [[0, 1], [0, 1]]


def test_p23_two_starts_under_one_group_id_are_refused():
    with pytest.raises(ValueError, match="2 initial states"):
        group_trajectories([trajectory(digest="a"), trajectory(digest="b")])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"mask": np.array([0, 1], np.int8)}, "lengths"),
        ({"logprobs": np.zeros(4, np.float32)}, "lengths"),
        ({"mask": np.array([1, 1, 0], np.int8)}, "not the ids of the actions"),
        ({"token_ids": np.array([9, 5, 3], np.int32)}, "not the ids of the actions"),
        ({"turns": (Turn("o", "a", (5, 2), (-0.5,), True, 2.0, 1.0),)}, "unequal ids"),
        ({"horizon": 0}, "exceed horizon"),
        ({"end": EndReason.SUCCESS}, "success without distance 0"),
        ({"end": EndReason.SUCCESS, "turns": ()}, "."),
    ],
)
def test_p7_a_record_that_contradicts_itself_is_refused(changes, told):
    trajectory().validate()
    with pytest.raises(ValueError, match=told):
        trajectory(**changes).validate()


def test_turn_spans_point_at_each_turn_s_sampled_tokens(
    stub, episodes_for, make_model, word_tokenizer
):
    policy = ModelPolicy(
        "m", make_model(word_tokenizer), Chat(word_tokenizer),
        temperature=1.0, max_action_tokens=4, max_tokens=400,
    )  # fmt: skip
    for played in RolloutEngine("stub", stub).play(policy, episodes_for(range(12))):
        for turn, (start, stop) in zip(played.turns, played.turn_spans, strict=True):
            assert tuple(played.token_ids[start:stop]) == turn.token_ids
            assert played.mask[start:stop].all() and played.mask[start - 1] == 0


def test_demonstrators_follow_their_purpose(real, study):
    instances, engine = real

    def success(**shares):
        none = {field.name: 0.0 for field in dataclasses.fields(Purpose)}
        purpose = Purpose(**{**none, **shares})
        episodes = episodes_of(study, instances, 0, Stream.TASKS, members=10)
        return np.mean([t.success for t in engine.play(Demonstrator(purpose), episodes)])

    assert success(right=1.0) == 1
    assert success(wrong=1.0) < 0.5
    assert 0 < success(right=0.5, wander=0.5) < 1
