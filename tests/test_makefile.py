"""The commands that the README and the design name exist and say what they do."""

import re
import subprocess
from pathlib import Path

import pytest

from agent_rl.stages.report import BEGIN, END, PERFORMANCE, write_headline, write_performance

ROOT = Path(__file__).parents[1]
COMMANDS = {"setup", "repro", "test", "smoke", "ablation", "tune", "report", "verify", "bench"}
COMMANDS |= {"lint", "params", "help", "textworld", "licences", "audit-packages", "test-slow"}


def make(*words):
    return subprocess.run(
        ["make", "--no-print-directory", *words], cwd=ROOT, capture_output=True, text=True
    )


def test_help_lists_every_command():
    listed = {line.split()[0] for line in make("help").stdout.splitlines()}
    assert listed >= COMMANDS


def test_verify_hands_on_profile_tasks_and_machine():
    done = make("--dry-run", "verify", "PROFILE=smoke", "TASKS=babyai,sqlqa", "MACHINE=other")
    words = " ".join(done.stdout.replace("\\\n", " ").split())
    assert "verify --profile smoke --machine other --task babyai --task sqlqa" in words


@pytest.mark.parametrize("command", ["ablation"])
def test_a_part_that_is_not_built_says_so_and_fails(command):
    done = make(command)
    assert done.returncode == 2
    assert "not built yet" in done.stderr.splitlines()[0]


def test_every_make_command_in_the_readme_exists():
    named = set(re.findall(r"`make ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert named and named <= COMMANDS


def test_the_readme_carries_the_headline_of_the_committed_results(tmp_path):
    from agent_rl.reporting import headline, performance

    copy = tmp_path / "README.md"
    original = (ROOT / "README.md").read_text(encoding="utf-8")
    copy.write_text(original, encoding="utf-8")
    write_headline(copy, headline(ROOT / "results"))
    write_performance(copy, performance(ROOT / "results"))
    assert all(mark in original for mark in (BEGIN, END, *PERFORMANCE))
    assert copy.read_text(encoding="utf-8") == original, "run make report"


def test_the_headline_can_be_written_without_drawing(tmp_path, capsys):
    from agent_rl.stages import report

    readme, reports = tmp_path / "README.md", tmp_path / "reports"
    readme.write_text(f"# Title\n{BEGIN}\nold\n{END}\nrest\n", encoding="utf-8")
    words = ["--results", str(ROOT / "results"), "--reports", str(reports), "--only-readme"]
    assert report.main([*words, "--readme", str(readme)]) == 0
    text = readme.read_text(encoding="utf-8")
    assert "old" not in text and "babyai" in text and not reports.exists()
    assert report.main(words) == 2
    assert "--only-readme needs --readme" in capsys.readouterr().err


def test_tracked_files_name_no_path_of_a_machine():
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, tracked):
        path = ROOT / name
        if name.startswith("tests/") or path.suffix in {".png", ".lock"} or not path.exists():
            continue
        found = re.search(r"/(home|root|work|Users)/\w+", path.read_text(encoding="utf-8"))
        assert not found, f"{name}: {found.group() if found else ''}"
