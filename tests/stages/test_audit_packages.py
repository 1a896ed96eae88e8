"""What is said of known vulnerabilities, with a stand-in for the program that asks the database."""

import json
import stat
import sys

import pytest

from agent_rl.stages import audit_packages
from agent_rl.stages.audit_packages import main

CLEAN = {"name": "numpy", "version": "2.0", "vulns": []}
BAD = {
    "name": "torch",
    "version": "2.13.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.13.1"]}, {"id": "PYSEC-2"}],
}
UNKNOWN = {"name": "torch", "skip_reason": "Dependency not found on PyPI"}


@pytest.fixture
def audit(tmp_path, capsys):
    """Runs the command with a program that answers as told; returns exit code and output."""

    def run(answer, *, before=""):
        program = tmp_path / "environment" / "bin" / "pip-audit"
        program.parent.mkdir(parents=True, exist_ok=True)
        written = json.dumps({"dependencies": answer}) if isinstance(answer, list) else answer
        program.write_text(
            f"#!{sys.executable}\nimport sys, time\n{before}\n"
            f"open(sys.argv[sys.argv.index('--output') + 1], 'w').write({written!r})\n"
            "print('No known vulnerabilities found')\n",
            encoding="utf-8",
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        lock = tmp_path / "requirements.lock"
        lock.write_text("numpy==2.0\ntorch==2.13.0\n", encoding="utf-8")
        code = main(["--environment", str(tmp_path / "environment"), "--lock", str(lock)])
        printed = capsys.readouterr()
        assert printed.err == ""
        return code, printed.out

    return run


def test_a_known_vulnerability_is_named_and_fails(audit):
    code, text = audit([CLEAN, BAD])
    assert code == 1
    assert "torch 2.13.0: PYSEC-1, fixed in 2.13.1\n" in text
    assert "PYSEC-2, fixed in no version yet\n" in text
    assert "2 of 2 locked packages checked, 1 with a known vulnerability" in text


def test_packages_that_the_database_does_not_know_count_as_not_checked(audit):
    code, text = audit([CLEAN, UNKNOWN])
    assert code == 0
    assert "1 of 2 locked packages checked, 0 with" in text and "NOT CHECKED: 1" in text
    code, text = audit([UNKNOWN, {**UNKNOWN, "name": "numpy"}])
    assert code == 0 and text.startswith("SKIPPED: no package was checked")
    assert "not found on PyPI" in text and text.count("\n") == 1


@pytest.mark.parametrize(
    ("answer", "before"),
    [
        ("", ""),
        ("[]", ""),
        ([], ""),
        ([CLEAN], "sys.exit('no route to host')"),
        ([CLEAN], "time.sleep(60)"),
    ],
)
def test_a_database_that_does_not_answer_is_one_loud_line(audit, answer, before, monkeypatch):
    monkeypatch.setattr(audit_packages, "SECONDS", 2.0)
    code, text = audit(answer, before=before)
    assert code == 0
    assert text.startswith("SKIPPED: no package was checked") and text.count("\n") == 1


def test_a_tool_that_cannot_be_installed_is_one_loud_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    lock = tmp_path / "requirements.lock"
    lock.write_text("numpy==2.0\n", encoding="utf-8")
    assert main(["--environment", str(tmp_path / "none"), "--lock", str(lock)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("SKIPPED") and "cannot be installed" in text and text.count("\n") == 1
