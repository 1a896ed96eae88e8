"""The table of faults, the tests and ``docs/pitfalls.md`` speak of the same things."""

import ast
import re
from functools import lru_cache

import pytest
from tests.mutations.faults import FAULTS
from tests.mutations.mutant import ROOT, occurrences

DOCUMENT = ROOT / "docs" / "pitfalls.md"
ROW = re.compile(r"^\| (P\d+) \|(.*)\|$", re.MULTILINE)


@lru_cache
def functions(file):
    """Names of the tests in a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


@lru_cache
def every_test():
    """Every test of the checkout, as ``file::name`` below tests/."""
    folder = ROOT / "tests"
    return {
        f"{path.relative_to(folder)}::{name}"
        for path in folder.rglob("test_*.py")
        for name in functions(str(path.relative_to(ROOT)))
        if name.startswith("test_")
    }


@lru_cache
def rows():
    """Pitfall -> the cells of its row."""
    found = ROW.findall(DOCUMENT.read_text(encoding="utf-8"))
    assert len({name for name, _ in found}) == len(found), "a pitfall has two rows"
    return {name: [cell.strip() for cell in cells.split(" | ")] for name, cells in found}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_the_text_that_a_fault_replaces_stands_in_its_file_once(fault):
    assert occurrences(fault.file, fault.old) == 1, f"{fault.id} is stale: look for its text anew"
    assert fault.new != fault.old


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_the_tests_that_must_catch_a_fault_exist(fault):
    assert fault.tests and len(set(fault.tests)) == len(fault.tests)
    for node in fault.tests:
        file, _, name = node.partition("::")
        assert name.split("[")[0] in functions(file)


def test_faults_have_names_of_their_own():
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)


def test_document_tests_and_faults_know_the_same_pitfalls():
    tested = {
        f"P{number}"
        for test in every_test()
        for number in re.findall(r"(?<=_p)\d+(?=_)", test.partition("::")[2])
    }
    assert set(rows()) == tested == {fault.pitfall for fault in FAULTS}


def test_every_row_names_a_source_a_place_tests_and_faults_that_exist():
    for pitfall, (elsewhere, here, tests, faults) in rows().items():
        assert elsewhere and "`" in here, pitfall
        named = re.findall(r"`([\w/]+\.py::test_\w+)`", tests)
        assert named and set(named) <= every_test(), f"{pitfall}: {set(named) - every_test()}"
        assert any(f"_p{pitfall[1:]}_" in name for name in named), pitfall
        files = re.findall(r"`([\w/]+\.py)`", here)
        assert files and all((ROOT / "src" / "agent_rl" / file).exists() for file in files), pitfall
        own = [fault.id for fault in FAULTS if fault.pitfall == pitfall]
        assert re.findall(r"`(P\d+-\w+)`", faults) == own, pitfall


def test_a_stale_text_and_a_missing_test_would_be_found():
    assert occurrences(FAULTS[0].file, "no such text") == 0
    assert occurrences(FAULTS[0].file, "self") > 1
    assert "test_nothing" not in functions("tests/mutations/test_table.py")
