"""What a fault is: a text of the package, what stands there instead, and what must then fail.

``docs/pitfalls.md`` tells what each pitfall is. The text ``old`` must occur exactly once in its
file, which ``test_table.py`` checks at every test run; whoever changes such a place changes the
table too.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault."""

    id: str
    """The pitfall, and a word that tells this fault from others of the kind."""
    put_in: str
    """What is put in."""
    file: str
    """File below ``src/``."""
    old: str
    """Text that occurs there exactly once."""
    new: str
    """What stands there instead."""
    tests: tuple[str, ...]
    """Tests that must fail, as pytest names them; without brackets, some parameter must."""

    @property
    def pitfall(self) -> str:
        return self.id.split("-")[0]


MODEL_POLICY = "agent_rl/rollouts/model_policy.py"
DECODERS = "agent_rl/rollouts/decoders.py"
LLAMA = "agent_rl/rollouts/llama.py"
ENGINE = "agent_rl/rollouts/engine.py"
CHAT = "agent_rl/rollouts/chat.py"
MODELS = "agent_rl/rollouts/models.py"
GRPO = "agent_rl/training/grpo.py"
LOOP = "agent_rl/training/loop.py"
FAST = "agent_rl/training/fast_forward.py"
CHECKPOINTS = "agent_rl/training/checkpoints.py"
ARMS = "agent_rl/training/arms.py"
SUPERVISED = "agent_rl/training/supervised.py"
PREFERENCE = "agent_rl/training/preference.py"
CREDIT = "agent_rl/rewards/credit.py"
SPECS = "agent_rl/rewards/specs.py"
FACTS = "agent_rl/rewards/facts.py"
CONFIG = "agent_rl/config.py"
STORAGE = "agent_rl/rollouts/storage.py"
JUDGE = "agent_rl/rewards/judge.py"

T_POLICY = "tests/rollouts/test_model_policy.py::"
T_DECODERS = "tests/rollouts/test_decoders.py::"
T_FAST = "tests/training/test_fast_forward.py::"
T_ENGINE = "tests/rollouts/test_engine.py::"
T_CHAT = "tests/rollouts/test_chat.py::"
T_MODELS = "tests/rollouts/test_models.py::"
T_GOLDEN = "tests/training/test_golden.py::"
T_GRPO = "tests/training/test_grpo.py::"
T_LOOP = "tests/training/test_loop.py::"
T_ARMS = "tests/training/test_arms.py::"
T_CHECKPOINTS = "tests/training/test_checkpoints.py::"
T_SFT = "tests/training/test_supervised.py::"
T_DPO = "tests/training/test_preference.py::"
T_CREDIT = "tests/rewards/test_credit.py::"
T_SPECS = "tests/rewards/test_specs.py::"
T_AUDIT = "tests/rewards/test_audit.py::"
T_CONFIG = "tests/test_config.py::"
T_INSTANCES = "tests/tasks/test_instances.py::"
T_REPORT = "tests/reporting/test_report_contents.py::"
T_EVALUATE = "tests/stages/test_evaluate.py::"
T_STORAGE = "tests/rollouts/test_storage.py::"
T_JUDGE = "tests/rewards/test_judge.py::"
T_SEEDING = "tests/test_seeding.py::"
