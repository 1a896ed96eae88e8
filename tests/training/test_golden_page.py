"""The calculation by hand agrees with itself, and docs/golden.md with the calculation."""

import itertools
from pathlib import Path

import pytest
from tests.training import golden
from tests.training.golden import CREDITS, EPISODES, LOSSES, Setting
from tests.training.golden_page import BLOCKS, blocks_of

PAGE = Path(__file__).parents[2] / "docs" / "golden.md"


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_by_hand_is_the_slope_of_the_loss_by_hand(loss, temperature, sequence):
    setting = Setting(loss, temperature, moved=True, beta=0.3, sequence=sequence)
    values = golden.advantages(EPISODES, CREDITS[1], "group")
    slopes = golden.gradient(golden.terms(EPISODES, values, setting), temperature)
    for before, i in itertools.product(golden.TOKENS, range(4)):
        ends = []
        for change in (1e-5, -1e-5):
            table = golden.logits(golden.WEIGHTS)
            table[before][i] += change
            ends.append(golden.total(golden.terms(EPISODES, values, setting, table)))
        assert slopes[before][i] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-9)


def test_the_case_of_the_moved_policy_has_every_kind_of_token():
    values = golden.advantages(EPISODES, CREDITS[1], "group")
    kinds = {
        (term.advantage > 0, 0.8 <= term.ratio <= 1.2, term.slope != 0)
        for term in golden.terms(EPISODES, values, Setting(moved=True))
        if term.advantage
    }
    assert {(True, True, True), (True, False, False), (True, False, True)} < kinds
    assert {(False, True, True), (False, False, False), (False, False, True)} < kinds


def differing(written, printed):
    """Cells of two blocks that differ: words by letter, numbers by more than the last digit."""
    pairs = itertools.zip_longest(written.split(), printed.split(), fillvalue="")
    return [(a, b) for a, b in pairs if a != b and not close(a, b)]


def close(a, b):
    try:
        return abs(float(a.strip("()")) - float(b.strip("()"))) < 1.5e-6
    except ValueError:
        return False


def test_the_page_holds_every_block_and_no_other():
    assert list(blocks_of(PAGE.read_text("utf-8"))) == list(BLOCKS)


@pytest.mark.parametrize("name", BLOCKS)
def test_the_page_says_what_was_calculated(name):
    assert not differing(blocks_of(PAGE.read_text("utf-8"))[name], BLOCKS[name]())


def test_a_number_that_went_stale_is_found():
    assert differing("| A1 | 0.499800 |", "| A1 | 0.499803 |")
    assert differing("| A1 | 0.499800 |", "| A2 | 0.499800 |")
    assert differing("| A1 | 0.499800 |", "| A1 | 0.499800 |\n| A2 | 0.1 |")
    assert not differing("| A1 | 0.499800 |", "| A1 | 0.499801 |")
