"""Reading on, row by row: what stands between a policy and a model's forward pass.

A decoder keeps the keys and values of every row, so that each token is read once. Rows are the
episodes under way; they are of unequal length, and those that end leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from agent_rl.rollouts.llama import Block, final_states, fits

_CAPACITY = 64
"""Tokens for which a :class:`LlamaDecoder` makes buffers at first."""
_DENSE = 0.75
"""Rows that have ended keep their place until fewer than this share of the buffers' rows live."""


class Decoder(Protocol):
    """Keys and values of a batch of growing token sequences."""

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these of the present rows (places in the batch, ascending) alone."""

    def read(self, unread: Sequence[Sequence[int]]) -> Tensor:
        """Append tokens to each row; (rows, V) float32 logits after each row's last token.

        A row may have none to append; its logits mean nothing.
        """


def make_decoder(model: PreTrainedModel, rows: int) -> Decoder:
    """The fastest decoder that computes what ``model`` computes, for ``rows`` empty rows."""
    return LlamaDecoder(model, rows) if fits(model) else CacheDecoder(model)


class LlamaDecoder:
    """Plain Llama models, without padding (see ``llama.py``).

    Keys and values lie at their positions in buffers that grow by doubling: no holes, and no copy
    of the whole cache at every step. Parameters are read where they lie at every call: weights that
    have been trained meanwhile count.

    Args:
        model: one that :func:`~agent_rl.rollouts.llama.fits`.
        rows: number of rows, all of them empty.
    """

    def __init__(self, model: PreTrainedModel, rows: int) -> None:
        self._model: Any = model
        self._device = model.device
        self._places = np.arange(rows)
        """Row of the buffers that holds each row of the batch."""
        self._lengths = np.zeros(rows, dtype=np.int64)
        """Tokens read so far, per row of the buffers."""
        attention = self._model.model.layers[0].self_attn
        shape = rows, model.config.num_key_value_heads, _CAPACITY, attention.head_dim
        count = len(self._model.model.layers)
        self._keys = [torch.zeros(shape, device=self._device) for _ in range(count)]
        self._values = [torch.zeros(shape, device=self._device) for _ in range(count)]

    def keep(self, rows: Sequence[int]) -> None:
        self._places = self._places[np.asarray(rows, dtype=np.int64)]
        if len(self._places) >= _DENSE * len(self._lengths):
            return
        index = torch.from_numpy(self._places).to(self._device)
        self._keys = [buffer[index] for buffer in self._keys]
        self._values = [buffer[index] for buffer in self._values]
        self._lengths = self._lengths[self._places]
        self._places = np.arange(len(self._places))

    def read(self, unread: Sequence[Sequence[int]]) -> Tensor:
        counts = np.fromiter(map(len, unread), np.int64, len(unread))
        ends = counts.cumsum()
        tokens = np.fromiter(chain.from_iterable(unread), np.int64, ends[-1])
        row = np.repeat(self._places, counts)
        column = np.arange(len(tokens)) - np.repeat(ends - counts, counts)
        position = self._lengths[row] + column
        self._lengths[self._places] += counts
        span = int(self._lengths[self._places].max())
        self._grow(span)
        # A row without a new token repeats the token before it: its answer means nothing.
        at = np.maximum(ends - 1, 0)
        rows = len(self._lengths)
        on = [torch.from_numpy(a).to(self._device) for a in (tokens, row, column, position, at)]
        new = Block(*on[1:4], rows=rows, width=int(counts.max()), span=span)
        last = on[4]
        asked = new
        if new.width > 1 or len(last) != len(tokens):
            place, first = new.row[last], torch.zeros_like(last)
            asked = Block(place, first, new.position[last], rows=rows, width=1, span=span)

        def memory(number: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            both = self._keys[number], self._values[number]
            for buffer, fresh in zip(both, (keys, values), strict=True):
                buffer[new.row, :, new.position] = fresh
            return both[0][:, :, :span], both[1][:, :, :span]

        states = final_states(self._model, on[0], new, asked, last, memory)
        return F.linear(states, self._model.lm_head.weight)

    def _grow(self, needed: int) -> None:
        present = self._keys[0].size(2)
        if needed > present:
            more = max(needed, 2 * present) - present
            self._keys = [F.pad(buffer, (0, 0, 0, more)) for buffer in self._keys]
            self._values = [F.pad(buffer, (0, 0, 0, more)) for buffer in self._values]


class CacheDecoder:
    """Any causal language model of transformers, through its own forward pass and cache.

    Each pass appends one block to the cache; shorter rows are padded on the left of the block, and
    the attention mask has holes there. Position ids count real tokens only, so a hole is invisible
    to the model (tested against the unpadded forward).
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._cache = DynamicCache(config=model.config)
        self._attention = torch.zeros(0, 0, dtype=torch.long)

    def keep(self, rows: Sequence[int]) -> None:
        index = torch.tensor(rows)
        self._cache.batch_select_indices(index.to(self._model.device))
        self._attention = self._attention[index]

    def read(self, unread: Sequence[Sequence[int]]) -> Tensor:
        width = max(len(ids) for ids in unread)
        device = self._model.device
        block = torch.zeros(len(unread), width, dtype=torch.long)
        real = torch.zeros(len(unread), width, dtype=torch.long)
        for row, ids in enumerate(unread):
            if ids:
                block[row, width - len(ids) :] = torch.tensor(ids)
                real[row, width - len(ids) :] = 1
        empty = not self._attention.numel()
        self._attention = real if empty else torch.cat([self._attention, real], dim=1)
        positions = (self._attention.cumsum(dim=1) - 1).clamp(min=0)[:, -width:]
        was_training = self._model.training
        self._model.eval()  # dropout never acts
        try:
            output = self._model(
                input_ids=block.to(device),
                attention_mask=self._attention.to(device),
                position_ids=positions.to(device),
                cache=self._cache,
                use_cache=True,
                logits_to_keep=1,
            )
        finally:
            self._model.train(was_training)
        return output.logits[:, -1].float()
