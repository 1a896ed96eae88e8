"""The learned policy: any causal language model, playing many episodes in lock-step.

Each token is read once (see ``decoders.py``), and finished episodes leave the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedModel

from agent_rl.rollouts.chat import Chat
from agent_rl.rollouts.decoders import Decoder, make_decoder
from agent_rl.rollouts.models import weights_fingerprint
from agent_rl.rollouts.policies import Action, TokenRecord
from agent_rl.tasks.base import TextTask


class ModelPolicy:
    """Samples actions token by token from a causal language model.

    Args:
        name: what results call it.
        model: causal LM; dropout never acts, whatever mode it is in.
        chat: tokens of the conversation.
        temperature: softmax temperature, 0 for greedy. Log-probs are those of the distribution
            that was sampled (for greedy: of the model itself, temperature 1).
        max_action_tokens: an action that has not closed by then is cut, closed by the engine
            (mask 0) and handed to the task as it is.
        max_tokens: token budget of a whole episode; the turn that might exceed it is not begun.
        weights: fingerprint of the weights; every turn carries that of the weights that sampled it.
            Without one, turns carry none.
    """

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        chat: Chat,
        *,
        temperature: float,
        max_action_tokens: int,
        max_tokens: int,
        weights: str = "",
    ) -> None:
        self.name = name
        self.model = model
        self.chat = chat
        self.temperature = temperature
        self.max_action_tokens = max_action_tokens
        self.max_tokens = max_tokens
        self.weights = weights
        self._present = weights
        self._written = _writes(model)
        self.context_tokens = 0
        """Tokens read but not sampled, over all episodes since the policy was made."""
        self.sampled_tokens = 0
        """Tokens sampled, over all episodes since the policy was made."""

    def start(self, generators: Sequence[np.random.Generator], horizon: int) -> None:
        """Open slots. Each draws its random numbers now, from its own generator: what a slot
        samples does not depend on the others in the batch."""
        draws = horizon * self.max_action_tokens
        self._uniforms = (
            np.stack([rng.random(draws) for rng in generators])
            if self.temperature > 0
            else np.zeros((len(generators), 0))
        )
        self._drawn = np.zeros(len(generators), dtype=np.int64)
        self._ids: list[list[int]] = [[] for _ in generators]
        self._mask: list[list[int]] = [[] for _ in generators]
        self._logprobs: list[list[float]] = [[] for _ in generators]
        self._unread: list[list[int]] = [[] for _ in generators]
        self._closed = [True] * len(generators)
        self._called = [True] * len(generators)
        self._rows: list[int] = []
        self._decoder: Decoder | None = None

    def act(
        self, slots: Sequence[int], observations: Sequence[str], tasks: Sequence[TextTask]
    ) -> list[Action | None]:
        fits: list[int] = []
        for slot, observation in zip(slots, observations, strict=True):
            delta = (
                self.chat.observe(observation, closed=self._closed[slot], called=self._called[slot])
                if self._ids[slot]
                else self.chat.opening(observation)
            )
            if len(self._ids[slot]) + len(delta) + self.max_action_tokens > self.max_tokens:
                continue
            self._append(slot, delta)
            fits.append(slot)
        if not fits:
            return [None] * len(slots)
        if self.weights and _writes(self.model) != self._written:
            # Somebody trained the model in the middle of the episodes.
            self._present, self._written = weights_fingerprint(self.model), _writes(self.model)
        with torch.inference_mode():
            answers = self._sample(fits)
        return [answers.get(slot) for slot in slots]

    def record(self, slot: int) -> TokenRecord:
        return TokenRecord(
            np.array(self._ids[slot], dtype=np.int32),
            np.array(self._mask[slot], dtype=np.int8),
            np.array(self._logprobs[slot], dtype=np.float32),
        )

    def _append(self, slot: int, ids: Sequence[int]) -> None:
        self._ids[slot].extend(ids)
        self._mask[slot].extend([0] * len(ids))
        self._logprobs[slot].extend([0.0] * len(ids))
        self._unread[slot].extend(ids)
        self.context_tokens += len(ids)

    def _sample(self, slots: list[int]) -> dict[int, Action]:
        self._keep_rows(slots)
        sampled: dict[int, list[int]] = {slot: [] for slot in slots}
        open_slots = list(slots)
        logits = self._read()
        for step in range(self.max_action_tokens):
            rows = [self._rows.index(slot) for slot in open_slots] if step else None
            chosen, logprobs = self._draw(logits if rows is None else logits[rows], open_slots)
            still_open = []
            for slot, token, logprob in zip(open_slots, chosen, logprobs, strict=True):
                sampled[slot].append(token)
                self._ids[slot].append(token)
                self._mask[slot].append(1)
                self._logprobs[slot].append(logprob)
                self._unread[slot].append(token)
                if token != self.chat.end_id:
                    still_open.append(slot)
            self.sampled_tokens += len(open_slots)
            open_slots = still_open
            if not open_slots or step + 1 == self.max_action_tokens:
                break
            logits = self._read()
        answers = {}
        for slot in slots:
            ids = tuple(sampled[slot])
            self._closed[slot] = ids[-1] == self.chat.end_id
            call = self.chat.parse(ids)
            self._called[slot] = call is None or call.called
            answers[slot] = Action(
                self.chat.read(ids),
                ids,
                tuple(self._logprobs[slot][-len(ids) :]),
                call.command if call is not None else None,
                self._present,
            )
        return answers

    def _keep_rows(self, slots: list[int]) -> None:
        """Drop the rows of episodes that have ended."""
        if self._decoder is None:
            self._decoder = make_decoder(self.model, len(slots))
        elif self._rows != slots:
            places = {slot: place for place, slot in enumerate(self._rows)}
            self._decoder.keep([places[slot] for slot in slots])
        self._rows = list(slots)

    def _read(self) -> torch.Tensor:
        """Feed every row's unread tokens; the logits (rows, V) after each row's last token.

        A row without unread tokens has logits that mean nothing and are not used."""
        assert self._decoder is not None
        unread = [self._unread[slot] for slot in self._rows]
        logits = self._decoder.read(unread)
        for ids in unread:
            ids.clear()
        return logits

    def _draw(self, logits: torch.Tensor, slots: list[int]) -> tuple[list[int], list[float]]:
        """Sample one token per row by inverting the cumulative distribution."""
        scaled = logits / self.temperature if self.temperature > 0 else logits
        # On the CPU: logits are small, and CUDA's cumulative sum is not deterministic.
        logprobs = torch.log_softmax(scaled, dim=-1).cpu()
        if self.temperature > 0:
            uniforms = self._uniforms[slots, self._drawn[slots]]
            self._drawn[slots] += 1
            cumulative = logprobs.double().exp().cumsum(dim=-1)
            targets = torch.from_numpy(uniforms) * cumulative[:, -1]
            tokens = torch.searchsorted(cumulative, targets.unsqueeze(1), right=True)
            # NaN is beyond every number: keep the index, its NaN log-probability stops the run.
            tokens.clamp_(max=logprobs.size(1) - 1)
        else:
            tokens = logprobs.argmax(dim=-1, keepdim=True)
        chosen = logprobs.gather(1, tokens).squeeze(1)
        return tokens.squeeze(1).tolist(), chosen.tolist()


def _writes(model: torch.nn.Module) -> int:
    """How often parameters were written to in place, all together: cheaper than their hash."""
    return sum(parameter._version for parameter in model.parameters())
