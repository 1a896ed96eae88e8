"""Families are found by name, and what does not exist is refused with a list of what does."""

import concurrent.futures
import multiprocessing
import subprocess
import sys
from importlib.util import find_spec

import pytest

from agent_rl.errors import UserError
from agent_rl.tasks import (
    Family,
    Horizon,
    TextTask,
    build_instances,
    family_names,
    goal_keys,
    make_env,
    make_task,
    register_family,
    registry,
)


def test_settings_reach_the_task():
    task = make_task("babyai", {"level": "PickupLoc", "room_size": 5, "num_dists": 2})
    assert (task.level, task.room_size, task.num_dists) == ("PickupLoc", 5, 2)
    task.reset(seed=0)
    assert len(task._stage.items) == 2


def test_every_family_has_goal_keys_that_its_goals_use():
    for family in family_names():
        if family == "textworld" and find_spec("textworld") is None:
            continue
        task = make_task(family, {})
        task.reset(seed=0)
        assert set(task.goal_key().split(" or ")) <= set(goal_keys(family))


def test_make_env_applies_the_horizon():
    env = make_env("babyai", {}, 2)
    assert isinstance(env, Horizon) and env.horizon == 2
    env.reset(seed=0)
    assert [env.step("?")[3], env.step("?")[3]] == [False, True]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: make_task("chess", {}), "'chess'.*babyai"),
        (lambda: goal_keys("chess"), "'chess'.*babyai"),
        (lambda: make_task("babyai", {"rooms": 3}), "'rooms'.*level, room_size, num_dists"),
        (lambda: make_env("babyai", {}, 0), "horizon 0"),
        (lambda: register_family("babyai", Family(TextTask)), "'babyai' exists already"),
        (lambda: register_family("a:b", Family(TextTask)), "'a:b'.* colon"),
    ],
)
def test_what_does_not_exist_is_refused_by_name(call, told):
    with pytest.raises(UserError, match=told):
        call()


OWN = """
from agent_rl.tasks import Family, TextTask
class Own(TextTask):
    def __init__(self, size=3):
        super().__init__()
        self.size = size
    def reset(self, *, seed=None, options=None):
        return f"goal {self.instance_seed(seed)}", self.facts()
    def step(self, action): return "", 0.0, False, False, self.facts(valid=False)
    def expert_action(self, goal=None): return "go"
    def goal_distance(self, goal): return 2
    def idle_action(self): return "wait"
    def instance_hash(self): return "h"
class Half(Own):
    from abc import abstractmethod
    @abstractmethod
    def goal_distance(self, goal): ...
FAMILY, HALF, NUMBER = Family(Own, ("size",)), Family(Half), 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with modules of a user's own, as the current one."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "house.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "needy.py").write_text("import no_such_library\n")
    (tmp_path / "script.py").write_text("raise SystemExit(0)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    yield tmp_path
    for name in ("mine", "mine.house", "broken", "needy", "script"):
        sys.modules.pop(name, None)


def test_a_family_of_a_module_in_the_current_folder_is_found_by_its_address(own):
    task = make_task("mine.house:FAMILY", {"size": 5})
    assert task.size == 5
    text, info = task.reset(seed=4)
    assert (text, info) == ("goal 4", {"valid": True, "success": False, "distance": 2.0})
    assert (task.alternative_goals(), task.admissible_actions(), task.goal_key()) == ((), None, "")
    assert goal_keys("mine.house:FAMILY") == ()
    assert "mine.house:FAMILY" not in family_names()
    # One start only, whatever the seed: no split can hold two.
    with pytest.raises(UserError, match="only 1 of 2 distinct"):
        build_instances("mine.house:FAMILY", {}, {"train": 2})


def _play(family):
    return make_env(family, {}, 3).reset(seed=1)[0]


def test_spawned_processes_and_other_programs_find_it_too(own):
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(_play, "mine.house:FAMILY").result() == "goal 1"
    code = "from agent_rl.tasks import make_env; print(make_env('mine.house:FAMILY', {}, 3).task)"
    # -P: as a console script, whose path does not hold the current folder.
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert "Own" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nowhere:FAMILY", "no module 'nowhere' in the current folder"),
        ("mine.flat:FAMILY", "no module 'mine.flat' in the current folder"),
        ("needy:FAMILY", "importing needy failed with ModuleNotFoundError.*no_such_library"),
        ("broken:FAMILY", "importing broken failed with ZeroDivisionError"),
        ("script:FAMILY", "importing script failed with SystemExit"),
        (":FAMILY", "expected module:ATTRIBUTE"),
        ("mine.house:TASK", "mine.house has no 'TASK'"),
        ("mine.house:", "expected module:ATTRIBUTE"),
        ("mine.house:NUMBER", "NUMBER is of type int, not a Family"),
        ("mine.house:HALF", "defines no goal_distance"),
    ],
)
def test_what_an_address_lacks_is_named_in_one_line(own, name, told):
    with pytest.raises(UserError, match=told) as caught:
        make_task(name, {})
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_a_registered_family_is_made_by_its_name_and_not_replaced(own, monkeypatch):
    monkeypatch.setattr(registry, "FAMILIES", dict(registry.FAMILIES))
    family = Family(type(make_task("mine.house:FAMILY", {})), ("size",))
    register_family("house", family)
    assert family_names()[-1] == "house" and make_task("house", {"size": 2}).size == 2
    with pytest.raises(UserError, match="'house' exists already"):
        register_family("house", family)
    with pytest.raises(UserError, match=r"'rooms'.*choose among size"):
        make_task("house", {"rooms": 2})


def test_a_family_without_its_package_is_listed_and_says_how_to_install_it(monkeypatch):
    from agent_rl.tasks.textworld import library, words

    monkeypatch.setitem(sys.modules, "textworld", None)
    for cached in (library.require, words.goal_keys, words.treasures, words.foods):
        cached.cache_clear()
    assert "textworld" in family_names()
    with pytest.raises(UserError) as caught:
        make_task("textworld", {})
    assert "pip install '.[textworld]'" in str(caught.value) and "\n" not in str(caught.value)


def test_the_package_textworld_is_imported_only_when_its_family_is_used():
    script = (
        "import sys, agent_rl.tasks; print(sorted({'textworld', 'jericho'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
