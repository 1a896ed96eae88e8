"""Every known fault is put into the package, and the tests that claim to catch it must fail.

Left out of the default test command; run it with ``make test-slow``, or a part of it with
    python -m pytest -m mutation -k P14
"""

import pytest
from tests.mutations.faults import FAULTS
from tests.mutations.mutant import Nursery, package_copy, put_in

pytestmark = [pytest.mark.mutation, pytest.mark.slow]


@pytest.fixture(scope="session")
def nursery():
    made = Nursery()
    yield made
    made.close()


def test_every_named_test_passes_without_a_fault(nursery, tmp_path):
    nodes = tuple(sorted({node for fault in FAULTS for node in fault.tests}))
    outcomes = nursery.run(package_copy(tmp_path), nodes, tmp_path)
    wrong = {n: (o.failed or o.broken) for n, o in outcomes.items() if o.failed or o.broken}
    assert not wrong
    assert all(outcome.passed for outcome in outcomes.values())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_is_caught(fault, nursery, tmp_path):
    source = package_copy(tmp_path)
    put_in(source, fault.file, fault.old, fault.new)
    for node, outcome in nursery.run(source, fault.tests, tmp_path, fault.file).items():
        assert outcome.failed, f"{fault.id} ({fault.put_in}) survived {node}: {outcome}"
        assert not outcome.broken, f"{fault.id} breaks {node} instead of failing it: {outcome}"
