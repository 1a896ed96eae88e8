"""Engines play the same turns of the same room, so that their ratio is one of engines."""

import dataclasses
import platform

import numpy as np
import pandas as pd
import pytest
from benchmarks.cases import QUICK
from tests.reporting.texts import lines_of

from agent_rl.reporting import bench
from agent_rl.reporting.document import Paragraph
from agent_rl.reporting.sections_bench import speed_blocks
from agent_rl.rollouts.engine import RolloutEngine
from agent_rl.rollouts.policies import OraclePolicy
from benchmarks import __main__ as command
from benchmarks import room, rounds


@pytest.fixture(scope="module")
def task():
    return room.study().task(room.TASK)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Two engines at toy sizes, through the command."""
    folder = tmp_path_factory.mktemp("bench")
    words = ["--quick", "--only", "agent_rl", "--only", "generate", "--out", str(folder)]
    assert command.main(words) == 0
    return folder


def test_no_episode_of_the_room_ends_early_even_under_the_expert(task):
    """Were turning enough for any start, engines would differ in the turns that they play."""
    episodes = room.groups(task, 256, 1)
    engine = RolloutEngine("room", lambda: room.make_room(task, 5), batch_size=256)
    for trajectory in engine.play(OraclePolicy(), episodes):
        assert len(trajectory.turns) == 5 and not trajectory.success
    turned = engine.play(room.Turner(), episodes)
    assert all(len(trajectory.turns) == 5 and not trajectory.success for trajectory in turned)
    seen = {turn.observation for trajectory in turned for turn in trajectory.turns}
    assert len(seen) > 2 * len({trajectory.instance_id for trajectory in turned})


def test_streams_have_instances_of_their_own(task):
    first, second = ({e.instance_id for e in room.groups(task, 512, s)} for s in (1, 2))
    assert len(first) == 64 and not first & second


def test_a_call_of_the_tool_is_the_tokens_of_a_plain_answer():
    from benchmarks.base import make_tokenizer
    from trl.chat_template_utils import (
        is_chat_template_prefix_preserving,
        parse_response,
        supports_tool_calling,
    )

    from agent_rl.rollouts.chat import Chat

    tokenizer = make_tokenizer()
    assert supports_tool_calling(tokenizer) and is_chat_template_prefix_preserving(tokenizer)
    chat = Chat(tokenizer)
    opening = list(chat.opening("wall f2"))
    plain = [*opening, *chat.answer("left"), *chat.observe("wall f3")]
    call = {"type": "function", "function": {"name": "act", "arguments": {"command": "left"}}}
    messages = [
        {"role": "user", "content": "wall f2"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "act", "content": "wall f3"},
    ]
    called = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert called == plain and len(chat.answer("left")) == 2
    read = parse_response(tokenizer, list(chat.answer("left")), prefix=opening)
    assert read["tool_calls"] == [call]


def test_another_number_of_turns_is_refused():
    from benchmarks.engines import speeds

    played = {"seconds": 2.0, "tokens": 40, "memory": (100.0, 130.0)}
    found = {m.metric: m.value for m in speeds("e", "m", 4, 5, turns=20, **played)}
    assert found["turns/s"] == 10 and found["episodes/s"] == 2 and found["sampled tokens/s"] == 20
    assert found["memory added by rollouts, MiB"] == 30
    with pytest.raises(RuntimeError, match="engine e played 19 turns where 20 were due"):
        speeds("e", "m", 4, 5, turns=19, **played)


def test_answers_are_cut_after_the_end_of_the_turn():
    from benchmarks.engines import until

    assert until([7, 3, 0, 0], 3) == [7, 3]
    assert until([7, 8, 9], 3) == [7, 8, 9]


def test_turns_of_trl_are_runs_of_sampled_tokens():
    from benchmarks.stock_trl import _runs

    assert _runs([1, 1, 0, 0, 1, 0, 1, 1]) == 3 and _runs([0, 0]) == 0


def test_the_command_measures_two_engines_on_the_same_turns(quick):
    table = pd.read_csv(quick / "bench.csv")
    assert list(table.columns) == rounds.COLUMNS
    assert set(table.case) == {"engines"} and set(table.engine) == {"agent_rl", "generate"}
    assert set(table.batch) == {QUICK.batch} and (table.runs == 1).all()
    per_episode = table[table.metric == "turns per episode"]
    assert per_episode.value.tolist() == [QUICK.horizon] * 2
    assert (table[table.metric == "turns/s"].value > 0).all()
    assert {"updates/s"} <= set(table[table.engine == "agent_rl"].metric)
    about = (quick / "bench_machine.json").read_text(encoding="utf-8")
    assert '"sizes": "quick"' in about
    assert platform.node() not in about and str(quick) not in about


def test_the_report_computes_the_ratio_from_the_same_run(quick):
    table = bench.load_bench(quick / "bench.csv")
    ours, other = (bench.engine_cell(table, e, "turns/s") for e in ("agent_rl", "generate"))
    text = lines_of(speed_blocks(table, Paragraph("")))
    found = bench.ratio(ours, other)
    assert np.isclose(found.value, ours.value / other.value)
    assert f"{bench.spread(found, 2)} times `generate` per turn" in text


def test_sizes_of_the_whole_run_are_those_of_the_study(task):
    from benchmarks.cases import FULL

    assert (
        FULL.horizon == task.horizon
        and FULL.batch == room.study().arm("grpo_shaped").episodes_per_update
    )
    assert FULL.runs >= 5
    assert dataclasses.asdict(FULL).keys() == dataclasses.asdict(QUICK).keys()
