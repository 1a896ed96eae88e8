"""The audit in the terminal: the numbers of the stage, and bad words in one line."""

import pytest

from agent_rl.__main__ import main
from agent_rl.stages.audit import audit_task
from agent_rl.stages.audit_table import table
from agent_rl.stages.task_settings import load_task_study, split_instances


@pytest.fixture
def audit(capsys):
    def run(words):
        code = main(["audit", *words.split()])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def test_it_prints_what_the_stage_would_write(audit):
    code, text, _ = audit("babyai --instances 12")
    study = load_task_study("babyai")
    instances = split_instances("babyai", study.task("babyai"), "train", 12)
    assert code == 0 and text.rstrip("\n") == table(audit_task(study, "babyai", instances))
    header, *rows = text.split("\n\n")[0].splitlines()
    assert header.split()[2:] == ["success", *study.rewards]
    by_policy = {row.split()[0]: [float(cell) for cell in row.split()[1:]] for row in rows}
    assert by_policy["oracle"][:3] == [1, 1, 1] and by_policy["stall"][:3] == [0, 0, 0]
    assert "dense_naive: farmable (dawdle earns" in text and "sparse: tight" in text


def test_a_reward_of_ones_own_is_audited_by_its_name(audit):
    code, text, _ = audit("jugs --reward brisk --instances 8")
    assert code == 0 and text.splitlines()[0].split() == ["mean", "return", "success", "brisk"]
    assert "brisk: tight" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("chess", "chess"),
        ("babyai --reward sprase", "there is no configs/reward/sprase.yaml; choose among brisk"),
        ("babyai --instances 1", "--instances 1: must lie between 2 and"),
        ("babyai --set colour=red", "colour"),
        ("babyai --reward judge", "no endpoint is configured"),
    ],
)
def test_bad_words_are_one_line(audit, words, told):
    code, out, err = audit(words)
    assert (code, out) == (2, "") and told in err and err.count("\n") == 1
    assert err.startswith("error: ")
