"""The harness itself: what counts as caught, as survived, and as no result at all."""

import pytest
from tests.mutations.mutant import ROOT, _check_modules, _outcome, package_copy, put_in

NODE = "tests/test_x.py::test_y"


def phase(outcome, *errors, when="call", node=NODE):
    return {"node": node, "when": when, "outcome": outcome, "errors": list(errors), "told": "E"}


def test_a_failed_assertion_is_caught_and_a_passed_test_is_not():
    caught = _outcome(NODE, [phase("failed", "AssertionError", "Exception")])
    assert (caught.failed, caught.passed, caught.broken) == (("E",), 0, ())
    survived = _outcome(NODE, [phase("passed", when="setup"), phase("passed")])
    assert (survived.failed, survived.passed, survived.broken) == ((), 1, ())


def test_some_parameter_is_enough_unless_one_is_named():
    phases = [
        phase("passed", node=f"{NODE}[a]"),
        phase("failed", "ValueError", node=f"{NODE}[b]"),
        phase("failed", "ValueError", node=f"{NODE}_and_more"),
    ]
    assert _outcome(NODE, phases).failed == ("E",) and _outcome(NODE, phases).passed == 1
    assert _outcome(f"{NODE}[a]", phases).failed == ()


@pytest.mark.parametrize(
    "phases",
    [
        [phase("failed", "ModuleNotFoundError", "ImportError")],
        [phase("failed", "UnboundLocalError", "NameError")],
        [phase("failed", "SyntaxError")],
        [phase("failed", "ValueError", when="setup")],
        [phase("skipped", when="setup")],
        [phase("skipped")],
        [],
    ],
    ids=["import", "name", "syntax", "setup", "skipped", "skipped within", "missing"],
)
def test_code_that_does_not_run_and_tests_that_do_not_start_are_no_result(phases):
    outcome = _outcome(NODE, phases)
    assert outcome.broken and not outcome.failed


def test_a_text_that_is_not_there_once_is_stale(tmp_path):
    (tmp_path / "a.py").write_text("one two two")
    for old in ("three", "two"):
        with pytest.raises(AssertionError, match="the table is stale"):
            put_in(tmp_path, "a.py", old, "four")
    put_in(tmp_path, "a.py", "one", "four")
    assert (tmp_path / "a.py").read_text() == "four two two"


def test_a_package_from_elsewhere_is_noticed(tmp_path):
    here = {"agent_rl": str(tmp_path / "agent_rl/__init__.py"), "agent_rl.x": None}
    _check_modules(here, tmp_path, "agent_rl/__init__.py")
    for modules in ({}, {**here, "agent_rl.y": "/elsewhere/agent_rl/y.py"}):
        with pytest.raises(AssertionError, match="imported from elsewhere"):
            _check_modules(modules, tmp_path, "")
    with pytest.raises(AssertionError, match=r"y\.py was not imported"):
        _check_modules(here, tmp_path, "agent_rl/y.py")


def test_the_copy_is_the_package_and_leaves_the_original_alone(tmp_path):
    source = package_copy(tmp_path)
    put_in(source, "agent_rl/errors.py", "class UserError", "class OtherError")
    assert "OtherError" in (source / "agent_rl" / "errors.py").read_text(encoding="utf-8")
    original = (ROOT / "src" / "agent_rl" / "errors.py").read_text(encoding="utf-8")
    assert "class UserError" in original and "OtherError" not in original
