"""A pytest plugin for runs on a copy of the package: says what each test did, and whose code ran.

It writes JSON to the file that ``AGENT_RL_PROBE`` names, and imports nothing of the package itself.
"""

import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import Phase, settings

# A fault need only be found; the smallest example of it interests nobody.
settings.register_profile("probe", phases=(Phase.explicit, Phase.generate), database=None)
settings.load_profile("probe")

_phases = []
_broken = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    error = call.excinfo.type if call.excinfo is not None else None
    _phases.append(
        {
            "node": item.nodeid,
            "when": report.when,
            "outcome": report.outcome,
            "errors": [kind.__name__ for kind in error.__mro__] if error else [],
            "told": call.excinfo.exconly()[:300] if error else "",
        }
    )
    return report


def pytest_collectreport(report):
    if report.failed:
        _broken.append(f"{report.nodeid}: {report.longreprtext[-300:]}")


def pytest_sessionfinish(session):
    modules = {
        name: getattr(module, "__file__", None)
        for name, module in sys.modules.items()
        if name == "agent_rl" or name.startswith("agent_rl.")
    }
    content = {"phases": _phases, "broken": _broken, "modules": modules}
    Path(os.environ["AGENT_RL_PROBE"]).write_text(json.dumps(content), encoding="utf-8")
