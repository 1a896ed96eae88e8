"""Trajectories on disk: what comes back is what was written, or one line says why not."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_rl.errors import UserError
from agent_rl.rollouts.chat import Chat
from agent_rl.rollouts.engine import RolloutEngine
from agent_rl.rollouts.model_policy import ModelPolicy
from agent_rl.rollouts.policies import RandomPolicy
from agent_rl.rollouts.storage import load_trajectories, save_trajectories
from agent_rl.trajectory import Trajectory


@pytest.fixture(scope="module")
def played(stub, episodes_for, make_model, word_tokenizer):
    """Successes, failures, time-outs, a crash; with tokens and without."""
    policy = ModelPolicy(
        "m", make_model(word_tokenizer), Chat(word_tokenizer), temperature=0.7,
        max_action_tokens=4, max_tokens=400, weights="abc",
    )  # fmt: skip
    return [
        *RolloutEngine("stub", lambda: stub(horizon=3), seed=5).play(
            policy, episodes_for(range(8))
        ),
        *RolloutEngine("stub", lambda: stub(broken=2)).play(policy, episodes_for([3])),
        *RolloutEngine("stub", lambda: stub(broken=0)).play(policy, episodes_for([3])),
        *RolloutEngine("stub", stub).play(RandomPolicy(), episodes_for(range(3))),
    ]


def assert_refused(path, *told):
    with pytest.raises(UserError) as refusal:
        load_trajectories(path, "dvc repro collect")
    text = str(refusal.value)
    assert "\n" not in text and str(path) in text and "dvc repro collect" in text
    for part in told:
        assert part in text


def test_a_round_trip_changes_nothing(played, tmp_path):
    assert len({t.end for t in played}) == 4
    save_trajectories(tmp_path / "t.parquet", played)
    loaded = load_trajectories(tmp_path / "t.parquet", "x")
    for before, after in zip(played, loaded, strict=True):
        for field in dataclasses.fields(Trajectory):
            a, b = getattr(before, field.name), getattr(after, field.name)
            if isinstance(a, np.ndarray):
                assert a.dtype == b.dtype and a.tobytes() == b.tobytes()
            elif field.name == "turns":
                for x, y in zip(a, b, strict=True):
                    # A turn's log-probabilities are kept as float32, as in the episode's array.
                    assert np.float32(x.logprobs).tobytes() == np.float32(y.logprobs).tobytes()
                    assert dataclasses.replace(x, logprobs=()) == dataclasses.replace(
                        y, logprobs=()
                    )
            else:
                assert a == b and type(a) is type(b)


def test_equal_trajectories_give_equal_bytes(played, tmp_path):
    for name in ("a", "b"):
        save_trajectories(tmp_path / name, played)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_p7_a_record_that_contradicts_itself_is_not_written(played, tmp_path):
    first = played[0]
    bad = dataclasses.replace(first, logprobs=first.logprobs[:-1])
    with pytest.raises(ValueError, match="lengths"):
        save_trajectories(tmp_path / "t.parquet", [bad])
    assert list(tmp_path.iterdir()) == []


def test_p7_a_record_that_was_changed_on_disk_is_refused(played, tmp_path):
    path = tmp_path / "t.parquet"
    save_trajectories(path, played)
    table = pq.read_table(path)
    masks = [[1 - m for m in row] for row in table["mask"].to_pylist()]
    column = table.schema.get_field_index("mask")
    changed = pa.array(masks, table.schema.field("mask").type)
    pq.write_table(table.set_column(column, table.schema.field(column), changed), path)
    assert_refused(path, "not the ids of the actions")


def test_an_unknown_end_reason_on_disk_is_refused(played, tmp_path):
    path = tmp_path / "t.parquet"
    save_trajectories(path, played[:1])
    table = pq.read_table(path)
    column = table.schema.get_field_index("end")
    pq.write_table(table.set_column(column, table.schema.field(column), [["finished"]]), path)
    assert_refused(path, "finished")


def test_a_missing_file_is_told_with_the_command_that_makes_it(tmp_path):
    assert_refused(tmp_path / "none.parquet", "missing")


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_told_in_one_line(played, tmp_path, kept):
    path = tmp_path / "t.parquet"
    save_trajectories(path, played)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    assert_refused(path, "damaged")


def test_flipped_bytes_do_not_come_back_as_other_trajectories(played, tmp_path):
    path = tmp_path / "t.parquet"
    save_trajectories(path, played)
    content = bytearray(path.read_bytes())
    for place in range(200, 260):
        content[place] ^= 0xFF
    path.write_bytes(bytes(content))
    assert_refused(path)


@pytest.mark.parametrize("change", ["drop", "type", "other"])
def test_another_schema_is_refused(played, tmp_path, change):
    path = tmp_path / "t.parquet"
    save_trajectories(path, played)
    table = pq.read_table(path)
    if change == "drop":
        table = table.drop_columns(["logprobs"])
    elif change == "type":
        column = table.schema.get_field_index("mask")
        wide = pa.field("mask", pa.list_(pa.int64()))
        table = table.set_column(column, wide, table["mask"].cast(wide.type))
    else:
        table = pa.table({"x": [1]})
    pq.write_table(table, path)
    assert_refused(path, "schema", "'logprobs'" if change != "type" else "types may differ")
