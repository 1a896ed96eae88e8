"""What the code stands on: no source that runs what a file says, exact locks, known licences."""

import ast
import os
from importlib import metadata
from pathlib import Path

import pytest
from packaging.version import Version

from agent_rl.errors import UserError
from agent_rl.stages import licences
from agent_rl.stages.licences import (
    LOCKS,
    PARTS,
    STRONG,
    closure,
    copyleft_note,
    packages,
    read_lock,
    requirements,
)

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path
    for folder in ("src", "examples", "benchmarks", "tests")
    for path in (ROOT / folder).rglob("*.py")
    # They write the pickles that must not be read, and name what is looked for.
    if path.name not in ("test_hostile_files.py", Path(__file__).name)
)
PICKLING = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen"}
FORBIDDEN_CALLS |= {"yaml.load", "yaml.full_load", "yaml.unsafe_load", "read_pickle"}
FORBIDDEN_WORDS = {
    "allow_pickle": (True,),
    "trust_remote_code": (True,),
    "use_safetensors": (False, None),
    "weights_only": (False,),
    "shell": (True,),
}


def dangers(source):
    """(line, what) of everything in Python source that may run what a file says."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(alias.name for alias in node.names)]
        found += [(node.lineno, name) for name in names if name.split(".")[0] in PICKLING]
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        words = {word.arg: word.value for word in node.keywords}
        short = called.rsplit(".", 1)[-1]
        if called in FORBIDDEN_CALLS or short in FORBIDDEN_CALLS - {"eval", "exec", "compile"}:
            found.append((node.lineno, called))
        if called in ("torch.load", "torch.serialization.load") and "weights_only" not in words:
            found.append((node.lineno, called))
        for name, refused in FORBIDDEN_WORDS.items():
            value = words.get(name, ast.Constant(value="absent"))
            # What is no constant cannot be judged here, and is refused.
            if not isinstance(value, ast.Constant) or value.value in refused:
                found.append((node.lineno, name))
    return found


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "import pickle as p",
        "from dill import loads",
        "from joblib import load",
        "torch.load('x.pt')",
        "torch.load('x.pt', weights_only=False)",
        "np.load('x.npy', allow_pickle=True)",
        "np.load('x.npy', allow_pickle=flag)",
        "pd.read_pickle('x')",
        "yaml.load(text, Loader=yaml.Loader)",
        "eval('1')",
        "exec('1')",
        "AutoModel.from_pretrained(p, trust_remote_code=True)",
        "AutoModel.from_pretrained(p, use_safetensors=False)",
        "os.system('ls')",
        "subprocess.run('ls', shell=True)",
    ],
)
def test_the_scan_finds_every_way_of_running_a_file(line):
    assert len(dangers(f"x = 1\n{line}\n")) == 1


def test_the_scan_leaves_the_harmless_alone():
    assert not dangers("model.eval()\nre.compile('x')\nnp.load('x.npy')\nimport json\n")
    assert not dangers("M.from_pretrained(p, use_safetensors=True)\nsubprocess.run(['ls'])\n")


def test_no_source_unpickles_or_evaluates_what_a_file_says():
    assert len(SOURCES) > 150
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in SOURCES
        for line, what in dangers(path.read_text(encoding="utf-8"))
    ]
    assert not found


@pytest.fixture(scope="module")
def locked():
    return [read_lock(ROOT / path) for path in LOCKS]


def needed(part):
    return closure(requirements(part, ROOT / "pyproject.toml"))


def installed(name):
    return Version(metadata.version(name)).public


@pytest.mark.parametrize("part", PARTS)
def test_every_package_that_is_needed_is_locked_at_the_version_installed(locked, part):
    names = needed(part)
    if part == "textworld":
        if not os.environ.get("AGENT_RL_REQUIRE_EXTRAS"):
            pytest.importorskip("textworld")
        versions = locked[0] | locked[1]
    else:
        versions = locked[0]
        assert len(names) > 20
    assert sorted(names - versions.keys()) == [], "needed, but not in the lock"
    other = {
        name: (versions[name], installed(name))
        for name in names
        if Version(versions[name]).public != installed(name)
    }
    assert not other, "(locked, installed)"


def test_nothing_is_locked_that_nothing_needs(locked):
    assert not locked[0].keys() - needed("core") - needed("dev")
    assert not locked[0].keys() & locked[1].keys()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("numpy>=2", "not pinned"),
        ("numpy", "not pinned"),
        ("numpy==2.*", "not pinned"),
        ("numpy==2,<3", "not pinned"),
        ("-e .", "names no package"),
    ],
)
def test_a_lock_that_pins_no_exact_version_is_refused(tmp_path, line, told):
    path = tmp_path / "requirements.lock"
    path.write_text(f"torch==2.13.0\n{line}\n", encoding="utf-8")
    with pytest.raises(UserError, match=told) as refusal:
        read_lock(path)
    assert "line 2" in str(refusal.value)


@pytest.mark.parametrize(
    ("licence", "note"),
    [
        ("MIT", ""),
        ("Apache-2.0 AND MIT", ""),
        ("GPL-3.0-only", STRONG),
        ("AGPL-3.0", STRONG),
        ("GNU General Public License v2 or later (GPLv2+)", STRONG),
        ("GPL-2.0 AND (MIT OR Apache-2.0)", STRONG),
        ("GPL-2.0-only OR GPL-3.0-only", STRONG),
        ("GPLv2 | EPLv1", "another licence"),
        ("Apache-2.0 OR GPL-2.0-or-later", "another licence"),
        ("GPLv2 with linking exception", "exception"),
        ("LGPL v2.1", "library"),
        ("GNU Library or Lesser General Public License (LGPL)", "library"),
        ("MPL-2.0 AND MIT", "own files"),
    ],
)
def test_copyleft_is_told_from_the_words_of_a_licence(licence, note):
    told = copyleft_note(licence)
    assert (told == note) if note in ("", STRONG) else (note in told)


def test_no_core_package_is_under_the_gpl_alone_and_jericho_only_in_the_extra(monkeypatch):
    monkeypatch.chdir(ROOT)
    found = packages()
    assert len(found) == sum(len(read_lock(path)) for path in LOCKS)
    core = [package for package in found if package.part != "textworld"]
    assert len(core) > 100 and not [p.name for p in core if p.licence.startswith("not ")]
    assert not [(p.name, p.licence) for p in core if p.note == STRONG]
    assert {p.name for p in found if p.note == STRONG} <= {"jericho"}
    assert next(p.part for p in found if p.name == "jericho") == "textworld"


def test_the_table_of_licences_names_every_package(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert licences.main([]) == 0
    text = capsys.readouterr().out
    for name, version in (read_lock(LOCKS[0]) | read_lock(LOCKS[1])).items():
        assert f"\n{name} " in text and version in text
