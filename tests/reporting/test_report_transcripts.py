"""The section of episodes shows what the file holds, and refuses a file that is wrong."""

import copy
import json

import pytest

from agent_rl.errors import UserError
from agent_rl.reporting import build_report
from agent_rl.reporting.document import Missing
from agent_rl.reporting.figures import Gap
from agent_rl.reporting.report import _environment
from agent_rl.reporting.sections import build_document
from agent_rl.reporting.sections_transcripts import literal, transcript_blocks
from agent_rl.reporting.tables import load_results
from agent_rl.reporting.transcripts import load_showcases, load_transcripts

TURN = {
    "observation": "goal a|b <b>", "action": "look `x`", "valid": False, "distance_before": 2.0,
    "distance_after": None, "rewards": {"sparse": 0.0, "shaped": -0.25},
}  # fmt: skip
EPISODE = {
    "task": "babyai", "role": "failed", "policy": "grpo_shaped", "seed": 3, "split": "test",
    "decoding": "greedy", "instance_id": 17, "distance": 2.0, "horizon": 9,
    "turns": [TURN, {**TURN, "rewards": {"sparse": 0.0, "shaped": 0.75}}], "end": "turn_limit",
    "final_observation": "",
}  # fmt: skip
CONTENT = {"selection": "By the rule of the test.", "rewards": {}, "episodes": [EPISODE]}


def write(results, content):
    (results / "transcripts.json").write_text(json.dumps(content))


class AnyGap(dict):
    """Stands for the figures, which are not drawn here."""

    def __missing__(self, name):
        return Gap(name, "not drawn in this test")


def rendered(results):
    """The report as Markdown and HTML, without figures."""
    document = build_document(load_results(results), AnyGap())
    return [
        _environment(html).get_template(name).render(document=document)
        for html, name in ((False, "index.md.j2"), (True, "report.html.j2"))
    ]


def test_an_episode_is_a_heading_a_table_and_the_rule(results):
    write(results, CONTENT)
    text, html = rendered(results)
    before, section = text.split("## What the episodes look like")
    assert "## How episodes end" in before and "## Cost" in section
    section = section.split("\n## ")[0]
    assert "**babyai: GRPO shaped, seed 3, greedy**, instance 17" in section
    assert "no success within the turns allowed, 2 turns." in section
    row = "| 1 | `goal a\\|b <b>` | `look 'x'` | **no** | 2 → lost | 0.000 | -0.250 |"
    assert row in section
    assert "| end | – | – | – | – | 0.000 | 0.500 |" in section
    assert "How they were chosen. By the rule of the test." in section
    assert "<code>goal a|b &lt;b&gt;</code>" in html and "By the rule of the test." in html


def test_an_absent_file_or_task_is_a_visible_gap(results):
    text, html = rendered(results)
    assert "> Gap: `results/transcripts.json` is absent: no episode is shown." in text
    assert "results/transcripts.json</code> is absent" in html
    write(results, {**CONTENT, "episodes": []})
    gap = transcript_blocks(load_transcripts(results / "transcripts.json"), ["babyai"])[0]
    assert gap == Missing("No episode of `babyai` is in `results/transcripts.json`.")


def test_text_of_a_model_cannot_leave_its_code_span():
    assert literal("a ` b\n\n| c") == "`a ' b | c`"
    assert literal(" ") == "–"


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (["selection"], None, "key selection is missing"),
        (["episodes"], {}, "key episodes: {} is not a list"),
        (["episodes", 0], 5, "episodes[0]: must be one JSON object"),
        (["episodes", 0, "policy"], "gpro", "episodes[0], key policy: 'gpro' is not one of"),
        (["episodes", 0, "end"], "won", "key end: 'won' is not one of"),
        (["episodes", 0, "seed"], True, "key seed: True is not a whole number"),
        (["episodes", 0, "distance"], "2", "key distance: '2' is not a number"),
        (["episodes", 0, "turns", 1, "valid"], 1, "turns[1], key valid: 1 is not true or false"),
        (["episodes", 0, "turns", 1, "action"], None, "turns[1]: key action is missing"),
        (["episodes", 0, "turns", 0, "rewards", "sparse"], "x", "key sparse: 'x' is not a number"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(results, path, value, told):
    content = copy.deepcopy(CONTENT)
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    write(results, content)
    with pytest.raises(UserError) as refusal:
        load_transcripts(results / "transcripts.json")
    assert told in str(refusal.value) and "transcripts.json" in str(refusal.value)


@pytest.mark.parametrize(("text", "told"), [("{", "line 1: not valid JSON"), ("[]", "one JSON")])
def test_a_damaged_file_is_refused_before_anything_is_written(results, tmp_path, text, told):
    (results / "transcripts.json").write_text(text)
    with pytest.raises(UserError, match=told):
        build_report(results, tmp_path / "reports")
    assert not (tmp_path / "reports" / "index.md").exists()


HEADER = {
    "task": "lanterns", "settings": {"rooms": 3, "kind": "dark"}, "horizon": 9, "seed": 2,
    "arm": "grpo_shaped", "success": {"oracle": 1.0, "base": 0.25, "grpo_shaped": 0.5},
    "test_episodes": 1200, "budget_tokens": 9000, "total_tokens": 9123,
    "command": "python -m something --task x",
}  # fmt: skip


def show(results, name, header=None, **changes):
    """Write one file of the showcase; ``changes`` are of its header."""
    shown = {**EPISODE, "task": name}
    content = {**CONTENT, "header": {**HEADER, "task": name, **changes}, "episodes": [shown]}
    (results / "showcase").mkdir(exist_ok=True)
    (results / "showcase" / f"{name}.json").write_text(json.dumps({**content, **(header or {})}))


def section_of(results):
    return rendered(results)[0].split("## What the episodes look like")[1].split("\n## ")[0]


def test_runs_beside_the_study_come_after_it_in_the_order_of_names(results):
    write(results, CONTENT)
    without = section_of(results)
    (results / "showcase").mkdir()
    assert section_of(results) == without  # an empty folder shows nothing, as a missing one
    show(results, "zebras")
    show(results, "lanterns")
    text = section_of(results)
    sentence = (
        "**lanterns** (kind dark, rooms 3; 9 turns allowed): success on 1,200 test episodes, "
        "greedy: oracle 1.000, base 0.250, GRPO shaped 0.500 (seed 2, trained on 9,123 tokens "
        "(budget 9,000)); one training seed: descriptive; not part of the study's comparisons. "
        "Made by `python -m something --task x`."
    )
    assert sentence in text
    places = [
        text.index(part)
        for part in (
            *("**babyai: GRPO", sentence, "**lanterns: GRPO shaped, seed 3, greedy**"),
            *("**zebras** (", "**zebras: GRPO", "Steps: exact", "How they were chosen."),
        )
    ]
    assert places == sorted(places)
    assert text.count("How they were chosen.") == 1 == text.count("Steps: exact")
    assert "lanterns" not in without and "significan" not in text


def test_a_run_beside_the_study_that_was_chosen_by_another_rule_tells_its_own(results):
    show(results, "lanterns", header={"selection": "By an older rule."})
    text = section_of(results)
    assert "`results/transcripts.json` is absent" in text  # of the study; the showcase is shown
    assert "How they were chosen. By an older rule." in text
    write(results, CONTENT)
    assert section_of(results).count("How they were chosen.") == 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"arm": "run"}, "header, key arm: 'run' is not one of"),
        ({"success": {"oracle": 1.0, "base": 0.2}}, "success: key grpo_shaped is missing"),
        ({"success": {**HEADER["success"], "base": 20}}, "key base: 20.0 is not in [0, 1]"),
        ({"test_episodes": "many"}, "key test_episodes: 'many' is not a whole number"),
    ],
)
def test_a_wrong_header_is_refused_with_its_place(results, change, told):
    show(results, "lanterns", **change)
    with pytest.raises(UserError) as refusal:
        load_showcases(results / "showcase")
    assert told in str(refusal.value) and "lanterns.json" in str(refusal.value)
