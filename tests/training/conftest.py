"""Small models, stub episodes and a log that validates nothing."""

import dataclasses

import pytest


@pytest.fixture(autouse=True)
def _settings_of_a_process(quiet_torch):
    pass


@pytest.fixture
def chat(word_tokenizer):
    from agent_rl.rollouts.chat import Chat

    return Chat(word_tokenizer)


@pytest.fixture
def make_log(study):
    """A run log with a token budget; ``log.totals`` lists the ledger after every optimiser step."""
    from agent_rl.training.ledger import Ledger
    from agent_rl.training.loop import RunLog

    class NoValidation:
        def success_rate(self, model):
            return 0.0

    def build(budget=10**9, **changes):
        config = dataclasses.replace(study.train, budget_tokens=budget, **changes)
        return RunLog(config, Ledger(), NoValidation(), lambda share: None, stop=budget)

    return build


@pytest.fixture
def grpo_arm(study):
    """Settings of a GRPO arm on 4 groups of 4."""

    def build(**changes):
        shape = {"group_size": 4, "episodes_per_update": 16, "micro_batches": 1}
        return dataclasses.replace(study.arm("grpo_shaped"), **{**shape, **changes})

    return build


@pytest.fixture
def sample(stub, episodes_for, chat):
    """Plays groups of the stub with a model."""
    from agent_rl.rollouts.engine import RolloutEngine
    from agent_rl.rollouts.model_policy import ModelPolicy

    def play(model, ids=(0, 3, 6, 2), members=4, *, temperature=1.0, stream=0, env=None):
        policy = ModelPolicy(
            "m", model, chat, temperature=temperature, max_action_tokens=4, max_tokens=400
        )
        engine = RolloutEngine("stub", lambda: stub(**(env or {})))
        return engine.play(policy, episodes_for(ids, members, stream))

    return play


@pytest.fixture
def make_trainer(word_tokenizer, make_log):
    """A GRPO trainer whose rollouts are given; its own check of the sampler is switched off."""
    from datasets import Dataset

    from agent_rl.training import grpo

    def build(model, arm, trajectories, log=None, *, max_tokens=400, seed=0):
        log = log or make_log()
        trainer = grpo.TrajectoryGRPOTrainer(
            model=model,
            reward_funcs=[grpo._reward_is_ours],
            args=grpo.grpo_arguments(arm, log.config, max_tokens, seed),
            train_dataset=Dataset.from_dict({"prompt": ["0"] * 4, "instance": [0, 1, 2, 3]}),
            processing_class=word_tokenizer,
            rollout=lambda *_: trajectories,
            arm=arm,
            log=log,
        )
        trainer.current_gradient_accumulation_steps = arm.micro_batches
        trainer.model.train()
        trainer._fresh = False
        return trainer

    return build
