"""Reports of one, two and three tasks: figures grow, axes stay apart, words name each task."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.colors import to_hex

from agent_rl.errors import UserError
from agent_rl.reporting import figures, headline, prose, sections_study, style
from agent_rl.reporting.document import Bullets, Paragraph, Table
from agent_rl.reporting.figures_audit import reward_audit
from agent_rl.reporting.figures_cost import cost, end_reasons
from agent_rl.reporting.figures_dead_groups import dead_groups
from agent_rl.reporting.figures_distance import success_by_distance
from agent_rl.reporting.figures_training import (
    learning_curves,
    reward_vs_success,
    training_health,
)
from agent_rl.reporting.tables import load_results

TASKS = ("babyai", "sqlqa", "a_task_with_a_long_name")
STACKED = (
    figures.main_results,
    learning_curves,
    reward_vs_success,
    reward_audit,
    dead_groups,
    success_by_distance,
    cost,
    training_health,
)


@pytest.fixture(scope="module")
def studies(tmp_path_factory, make_results, make_reward_files):
    """Checked results of one, two and three tasks, of which the third has costs of its own."""
    root = tmp_path_factory.mktemp("studies")
    loaded = {}
    for size in (1, 2, 3):
        folder = make_results(root / str(size), tasks=TASKS[:size], seeds=3)
        results = load_results(make_reward_files(folder, tasks=TASKS[:size]))
        third = results.runs["task"] == TASKS[2]
        results.runs.loc[third, ["train_env_steps", "expert_labels"]] *= 100
        loaded[size] = results
    return loaded


@pytest.fixture(autouse=True)
def looks():
    with style.drawing_style():
        yield


def change_provenance(results, change):
    path = results / "provenance.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return results


@pytest.mark.parametrize("make", STACKED, ids=lambda make: make.__name__)
def test_a_task_adds_its_rows_and_no_width(studies, make):
    sizes = [make(studies[n]).figure.get_size_inches() for n in (1, 2, 3)]
    assert len({width for width, _ in sizes}) == 1 and sizes[0][0] <= 12
    first, second, third = (height for _, height in sizes)
    assert second - first == pytest.approx(third - second)
    assert 0.75 * first < second - first <= first


def test_end_reasons_stand_side_by_side_under_one_list_of_arms(studies):
    for size in (1, 2, 3):
        figure = end_reasons(studies[size]).figure
        assert figure.get_size_inches()[0] <= 12
        assert [axes.get_title(loc="left") for axes in figure.axes] == sorted(TASKS[:size])
        assert all(axes.get_ylim() == figure.axes[0].get_ylim() for axes in figure.axes)


@pytest.mark.parametrize("make", [reward_vs_success, dead_groups, success_by_distance, cost])
def test_panel_titles_touch_neither_each_other_nor_the_edge(studies, make):
    figure = make(studies[3]).figure
    figure.draw_without_rendering()
    titles = [axes.title if axes.get_title() else axes._left_title for axes in figure.axes]
    boxes = [title.get_window_extent() for title in titles if title.get_visible()]
    shown = [box for box, axes in zip(boxes, figure.axes, strict=True) if axes.get_visible()]
    assert not any(left.overlaps(right) for left, right in combinations(shown, 2))
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in shown)


def test_an_arm_has_its_colour_and_its_column_in_every_task(studies):
    figure = reward_vs_success(studies[3]).figure
    by_label = {arm.label: arm.color for arm in style.ARMS.values()}
    columns = {}
    for axes in figure.axes:
        label = axes.get_title(loc="left").replace("\n", " ").split(": ")[1]
        assert to_hex(axes.lines[0].get_color()) == to_hex(by_label[label])
        columns.setdefault(label, set()).add(axes.get_subplotspec().colspan.start)
    assert len(columns) == 4 and all(len(found) == 1 for found in columns.values())


def test_costs_of_one_task_do_not_squeeze_those_of_another(studies):
    figure = cost(studies[3]).figure
    rights = [axes.get_xlim()[1] for axes in figure.axes]
    steps = rights[1::3]
    assert max(steps) > 50 * min(steps)
    for axes, column in zip(figure.axes, range(9), strict=True):
        assert max(bar.get_width() for bar in axes.patches) > 0.2 * rights[column]


def test_arm_without_a_run_on_one_task_is_named_in_its_place(tmp_path, make_results, edit_results):
    results = make_results(tmp_path / "results", tasks=TASKS[:2])
    for name in ("runs", "curves", "by_distance"):
        edit_results(results, name, lambda f: f[~((f["task"] == "sqlqa") & (f["method"] == "dpo"))])
    loaded = load_results(results)
    for make, panels in ((end_reasons, 1), (cost, 3)):
        texts = [text.get_text() for axes in make(loaded).figure.axes for text in axes.texts]
        assert texts.count("no run") == panels
    lines = prose.across_claims(loaded)
    assert (
        "GRPO shaped against DPO: **higher** on 1 of 2 (babyai), not compared on 1 of 2 (sqlqa)."
        in lines
    )


def test_headline_counts_verdicts_by_rule(tmp_path, make_results, edit_results):
    def reverse(frame):
        rows = (frame["task"] == "sqlqa") & frame["method"].isin(["sft", "grpo_shaped"])
        names = {"sft": "grpo_shaped", "grpo_shaped": "sft"}
        frame.loc[rows, "method"] = frame.loc[rows, "method"].map(names)

    results = make_results(tmp_path / "results", tasks=TASKS[:2])
    edit_results(results, "runs", reverse)
    text = headline(results)
    assert "**Across the two tasks** (babyai and sqlqa)" in text
    across = text.split("**babyai**")[0]
    assert "* The best RL arm against base: **higher** on 2 of 2 (babyai and sqlqa)." in across
    line = next(s for s in across.splitlines() if s.startswith("* GRPO shaped against SFT"))
    words = {}
    for stated in text.split("\n\n**")[1:]:
        own = next(s for s in stated.splitlines() if s.startswith("* GRPO shaped") and "SFT" in s)
        words[stated.split("**")[0]] = own.split("**")[1]
    assert set(words) == {"babyai", "sqlqa"} and len(set(words.values())) == 2
    assert all(f"**{word}** on 1 of 2 ({task})" in line for task, word in words.items())
    assert "The study stands on two tasks (babyai and sqlqa) and one base policy for each" in text


def test_headline_of_one_task_has_nothing_across(results):
    text = headline(results)
    assert "Across" not in text
    assert "The study stands on one task (babyai) and one base policy:" in text


def test_question_describes_tasks_by_their_settings(tmp_path, make_results):
    results = make_results(tmp_path / "results", tasks=("x", "y", "z"))

    def settings(content):
        content["tasks"]["x"] = {"level": "PickupLoc", "room_size": 7, "horizon": 12}
        content["tasks"]["y"] = {"hops": 2, "mode": "sql", "held_out": ["city of team", "age"]}
        content["tasks"]["y"]["question"] = "compare"

    blocks = sections_study.question(load_results(change_provenance(results, settings)))
    first, second, third = next(block for block in blocks if isinstance(block, Bullets)).lines
    assert "in a room of 7 by 7 cells the agent picks up" in first and "at most 12 turns" in first
    assert "questions about a database" in second and "two chains of look-ups" in second
    assert "a wrong answer ends" in second
    assert "Goals kept for the shifted instances: city of team, age." in second
    assert third.startswith("**z**: a text task of several turns")
    assert all(
        "The expert needs 2 to 12 steps on test instances." in line for line in blocks[2].lines
    )
    assert any(isinstance(b, Paragraph) and "three tasks" in b.text for b in blocks)


def test_learning_rates_are_a_table_by_task_where_they_are_stated(tmp_path, make_results):
    results = make_results(tmp_path / "results", tasks=TASKS[:2])
    assert len(sections_study.provenance(load_results(results))) == 1

    def state(content):
        content["tasks"]["babyai"]["learning_rates"] = {"sft": 0.002, "dpo": 5e-05, "other": 1}
        content["tasks"]["sqlqa"]["learning_rates"] = {"sft": 0.001}

    blocks = sections_study.provenance(load_results(change_provenance(results, state)))
    table = blocks[-1]
    assert isinstance(table, Table) and table.header == ["arm", "babyai", "sqlqa"]
    assert table.rows == [["SFT", "0.002", "0.001"], ["DPO", "5e-05", "–"], ["other", "1", "–"]]
    assert "learning_rates" not in str(blocks[0].rows)


@pytest.mark.parametrize("wrong", [{"sft": "fast"}, {"sft": 0}, {"sft": None}, {"sft": True}, [1]])
def test_wrong_learning_rate_is_refused_by_name(results, wrong):
    def state(content):
        content["tasks"]["babyai"]["learning_rates"] = wrong

    with pytest.raises(UserError, match=r"provenance\.json, tasks\.babyai\.learning_rates"):
        load_results(change_provenance(results, state))


def test_no_task_is_known_by_name():
    folder = Path(figures.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text()
        assert not any(name in text for name in ("babyai", "sqlqa")), path.name
