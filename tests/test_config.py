"""Settings: everything composes, nothing wrong gets through, and every refusal is one line."""

import copy
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pandas as pd
import pytest
from omegaconf import OmegaConf

from agent_rl.__main__ import main as run_main
from agent_rl.compose import compose_config
from agent_rl.config import GRPOArmConfig, load_params, study_from
from agent_rl.errors import UserError
from agent_rl.rewards import REWARDS
from agent_rl.stages import evaluate, params, train
from agent_rl.stages.common import check_rewards

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs"
PROFILES = sorted(path.stem for path in (CONFIGS / "profile").glob("*.yaml"))
PRIMARY = sorted(path.stem for path in CONFIGS.glob("*.yaml"))
MEMBERS = sorted(path.relative_to(CONFIGS).with_suffix("") for path in CONFIGS.glob("*/*.yaml"))


JUDGE = (
    "+reward@rewards.judge=judge",
    "rewards.judge.judge.url=http://localhost:8000/v1",
    "rewards.judge.judge.model=any",
)
"""Overrides that put the judge into a study."""
BUILT_IN = {n for n, r in REWARDS.items() if r.function.__module__.startswith("agent_rl.")}


@lru_cache
def _composed(overrides):
    return compose_config("study", overrides, CONFIGS)


def composed(*overrides):
    """A composition of its own for every caller; Hydra is asked once for each."""
    return copy.deepcopy(_composed(overrides))


def how_to_reach(group, name):
    """Overrides under which a member of a config group becomes part of the study."""
    grpo = ["+method@arms.extra=grpo"]
    reward, credit = "+reward@arms.extra.reward=", "+credit@arms.extra.credit="
    if (group, name) == ("reward", "judge"):
        return JUDGE
    if group == "method":
        rest = [reward + "sparse", credit + "trajectory"] if name == "grpo" else []
        return [f"+method@arms.extra={name}", *rest]
    return {
        "task": [f"task@tasks.babyai={name}"],
        "model": [f"model={name}"],
        "profile": [f"profile={name}"],
        "tuned": [f"tuned@learning_rates.babyai={name}"],
        "arm": [f"+arm@arms.extra={name}"],
        "reward": [*grpo, reward + name, credit + "turn"],
        "credit": [*grpo, reward + "sparse", credit + name],
    }.get(group, [f"+{group}={name}"])


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_composes_and_loads(profile):
    study = study_from(composed(f"profile={profile}"), profile)
    assert study.profile == profile
    assert set(study.arms) == {
        "sft", "rft", "dpo", "grpo_sparse", "grpo_dense", "grpo_shaped", "sft_grpo",
    }  # fmt: skip


@pytest.mark.parametrize("member", MEMBERS, ids=str)
def test_every_config_file_is_part_of_some_study(member):
    content = composed(*how_to_reach(member.parent.name, member.name))
    study_from(content, str(member))
    # Not only accepted: what the file says is in there.
    text = str(OmegaConf.to_container(OmegaConf.load(CONFIGS / f"{member}.yaml")))
    own = {word for word in ("name", "kind", "family", "source", "profile") if f"'{word}'" in text}
    file = OmegaConf.load(CONFIGS / f"{member}.yaml")
    for word in own & set(file):
        assert f"'{word}': {file[word]!r}" in str(content)


@pytest.mark.parametrize("name", PRIMARY)
def test_every_primary_config_composes(name):
    assert compose_config(name, [], CONFIGS)


@pytest.mark.parametrize("arm", ["grpo_sparse", "grpo_dense", "grpo_shaped", "sft_grpo"])
def test_arms_differ_in_what_their_name_says_and_in_nothing_else(arm):
    arms = composed()["arms"]
    plain = copy.deepcopy(arms["grpo_sparse"])
    expected = {
        "grpo_sparse": ("sparse", "trajectory", 0.0),
        "grpo_dense": ("dense", "trajectory", 0.0),
        "grpo_shaped": ("shaped", "turn", 0.0),
        "sft_grpo": ("shaped", "turn", arms["sft_grpo"]["sft_share"]),
    }[arm]
    found = copy.deepcopy(arms[arm])
    assert (found["reward"].pop("name"), found["credit"].pop("name"), found.pop("sft_share")) == (
        expected
    )
    assert (expected[2] > 0) == (arm == "sft_grpo")
    plain["reward"].pop("name"), plain["credit"].pop("name"), plain.pop("sft_share")
    # Each arm is tuned on its own: see the next test.
    plain.pop("learning_rate"), found.pop("learning_rate")
    assert found == plain


def test_every_arm_has_on_every_task_the_learning_rate_that_won_its_equal_budget_search():
    trials = pd.read_csv(ROOT / "results" / "tuning.csv")
    study = study_from(composed(), "study")
    assert set(trials.task) == set(study.tasks)
    for task, part in trials.groupby("task"):
        assert part.groupby("arm").size().nunique() == 1, "arms were tuned with unequal budgets"
        assert set(part.arm) == set(study.arms)
        means = part.groupby(["arm", "learning_rate"]).val_success_rate.mean()
        for name in study.arms:
            assert study.arm_on(name, task).learning_rate == means[name].idxmax(), (task, name)
    assert not set(trials.seed) & set(study.seeds), "tuning seeds are no study seeds"


def test_the_shifted_split_can_have_settings_of_its_own_and_a_task_its_own_budget():
    content = composed()
    content["tasks"]["sqlqa"] |= {
        "shifted_settings": {"hops": 3}, "budget_tokens": 5, "collect_instances": 7,
    }  # fmt: skip
    study = study_from(content, "p")
    task = study.task("sqlqa")
    assert task.on("test") is task
    assert task.on("shifted").settings == {**task.settings, "hops": 3}
    assert study.train_on("sqlqa").budget_tokens == 5
    assert study.collect_on("sqlqa").instances == 7
    assert study.train_on("babyai").budget_tokens == study.train.budget_tokens


def test_an_arm_has_the_rates_of_its_task_and_others_keep_their_methods():
    content = composed()
    content["learning_rates"] = {"babyai": {"sft": 0.5, "sft_grpo": 0.25}}
    study = study_from(content, "p")
    assert study.arm_on("sft", "babyai").learning_rate == 0.5
    both = study.arm_on("sft_grpo", "babyai")
    assert (both.learning_rate, both.sft_learning_rate) == (0.25, 0.5)
    assert study.arm_on("sft", "sqlqa") == study.arm("sft")
    assert study.arm_on("dpo", "babyai") == study.arm("dpo")


def test_tasks_can_be_narrowed_and_added_by_name(monkeypatch):
    monkeypatch.chdir(ROOT)
    one = params.compose_study(["tasks=sqlqa"])
    assert list(one["tasks"]) == list(one["learning_rates"]) == ["sqlqa"]
    assert set(one["learning_rates"]["sqlqa"]) == set(one["arms"])
    assert list(params.compose_study(["tasks="])["tasks"]) == list(composed()["tasks"])
    with pytest.raises(UserError, match="chess"):
        params.compose_study(["tasks=babyai,chess"])


def test_a_params_file_whose_lists_of_names_are_stale_is_refused(smoke, capsys):
    path = Path(smoke())
    path.write_text(path.read_text().replace("  - sqlqa\n", ""))
    argv = ["--task", "babyai", "--arm", "sft", "--params", str(path)]
    assert_one_line(train.main(argv), capsys, "matrix", "make params")


def test_params_yaml_is_the_composition_of_the_configs(monkeypatch):
    monkeypatch.chdir(ROOT)
    path = ROOT / "params.yaml"
    assert path.exists(), "params.yaml is missing; write it with `make params`"
    assert path.read_text(encoding="utf-8") == params.render(), "stale; run `make params`"
    load_params(path)


def test_1e_4_is_read_as_a_number(monkeypatch, tmp_path):
    path = tmp_path / "params.yaml"
    monkeypatch.chdir(ROOT)
    text = params.render(["profile=smoke"])
    path.write_text(text.replace("epsilon: 0.0001", "epsilon: 1e-4"))
    assert "1e-4" in path.read_text()
    arm = load_params(path).arm("grpo_sparse")
    assert arm.credit.epsilon == 1e-4 and isinstance(arm.credit.epsilon, float)
    assert isinstance(arm, GRPOArmConfig) and isinstance(arm.learning_rate, float)


def test_whole_numbers_become_floats_only_where_floats_belong():
    content = composed()
    content["train"]["max_grad_norm"] = 1
    assert isinstance(study_from(content, "p").train.max_grad_norm, float)
    content["warmstart"]["steps"] = 3.0
    with pytest.raises(UserError, match=r"p\.warmstart\.steps: expected int, got 3\.0"):
        study_from(content, "p")


def put(content, key, value):
    *path, last = key.split(".")
    for part in path:
        content = content[part]
    content[last] = value


GRPO = "arms.grpo_shaped"
REFUSED = [
    ("train.budget", 5, "unknown key 'budget'"),
    ("surprise", 5, "unknown key 'surprise'"),
    ("arms.sft.beta", 0.1, "unknown key 'beta'"),
    ("train.budget_tokens", "many", "expected int, got 'many'"),
    ("train.budget_tokens", True, "expected int, got True"),
    ("train.budget_tokens", 0, "must be positive"),
    ("train.validation_points", 1, "first and last"),
    ("model.instructions", "no", "expected bool, got 'no'"),
    ("model.lora", 3, "expected a mapping, got 3"),
    ("model.heads", 5, "must divide model.hidden_size"),
    ("model.dropout", 0.1, "dropout"),
    ("seeds", 3, "expected a list, got 3"),
    ("seeds", [], "at least one"),
    ("seeds", [1, 1], "must be distinct"),
    ("seeds", [-1], "must not be negative"),
    ("seeds", [0, "x"], "seeds[1]: expected int, got 'x'"),
    ("workers", 0, "at least one process"),
    ("evaluation.decodings", ["beam"], "'beam'"),
    ("collect.group_size", 1, "a group needs two members"),
    ("collect.instances", 10**6, "training instances"),
    ("train.validation_instances", 10**6, "validation instances"),
    ("tasks.babyai.horizon", 0, "at least 2"),
    ("tasks.babyai.demonstrations.right", 0.9, "must be 1"),
    ("arms.sft.kind", "ppo", "'ppo' is not one of sft, rft, dpo, grpo"),
    ("arms.sft.learning_rate", 0.0, "must be positive"),
    ("learning_rates.babyai.sft", 0.0, "must be positive"),
    (f"{GRPO}.group_size", 1, "a group of one has no baseline"),
    (f"{GRPO}.group_size", 7, "must divide"),
    (f"{GRPO}.top_p", 0.9, "renormalises"),
    (f"{GRPO}.temperature", 0.0, "must be positive"),
    (f"{GRPO}.minibatches", 0, "at least 1"),
    (f"{GRPO}.micro_batches", 0, "at least 1"),
    (f"{GRPO}.iterations", -1, "at least 1"),
    (f"{GRPO}.micro_batches", 7, "multiple of minibatches x micro_batches = 7"),
    (f"{GRPO}.loss", "ppo", "'ppo' is not one of dapo, grpo, dr_grpo"),
    (f"{GRPO}.reward.scale", float("nan"), "a finite number"),
    (f"{GRPO}.reward.criteria", {"answered": 1.0}, "no other reward reads them"),
    ("rewards.rubric.criteria", {}, "needs weights by criterion"),
    ("rewards.rubric.criteria.answered", 0.2, "the weights must sum to 1"),
    ("rewards.rubric.criteria.answered", -0.1, "a weight must lie in [0, 1]"),
    (f"{GRPO}.credit.epsilon", -1.0, "must not be negative"),
    (f"{GRPO}.credit.gae_lambda", 1.1, "must lie in [0, 1]"),
    ("arms.grpo_dense.credit.gae_lambda", 0.9, "set 1, or reward shaped with credit turn"),
    ("collect.probe_group_size", 5, "must be even"),
    ("collect.probe_instances", 1_000_000, "training instances"),
    ("audit.instances", 1_000_000, "training instances"),
    (f"{GRPO}.credit.name", "token", "'token' is not one of trajectory, turn"),
    (f"{GRPO}.sft_share", 1.0, "[0, 1)"),
    (f"{GRPO}.reward.gamma", 0.0, "(0, 1]"),
]


@pytest.mark.parametrize(("key", "value", "told"), REFUSED, ids=[f"{k}={v}" for k, v, _ in REFUSED])
def test_a_wrong_setting_is_refused_with_its_key_value_and_reason(key, value, told):
    content = composed()
    put(content, key, value)
    with pytest.raises(UserError) as refusal:
        study_from(content, "params.yaml")
    text = str(refusal.value)
    assert "\n" not in text and text.startswith("params.yaml")
    assert told in text and key.rsplit(".", 1)[-1] in text
    if "unknown" not in told and "must be 1" not in told:
        assert str(value) in text or repr(value) in text or "decodings" in key or "[1]" in told


@pytest.mark.parametrize("key", ["seed", "train.weight_decay", f"{GRPO}.reward", "arms.dpo.beta"])
def test_a_missing_setting_is_refused_by_name(key):
    content = composed()
    *path, last = key.split(".")
    where = content
    for part in path:
        where = where[part]
    del where[last]
    with pytest.raises(UserError, match=f"^p.*: key '{last}' is missing$"):
        study_from(content, "p")


def test_an_arm_without_a_kind_is_refused():
    content = composed()
    del content["arms"]["sft"]["kind"]
    with pytest.raises(UserError, match=r"arms\.sft\.kind: None is not one of"):
        study_from(content, "p")


def test_kl_with_sequence_level_ratios_is_refused():
    content = composed()
    content["arms"]["grpo_shaped"] |= {"beta": 0.1, "importance": "sequence"}
    with pytest.raises(UserError, match=r"grpo_shaped\.beta = 0\.1: the KL term is wrong"):
        study_from(content, "p")
    content["arms"]["grpo_shaped"] |= {"importance": "token"}
    study_from(content, "p")


def test_p46_discounted_shaping_under_an_undiscounted_sum_is_refused():
    content = composed()
    content["arms"]["grpo_shaped"]["reward"]["gamma"] = 0.95
    study_from(content, "p")  # turn credit discounts its returns alike
    content["arms"]["grpo_shaped"]["credit"]["name"] = "trajectory"
    with pytest.raises(UserError, match=r"reward\.gamma = 0\.95.*dwelling"):
        study_from(content, "p")


def refused(key, value):
    content = composed()
    put(content, key, value)
    with pytest.raises(UserError) as refusal:
        study_from(content, "params")
    return str(refusal.value)


def test_p31_a_group_of_one_is_refused_before_anything_is_played():
    assert "a group of one has no baseline" in refused(f"{GRPO}.group_size", 1)
    assert "a group needs two members" in refused("collect.group_size", 1)


def test_p40_a_truncated_or_greedy_sampler_is_refused_in_training():
    assert "renormalises" in refused(f"{GRPO}.top_p", 0.9)
    assert "must be positive" in refused(f"{GRPO}.temperature", 0.0)


def test_p41_dropout_is_refused():
    assert "dropout makes the sampler and the trainer disagree" in refused("model.dropout", 0.1)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("train.budgets=3", "budgets"),
        ("profile=huge", "huge"),
        ("reward@arms.grpo_sparse.reward=huge", "huge"),
        ("train.budget_tokens=[", "["),
    ],
)
def test_an_override_that_does_not_exist_is_refused_in_one_line(override, told):
    with pytest.raises(UserError) as refusal:
        composed(override)
    assert told in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("rewards.dense.name", "sprase", "rewards.dense: unknown reward 'sprase'; known: "),
        ("arms.grpo_dense.reward.name", "sprase", "arms.grpo_dense.reward: unknown reward"),
        ("rewards.rubric.criteria", {"kind": 1.0}, "rewards.rubric: unknown criterion 'kind'"),
        ("rewards.dense.name", "nowhere:it", "rewards.dense: reward 'nowhere:it': there is no"),
        ("rewards.dense.name", "json:dumps", "is of type function, not a Reward"),
    ],
)
def test_a_reward_that_does_not_exist_stops_a_study_before_it_starts(key, value, told):
    content = composed()
    put(content, key, value)
    with pytest.raises(UserError) as refusal:
        check_rewards(study_from(content, "params"))
    assert told in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("url", "", "no endpoint is configured"),
        ("url", "localhost:8000", "no endpoint is configured"),
        ("model", "", "name the model"),
        ("orders", 0, "at least 1"),
        ("attempts", 0, "at least 1"),
        ("timeout", 0.0, "a positive number of seconds"),
    ],
)
def test_a_judge_needs_an_endpoint(key, value, told):
    content = composed(*JUDGE)
    study_from(content, "params")
    content["rewards"]["judge"]["judge"][key] = value
    with pytest.raises(UserError) as refusal:
        study_from(content, "params")
    assert told in str(refusal.value) and f"rewards.judge.judge.{key}" in str(refusal.value)


def test_every_reward_has_a_file_and_the_study_looks_at_all_but_the_judge():
    files = {path.stem for path in (CONFIGS / "reward").glob("*.yaml")}
    assert files == {*BUILT_IN, "judge", "brisk"}
    assert set(study_from(composed(), "p").rewards) == BUILT_IN


def test_unknown_tasks_and_arms_are_refused_with_those_that_exist():
    study = study_from(composed(), "p")
    with pytest.raises(UserError, match="'chess'; this study has: babyai, sqlqa"):
        study.task("chess")
    with pytest.raises(UserError, match="'ppo'; this study has: sft, rft, dpo"):
        study.arm("ppo")


@pytest.fixture
def smoke(tmp_path, monkeypatch):
    """Writes a params.yaml with some changes; returns its path."""
    monkeypatch.chdir(ROOT)

    def write(**changes):
        content = composed("profile=smoke")
        content["matrix"] = {key: sorted(content[key]) for key in ("tasks", "arms")}
        for key, value in changes.items():
            put(content, key.replace("__", "."), value)
        path = tmp_path / "params.yaml"
        path.write_text(OmegaConf.to_yaml(OmegaConf.create(content)))
        return str(path)

    return write


def assert_one_line(code, capsys, *told):
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ")
    assert "Traceback" not in captured.err
    for part in told:
        assert part in lines[0]


def test_stages_answer_bad_input_with_one_line_and_exit_code_2(smoke, capsys, tmp_path):
    good = smoke()
    rest = ["--params", good, "--artifacts", str(tmp_path / "none")]
    for argv, told in (
        (["--task", "chess", "--arm", "sft", *rest], "'chess'"),
        (["--task", "babyai", "--arm", "ppo", *rest], "'ppo'"),
        (["--task", "babyai", "--arm", "sft", *rest], "dvc repro instances"),
        (["--task", "babyai", "--arm", "sft", "--params", "no/such.yaml"], "no/such.yaml"),
    ):
        assert_one_line(train.main(argv), capsys, told)
    code = evaluate.task_stage("", evaluate.build, ["--task", "chess", *rest])
    assert_one_line(code, capsys, "'chess'")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"tasks__babyai__settings__level": "GoToMoon"}, ("tasks.babyai", "GoToMoon")),
        ({"tasks__babyai__settings__rooms": 3}, ("tasks.babyai", "'rooms'")),
        ({"tasks__babyai__family": "chess"}, ("tasks.babyai", "'chess'")),
        ({"tasks__babyai__settings__room_size": 99}, ("tasks.babyai", "99")),
        ({"arms__sft__learning_rate": "fast"}, ("arms.sft.learning_rate", "'fast'")),
    ],
)
def test_a_setting_that_the_task_refuses_stops_a_stage_before_it_starts(
    smoke, capsys, changes, told
):
    argv = ["--task", "babyai", "--arm", "sft", "--params", smoke(**changes)]
    assert_one_line(train.main(argv), capsys, *told)


@pytest.mark.parametrize(
    "text", ["", "a: [", "- 1\n- 2\n", "seed: 1\n  x: 2\n", "\t", "\x00", "a: ${missing}\n"]
)
def test_a_params_file_that_is_none_is_refused_in_one_line(capsys, tmp_path, text):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    argv = ["--task", "babyai", "--arm", "sft", "--params", str(path)]
    assert_one_line(train.main(argv), capsys, str(path))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fly"], "unknown command 'fly'"),
        (["run", "fast"], "'fast' is not key=value"),
        (["run", "seed=x"], "seed=x"),
        (["run", "task=chess"], "'chess'"),
        (["run", "method=ppo"], "ppo"),
        (["run", "reward=sprase"], "sprase"),
        (["run", "group_size=1", "profile=smoke"], "group_size = 1"),
        (["run", "method=sft", "group_size=4"], "plays no groups"),
        (["run", "horizon=soon"], "horizon=soon"),
        (["run", "horizon=0"], "horizon"),
        (["run", "train.budgets=3"], "budgets"),
    ],
)
def test_the_command_line_answers_bad_words_with_one_line(monkeypatch, capsys, words, told):
    monkeypatch.chdir(ROOT)
    assert_one_line(run_main(words), capsys, told)


def test_a_process_ends_with_code_2_and_no_traceback(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "agent_rl.stages.instances", "--task", "babyai"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "error: params.yaml is missing; write it with `make params`\n"


def test_params_are_written_once_and_checked_first(tmp_path, monkeypatch, capsys):
    (tmp_path / "configs").symlink_to(CONFIGS)
    monkeypatch.chdir(tmp_path)
    assert params.main(["model.dropout=0.5"]) == 2
    assert "model.dropout" in capsys.readouterr().err
    assert not (tmp_path / "params.yaml").exists()
    assert params.main(["profile=smoke"]) == 0
    path = tmp_path / "params.yaml"
    written, before = path.read_text(), path.stat().st_mtime_ns
    assert load_params(path).profile == "smoke"
    assert params.main(["profile=smoke"]) == 0  # equal text: DVC sees no change
    assert (path.read_text(), path.stat().st_mtime_ns) == (written, before)
