"""Chat rendering without re-encoding: a conversation only ever grows by a delta of tokens.

The policy's sampled ids are kept as they are. What the environment adds (the end of the agent's
turn where the template wants more than the end-of-turn token, the next observation, the header of
the next answer) is cut out of the model's own chat template once and encoded on its own. A template
that rewrites earlier turns has no such delta and is refused.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from transformers import PreTrainedTokenizerBase

from agent_rl.errors import UserError

_ACTION = "zqactionqz"
_OBSERVATION = "zqobservationqz"


class Chat:
    """Tokens of a multi-turn conversation under one tokenizer and its chat template.

    Args:
        tokenizer: any Hugging Face tokenizer with a chat template.
        instructions: system message, or empty for none.

    Raises:
        UserError: no template, no single end-of-turn token, or a template that is not
            prefix-preserving.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, instructions: str = "") -> None:
        if not tokenizer.chat_template:
            raise UserError(
                f"tokenizer {tokenizer.name_or_path!r} has no chat template; "
                "take an instruction-tuned model or set tokenizer.chat_template"
            )
        self.tokenizer = tokenizer
        self._opening = [{"role": "system", "content": instructions}] if instructions else []
        self._check_prefixes()
        probe = self._render([*self._turn(_OBSERVATION, _ACTION)])
        tail = self._encode(probe.split(_ACTION, 1)[1])
        special = set(tokenizer.all_special_ids) | set(tokenizer.get_added_vocab().values())
        if not tail or tail[0] not in special:
            raise UserError(
                f"the chat template of {tokenizer.name_or_path!r} does not close an answer with a "
                "special token; the agent could not say that its turn is over"
            )
        self.end_id: int = tail[0]
        """Id of the token with which the agent ends its turn."""
        self._end_text = str(tokenizer.decode([self.end_id]))
        self._observe = lru_cache(maxsize=65536)(self._observe_uncached)

    def opening(self, observation: str) -> tuple[int, ...]:
        """Tokens up to where the agent's first answer begins."""
        return tuple(self._encode(self._render(self._turn(observation), answer=True)))

    def observe(self, observation: str, *, closed: bool = True) -> tuple[int, ...]:
        """Tokens between the end of one answer and the start of the next.

        Args:
            observation: what the environment says.
            closed: whether the agent sampled the end-of-turn token itself; if not, it leads.
        """
        delta = self._observe(observation)
        return delta if closed else (self.end_id, *delta)

    def answer(self, action: str) -> tuple[int, ...]:
        """Ids of an action that was written, not sampled (demonstrations), closed."""
        return (*self._encode(action), self.end_id)

    def read(self, token_ids: tuple[int, ...]) -> str:
        """Text of sampled ids, without the closing token."""
        if token_ids and token_ids[-1] == self.end_id:
            token_ids = token_ids[:-1]
        text = self.tokenizer.decode(list(token_ids), skip_special_tokens=False)
        return str(text).strip()

    def _observe_uncached(self, observation: str) -> tuple[int, ...]:
        messages = [*self._turn(_OBSERVATION, _ACTION), {"role": "user", "content": observation}]
        text = self._render(messages, answer=True).split(_ACTION, 1)[1]
        if not text.startswith(self._end_text):
            raise UserError(
                f"the chat template of {self.tokenizer.name_or_path!r} closes an answer in another "
                "way when a turn follows; multi-turn training with it would be wrong"
            )
        return tuple(self._encode(text.removeprefix(self._end_text)))

    def _turn(self, observation: str, action: str | None = None) -> list[dict[str, str]]:
        messages = [*self._opening, {"role": "user", "content": observation}]
        if action is not None:
            messages.append({"role": "assistant", "content": action})
        return messages

    def _render(self, messages: list[dict[str, str]], *, answer: bool = False) -> str:
        rendered: Any = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=answer
        )
        return str(rendered)

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _check_prefixes(self) -> None:
        """Refuse a template under which an earlier turn changes when a later one is added.

        The probe has three turns and an answer with a thinking block, which several public
        templates drop from earlier turns.
        """
        answers = ["<think>\nzqthought\n</think>\n\nfirst", "second", "third"]
        messages: list[dict[str, str]] = list(self._opening)
        before: list[int] = []
        for index, answer in enumerate(answers):
            messages.append({"role": "user", "content": f"observation {index}"})
            prompt = self._encode(self._render(messages, answer=True))
            messages.append({"role": "assistant", "content": answer})
            after = self._encode(self._render(messages))
            if prompt[: len(before)] != before or after[: len(prompt)] != prompt:
                raise UserError(
                    f"the chat template of {self.tokenizer.name_or_path!r} rewrites earlier turns "
                    f"(seen at turn {index}); multi-turn training needs a prefix-preserving one: "
                    "set a training template, see README, own model"
                )
            before = after
