"""Sampling: positions, caches, temperatures and weights."""

from tests.mutations.fault import (
    CHAT,
    CONFIG,
    GRPO,
    MODEL_POLICY,
    MODELS,
    T_CONFIG,
    T_GRPO,
    T_POLICY,
    Fault,
)

FAULTS = (
    Fault(
        "P14-positions",
        "positions count padding",
        MODEL_POLICY,
        "(self._attention.cumsum(dim=1) - 1).clamp(min=0)[:, -width:]",
        "torch.arange(self._attention.size(1)).expand_as(self._attention)[:, -width:]",
        (
            T_POLICY
            + "test_p14_p40_lock_step_logprobs_equal_an_unpadded_forward_of_each_episode[sdpa-1.0]",
        ),
    ),
    Fault(
        "P14-holes",
        "padding is attended to",
        MODEL_POLICY,
        "        real = torch.zeros(len(unread), width, dtype=torch.long)\n",
        "        real = torch.ones(len(unread), width, dtype=torch.long)\n",
        (
            T_POLICY + "test_p14_p40_lock_step_logprobs_equal_an_unpadded_forward_of_each_episode"
            "[eager-1.0]",
        ),
    ),
    Fault(
        "P14-late",
        "the sampler's log-probabilities reach the loss one token late",
        GRPO,
        "torch.from_numpy(trajectory.logprobs[start:])",
        "torch.from_numpy(np.roll(trajectory.logprobs, 1)[start:])",
        (
            T_GRPO + "test_p40_p42_sampler_and_trainer_agree_before_every_update[pieces0-1.0]",
            T_GRPO + "test_p1_p16_a_batch_holds_the_stored_ids_padded_by_length",
        ),
    ),
    Fault(
        "P16-closing",
        "an action that was cut is not closed",
        CHAT,
        "        return delta if closed else (self.end_id, *delta)\n",
        "        return delta\n",
        (T_POLICY + "test_p16_an_action_that_did_not_close_is_closed_with_mask_0",),
    ),
    Fault(
        "P16-padding",
        "padding of the completion counts as said",
        GRPO,
        '        "tool_mask": pad(masks),\n',
        '        "tool_mask": pad(masks, 1),\n',
        (T_GRPO + "test_p1_p16_a_batch_holds_the_stored_ids_padded_by_length",),
    ),
    Fault(
        "P40-stored",
        "the stored log-probabilities are those of temperature 1",
        MODEL_POLICY,
        "        chosen = logprobs.gather(1, tokens).squeeze(1)\n",
        "        chosen = torch.log_softmax(logits, dim=-1).cpu().gather(1, tokens).squeeze(1)\n",
        (
            T_POLICY + "test_p40_the_temperature_is_in_the_stored_logprobs",
            T_POLICY
            + "test_p14_p40_lock_step_logprobs_equal_an_unpadded_forward_of_each_episode[sdpa-0.7]",
        ),
    ),
    Fault(
        "P40-trainer",
        "the trainer computes ratios at temperature 1",
        GRPO,
        "        temperature=arm.temperature,\n",
        "        temperature=1.0,\n",
        (
            T_GRPO + "test_p40_loss_and_gradient_equal_the_closed_form[0.7-dapo]",
            T_GRPO + "test_p40_p42_sampler_and_trainer_agree_before_every_update[pieces0-0.7]",
        ),
    ),
    Fault(
        "P40-guard",
        "a run goes on although sampler and trainer disagree",
        GRPO,
        "RATIO_LIMIT = 0.02\n",
        "RATIO_LIMIT = 20.0\n",
        (T_GRPO + "test_p40_a_temperature_that_the_sampler_did_not_have_stops_the_run",),
    ),
    Fault(
        "P40-nucleus",
        "a truncated sampler is allowed in training",
        CONFIG,
        "    if arm.top_p != 1:\n",
        "    if arm.top_p > 1:\n",
        (T_CONFIG + "test_p40_a_truncated_or_greedy_sampler_is_refused_in_training",),
    ),
    Fault(
        "P41-mode",
        "the model samples in training mode",
        MODEL_POLICY,
        "        self.model.eval()\n",
        "",
        (T_POLICY + "test_p41_dropout_is_off_while_sampling_and_the_mode_comes_back",),
    ),
    Fault(
        "P41-loaded",
        "a loaded model keeps the dropout of its attention",
        MODELS,
        '            setattr(module, "attention_dropout", 0.0)',
        "            pass",
        (T_POLICY + "test_p41_a_loaded_model_has_no_dropout_left",),
    ),
    Fault(
        "P41-adapters",
        "adapters have dropout",
        MODELS,
        "        lora_dropout=0.0,\n",
        "        lora_dropout=0.1,\n",
        (T_POLICY + "test_p41_fresh_adapters_have_no_dropout_and_repeat_in_training_mode",),
    ),
    Fault(
        "P41-settings",
        "dropout is allowed in the settings",
        CONFIG,
        "    if study.model.dropout != 0:\n",
        "    if study.model.dropout >= 1:\n",
        (T_CONFIG + "test_p41_dropout_is_refused",),
    ),
    Fault(
        "P42-snapshot",
        "the policy serves the weights that it was made with",
        MODEL_POLICY,
        "        self.model = model\n",
        '        self.model = __import__("copy").deepcopy(model)\n',
        (T_POLICY + "test_p42_after_a_weight_change_the_next_rollout_is_the_new_policy_s",),
    ),
    Fault(
        "P42-rollout",
        "rollouts are played by the weights of the first update",
        GRPO,
        "            self.accelerator.unwrap_model(self.model), instances, self._update\n",
        "            self.__dict__.setdefault(\n"
        '                "_served",\n'
        "                (lambda m: (s := type(m)(m.config), s.load_state_dict(m.state_dict())))(\n"
        "                    self.accelerator.unwrap_model(self.model)\n"
        "                )[0],\n"
        "            ),\n"
        "            instances,\n"
        "            self._update,\n",
        (T_GRPO + "test_p40_p42_sampler_and_trainer_agree_before_every_update[pieces0-1.0]",),
    ),
    Fault(
        "P61-cache",
        "the cache keeps its first rows, not those of the episodes that go on",
        MODEL_POLICY,
        "            self._cache.batch_select_indices(index.to(self.model.device))\n",
        "            self._cache.batch_select_indices(torch.arange(len(slots)))\n",
        (T_POLICY + "test_p61_a_row_that_leaves_the_batch_takes_its_cache_along",),
    ),
    Fault(
        "P61-attention",
        "the attention mask keeps its first rows",
        MODEL_POLICY,
        "            self._attention = self._attention[index]\n",
        "            self._attention = self._attention[: len(slots)]\n",
        (T_POLICY + "test_p61_a_row_that_leaves_the_batch_takes_its_cache_along",),
    ),
    Fault(
        "P61-batch",
        "a batch goes on with the cache of the batch before",
        MODEL_POLICY,
        "        self._cache: DynamicCache | None = None\n"
        "        self._attention = torch.zeros(0, 0, dtype=torch.long)\n",
        '        self._cache: DynamicCache | None = getattr(self, "_cache", None)\n'
        '        self._attention = getattr(self, "_attention", torch.zeros(0, 0))\n',
        (T_POLICY + "test_p61_a_batch_begins_without_the_cache_of_the_batch_before",),
    ),
    Fault(
        "P65-noise",
        "ties are broken by a generator that all share",
        MODEL_POLICY,
        "            tokens = logprobs.argmax(dim=-1, keepdim=True)\n",
        "            noise = 1e-6 * torch.rand_like(logprobs)\n"
        "            tokens = (logprobs + noise).argmax(dim=-1, keepdim=True)\n",
        (T_POLICY + "test_p65_equally_likely_tokens_are_told_apart_the_same_way_in_every_batch",),
    ),
    Fault(
        "P65-rows",
        "which of two equal tokens is taken depends on the row of the batch",
        MODEL_POLICY,
        "            tokens = logprobs.argmax(dim=-1, keepdim=True)\n",
        "            turn = torch.arange(len(logprobs))[:, None] % 2 == 1\n"
        "            last = logprobs.size(1) - 1 - logprobs.flip(1).argmax(-1, keepdim=True)\n"
        "            tokens = torch.where(turn, last, logprobs.argmax(-1, keepdim=True))\n",
        (T_POLICY + "test_p65_equally_likely_tokens_are_told_apart_the_same_way_in_every_batch",),
    ),
    Fault(
        "P16-assumed",
        "an action that was cut counts as closed",
        MODEL_POLICY,
        "            self._closed[slot] = ids[-1] == self.chat.end_id\n",
        "            self._closed[slot] = True\n",
        (T_POLICY + "test_p16_an_action_that_did_not_close_is_closed_with_mask_0",),
    ),
)
