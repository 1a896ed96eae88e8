"""The forward pass of Llama models for many short rows: what is not needed is not computed.

The same function of the same parameters as transformers' ``LlamaForCausalLM`` (tested), with and
without a gradient. It is faster for small models because

* what acts token by token (norms, projections, MLP) sees the tokens of all rows as one list,
  without padding; only attention sees a rectangle;
* the last layer and the head are computed where an answer is asked for: at each row's last token
  when sampling, before each action token when training. Elsewhere that layer only leaves its keys
  and values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaForCausalLM

Memory = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(layer, new keys, new values), each (N, heads, width) -> all keys and values of the rows, each
(rows, heads, span, width), the new ones among them."""


def fits(model: torch.nn.Module) -> bool:
    """Whether this module computes what ``model`` computes: a float32 Llama without biases,
    adapters, active dropout, hooks or stretched positions."""
    if type(model) is not LlamaForCausalLM:
        return False
    config: Any = model.config
    modules = list(model.modules())
    linear = [m for m in modules if isinstance(m, torch.nn.Linear)]
    return (
        config.rope_parameters["rope_type"] == "default"
        and config.hidden_act == "silu"
        and config._attn_implementation in ("sdpa", "eager")
        and not config.attention_dropout
        and all(type(m) is torch.nn.Linear and m.bias is None for m in linear)
        and not any(m._forward_hooks or m._forward_pre_hooks for m in modules)
        and all(p.dtype == torch.float32 for p in model.parameters())
    )


class Block:
    """Where queries stand: a list of N of them, padded to a rectangle for attention alone.

    Args:
        row: (N,) row of each query.
        column: (N,) its place among the queries of its row.
        position: (N,) its place in the text of its row; it sees the tokens up to there.
        rows: rows of the rectangle.
        width: most queries of a row.
        span: tokens of the longest row.
        causal: whether the queries are all tokens of all rows, so that column and position agree
            and attention needs no mask.
    """

    def __init__(
        self,
        row: Tensor,
        column: Tensor,
        position: Tensor,
        *,
        rows: int,
        width: int,
        span: int,
        causal: bool = False,
    ) -> None:
        self.row, self.column, self.position = row, column, position
        self.rows, self.width, self.span, self.causal = rows, width, span, causal
        self.mask: Tensor | None = None
        if not causal:
            # Unused cells look at the first token: a cell that sees nothing would be NaN.
            reach = position.new_zeros(rows, width)
            reach[row, column] = position
            hidden = torch.arange(span, device=row.device) > reach.unsqueeze(-1)
            self.mask = torch.zeros(rows, 1, width, span, device=row.device)
            self.mask.masked_fill_(hidden.unsqueeze(1), float("-inf"))

    def rectangle(self, listed: Tensor) -> Tensor:
        """(N, heads, width) to (rows, heads, columns, width), zeros where nothing stands."""
        padded = listed.new_zeros(self.rows, self.width, *listed.shape[1:])
        return padded.index_put((self.row, self.column), listed).transpose(1, 2)

    def listed(self, rectangle: Tensor) -> Tensor:
        """Take :meth:`rectangle` back."""
        return rectangle.transpose(1, 2)[self.row, self.column]


def final_states(
    model: Any, tokens: Tensor, new: Block, asked: Block, at: Tensor, memory: Memory
) -> Tensor:
    """(M, hidden size) states before the head at the tokens that are asked about.

    Args:
        model: one that :func:`fits`.
        tokens: (N,) ids of the new tokens of all rows.
        new: where they stand.
        asked: where those asked about stand.
        at: (M,) places of those asked about in ``tokens``.
        memory: joins new keys and values with those of tokens read before.
    """
    cos, sin = rotation(model, new.position)
    hidden = model.model.embed_tokens(tokens)
    layers = model.model.layers
    for number, layer in enumerate(layers):
        attention = layer.self_attn
        width = attention.head_dim
        normed = _norm(hidden, layer.input_layernorm)
        keys, values = memory(
            number,
            _rotate(_heads(normed, attention.k_proj, width), cos, sin),
            _heads(normed, attention.v_proj, width),
        )
        block = new
        if number + 1 == len(layers):
            block = asked
            hidden, normed, cos, sin = hidden[at], normed[at], cos[at], sin[at]
        queries = _rotate(_heads(normed, attention.q_proj, width), cos, sin)
        seen = _attend(queries, keys, values, block)
        hidden = hidden + F.linear(seen.flatten(1), attention.o_proj.weight)
        mlp = layer.mlp
        normed = _norm(hidden, layer.post_attention_layernorm)
        gate = F.silu(F.linear(normed, mlp.gate_proj.weight))
        inner = gate * F.linear(normed, mlp.up_proj.weight)
        hidden = hidden + F.linear(inner, mlp.down_proj.weight)
    return _norm(hidden, model.model.norm)


def rotation(model: Any, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine, each (N, 1, head width / 2), of the rotary embedding at (N,) positions."""
    cos, sin = model.model.rotary_emb(model.lm_head.weight, positions.unsqueeze(0))
    half = cos.size(-1) // 2
    return cos[0, :, None, :half], sin[0, :, None, :half]


def _attend(queries: Tensor, keys: Tensor, values: Tensor, block: Block) -> Tensor:
    """(N, heads, width) attention of each query over the tokens of its row up to its own."""
    groups = queries.size(1) // keys.size(1)
    if groups > 1:
        keys, values = (t.repeat_interleave(groups, dim=1) for t in (keys, values))
    seen = F.scaled_dot_product_attention(
        block.rectangle(queries), keys, values, attn_mask=block.mask, is_causal=block.causal
    )
    return block.listed(seen)


def _heads(states: Tensor, projection: Any, width: int) -> Tensor:
    """(N, heads, width) projection of (N, hidden size) states."""
    return F.linear(states, projection.weight).unflatten(1, (-1, width))


def _norm(states: Tensor, layer: Any) -> Tensor:
    return F.rms_norm(states, layer.weight.shape, layer.weight, layer.variance_epsilon)


def _rotate(vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of (N, heads, width): the first half of a vector pairs with the second
    (Su et al. 2021, in the order of Llama's weights)."""
    left, right = vectors.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)
