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
from agent_rl.reporting.transcripts import load_transcripts

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
