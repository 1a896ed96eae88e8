"""A study that fits into seconds, its artifacts, and a task and a tokenizer of the tests' own.

Heavy libraries are imported inside the fixtures: tests that need no model start without them.
"""

from pathlib import Path

import numpy as np
import pytest

from agent_rl.compose import compose_config
from agent_rl.config import study_from
from agent_rl.tasks.base import TextTask
from agent_rl.tasks.horizon import Horizon

ROOT = Path(__file__).parents[1]


def pytest_addoption(parser):
    parser.addoption("--family", help="hold this task (name or module:ATTRIBUTE) to the contract")
    parser.addoption("--settings", default="{}", help="its settings as JSON (default: {})")


LONGEST = ("test_pipeline.py", "test_checkpoints.py", "test_arms.py", "test_contract.py")
"""Files that take minutes: begun first, so that no worker is left alone with one at the end."""


def pytest_collection_modifyitems(items):
    def rank(item):
        return LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST)

    items.sort(key=rank)


TINY = (
    "profile=smoke",
    "tasks.babyai.horizon=8",
    "tasks.babyai.max_tokens=160",
    "tasks.babyai.settings.room_size=5",
    "tasks.babyai.settings.num_dists=2",
    "tasks.babyai.demonstrations.episodes=200",
    "warmstart.steps=80",
    "warmstart.batch_size=32",
    "warmstart.learning_rate=1e-2",
    "collect.instances=16",
    "train.validation_instances=4",
    "train.budget_tokens=16000",
    *(f"arms.{arm}.batch_size=16" for arm in ("sft", "rft", "dpo")),
    "arms.sft_grpo.sft_batch_size=16",
    *(f"arms.{arm}.learning_rate=1e-3" for arm in ("sft", "rft", "dpo")),
    *(f"arms.{arm}.learning_rate=1e-3" for arm in ("grpo_sparse", "grpo_shaped", "sft_grpo")),
    *(f"arms.{arm}.skip_dead_instances=true" for arm in ("grpo_sparse", "sft_grpo")),
    *(f"arms.{arm}.skip_dead_instances=false" for arm in ("grpo_dense", "grpo_shaped")),
)
"""The smoke profile, smaller: the base succeeds now and then, a run takes less than a second. What
these tests rely on is set here, so that tuning the study does not move them."""


@pytest.fixture(scope="session")
def compose():
    """Settings of the tiny study with further overrides."""

    def build(*overrides):
        content = compose_config("study", [*TINY, *overrides], ROOT / "configs")
        content["learning_rates"] = {}  # those of the arms, above
        purposes = content["tasks"]["babyai"]["demonstrations"]
        for name in purposes.keys() - {"episodes", "noise"}:
            purposes[name] = {"right": 0.8, "wander": 0.2}.get(name, 0.0)
        return study_from(content, "test")

    return build


@pytest.fixture(scope="session")
def study(compose):
    return compose()


@pytest.fixture(scope="session")
def artifacts(study, tmp_path_factory):
    """Instances, demonstrations, base and collected groups, made by the stages themselves."""
    from agent_rl.rollouts.storage import load_trajectories
    from agent_rl.stages import collect, demos, instances, warmstart
    from agent_rl.stages.common import Artifacts

    made = Artifacts(tmp_path_factory.mktemp("artifacts") / "babyai")
    for stage in (instances, demos, warmstart, collect):
        stage.build(study, "babyai", made)
    outcomes = [t.success for t in load_trajectories(made.collected, "test")]
    mixed = [len(set(outcomes[i : i + 8])) == 2 for i in range(0, len(outcomes), 8)]
    # Without living and dead groups the tests of the arms would claim nothing.
    assert 8 <= sum(mixed) < len(mixed), "the tiny base learnt too little or too much"
    return made


class StubTask(TextTask):
    """Observations whose length depends on instance and turn, and an end of its own choosing.

    Instance ``s`` ends after 1 + s % 4 steps, by success when s is even, by failure when s is odd;
    ``endless`` never ends, ``broken`` names the step at which the task raises (0: at reset).
    """

    words = tuple(f"w{i}" for i in range(12))
    instructions = "answer with a word"
    vocabulary = words

    def __init__(self, endless=False, broken=None):
        super().__init__()
        self.endless, self.broken = endless, broken
        self.heard = []

    def reset(self, *, seed=None, options=None):
        self.seed, self.turn = seed, 0
        self._fault()
        return self._text(), {"valid": True, "success": False, "distance": self._left()}

    def step(self, action):
        self.heard.append(action)
        self.turn += 1
        self._fault()
        left = self._left()
        over = left == 0 and not self.endless
        success = over and self.seed % 2 == 0
        if over and not success:
            left = np.inf
        info = {"valid": True, "success": success, "distance": float(left)}
        return self._text(), float(success), over, False, info

    def _fault(self):
        if self.broken is not None and self.turn == self.broken:
            raise ZeroDivisionError("a bug in the task")

    def _left(self):
        return 5.0 if self.endless else float(1 + self.seed % 4 - self.turn)

    def _text(self):
        rng = np.random.default_rng([self.seed, self.turn])
        return " ".join(rng.choice(self.words, size=1 + (3 * self.seed + 5 * self.turn) % 7))

    def expert_action(self, goal=None):
        return self.words[0]

    def goal_distance(self, goal):
        return self._left()

    def idle_action(self):
        return self.words[1]

    def admissible_actions(self):
        return self.words

    def instance_hash(self):
        return f"hash-{self.seed}"

    def goal_key(self):
        return "word"


@pytest.fixture(scope="session")
def stub():
    """Makes stub environments."""

    def make(horizon=6, **settings):
        return Horizon(StubTask(**settings), horizon)

    return make


CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def word_tokenizer():
    from agent_rl.rollouts.models import build_tokenizer

    return build_tokenizer(StubTask.words)


@pytest.fixture(scope="session")
def make_bpe():
    """Byte-level BPE tokenizers with a ChatML template, whose padding token is the end token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    sentences = ["having heaved the heavy box w1 w2 w3", "go forward then left and right w4 w5"]

    def build(template=CHATML):
        core = Tokenizer(models.BPE())
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = decoders.ByteLevel()
        specials = ["<|im_start|>", "<|im_end|>"]
        core.train_from_iterator(
            sentences * 3,
            trainers.BpeTrainer(
                vocab_size=330,
                special_tokens=specials,
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                show_progress=False,
            ),
        )
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=core,
            eos_token="<|im_end|>",
            pad_token="<|im_end|>",
            additional_special_tokens=["<|im_start|>"],
        )
        tokenizer.chat_template = template
        return tokenizer

    return build


@pytest.fixture(scope="session")
def bpe(make_bpe):
    return make_bpe()


@pytest.fixture(scope="session")
def make_model(study):
    """Models of one layer whose random weights are large enough to have opinions."""
    import dataclasses

    import torch

    from agent_rl.rollouts.models import build_model

    shape = dataclasses.replace(study.model, hidden_size=16, layers=1, heads=2)

    def build(tokenizer, seed=0, std=0.25):
        model = build_model(shape, tokenizer, 512, seed)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0.0, std, generator=generator)
        return model

    return build


@pytest.fixture(scope="session")
def episodes_for():
    """Episodes of the stub task: ``members`` of each instance id, streams named by position."""
    from agent_rl.rollouts.engine import Episode

    def build(ids, members=1, stream=0):
        return [
            Episode(i, f"hash-{i}", group, member, np.random.SeedSequence([stream, group, member]))
            for group, i in enumerate(ids)
            for member in range(members)
        ]

    return build


@pytest.fixture(scope="session")
def said():
    """Positions of what the agent said in an episode, counted from its texts and not its mask."""

    def positions(trajectory, chat):
        found, at, closed = [], 0, True
        for index, turn in enumerate(trajectory.turns):
            read = (
                chat.observe(turn.observation, closed=closed)
                if index
                else chat.opening(turn.observation)
            )
            at += len(read)
            found += range(at, at + len(turn.token_ids))
            at += len(turn.token_ids)
            closed = turn.token_ids[-1] == chat.end_id
        return np.array(found, dtype=np.int64)

    return positions


@pytest.fixture(scope="session")
def quiet_torch():
    """The settings that every process of the study runs under."""
    from agent_rl.parallel import prepare_process

    prepare_process()
