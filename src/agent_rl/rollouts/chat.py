"""Chat rendering without re-encoding: a conversation only ever grows by a delta of tokens.

The policy's sampled ids are kept as they are. What the environment adds (the end of the agent's
turn where the template wants more than the end-of-turn token, the next observation, the header of
the next answer) is cut out of the model's own chat template once and encoded on its own. A template
that rewrites earlier turns has no such delta and is refused.

With tools the template is given their schemas, a turn means the call that it makes, and the
observation after a call is the call's result; a turn without a call is answered as by a user.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from transformers import PreTrainedTokenizerBase

from agent_rl.errors import UserError
from agent_rl.rollouts.tool_calls import Message, ToolCall, ToolCalls, render
from agent_rl.tasks.base import Tool

_ACTION = "zqactionqz"
_OBSERVATION = "zqobservationqz"
_TOOL = "zqtoolqz"
_THOUGHT = "<think>\nzqthought\n</think>\n\n"


class Chat:
    """Tokens of a multi-turn conversation under one tokenizer and its chat template.

    Args:
        tokenizer: any Hugging Face tokenizer with a chat template.
        instructions: system message, or empty for none.
        tools: tools that the agent acts by, or empty for actions in free text.

    Raises:
        UserError: no template, no single end-of-turn token, or a template that is not
            prefix-preserving; with tools, a template that does not render them, or a format of
            calls that is not known.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        instructions: str = "",
        tools: Sequence[Tool] = (),
    ) -> None:
        if not tokenizer.chat_template:
            raise UserError(
                f"tokenizer {tokenizer.name_or_path!r} has no chat template; "
                "take an instruction-tuned model or set tokenizer.chat_template"
            )
        self.tokenizer = tokenizer
        self.calls = ToolCalls(tokenizer, tools) if tools else None
        self._opening = [{"role": "system", "content": instructions}] if instructions else []
        self._check_prefixes()
        probe = self._render([*self._turn(_OBSERVATION), _said(_ACTION)])
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
        self._call_closing = self._find_call_closing(self.calls) if self.calls else ""
        self._observe = lru_cache(maxsize=65536)(self._observe_uncached)
        self._answered = lru_cache(maxsize=65536)(self._answer_uncached)
        # Members of a group open alike, and policies say the same few things again and again.
        self._opened = lru_cache(maxsize=4096)(self._opening_uncached)
        self._decoded = lru_cache(maxsize=65536)(self._decoded_uncached)

    def opening(self, observation: str) -> tuple[int, ...]:
        """Tokens up to where the agent's first answer begins."""
        return self._opened(observation)

    def observe(
        self, observation: str, *, closed: bool = True, called: bool = True
    ) -> tuple[int, ...]:
        """Tokens between the end of one answer and the start of the next.

        Args:
            observation: what the environment says.
            closed: whether the agent sampled the end-of-turn token itself; if not, it leads.
            called: with tools, whether the answer was a call, so that this is its result.
        """
        delta = self._observe(observation, called and self.calls is not None)
        return delta if closed else (self.end_id, *delta)

    def answer(self, action: str) -> tuple[int, ...]:
        """Ids of an action that was written, not sampled (demonstrations), closed.

        Raises: ValueError with tools, when the action is none of theirs.
        """
        return self._answered(action)

    def read(self, token_ids: tuple[int, ...]) -> str:
        """Text of sampled ids, without the closing token."""
        if token_ids and token_ids[-1] == self.end_id:
            token_ids = token_ids[:-1]
        return self._decoded(token_ids)

    def parse(self, token_ids: tuple[int, ...]) -> ToolCall | None:
        """The call that sampled ids make, or None where actions are free text."""
        if self.calls is None:
            return None
        return self.calls.parse(self.read(token_ids) + self._end_text)

    def _opening_uncached(self, observation: str) -> tuple[int, ...]:
        return tuple(self._encode(self._render(self._turn(observation), answer=True)))

    def _answer_uncached(self, action: str) -> tuple[int, ...]:
        text = action if self.calls is None else self._written(action)
        return (*self._encode(text), self.end_id)

    def _decoded_uncached(self, token_ids: tuple[int, ...]) -> str:
        text = self.tokenizer.decode(list(token_ids), skip_special_tokens=False)
        return str(text).strip()

    def _observe_uncached(self, observation: str, called: bool) -> tuple[int, ...]:
        answer, closing = _said(_ACTION), self._end_text
        reply = {"role": "user", "content": observation}
        if called and self.calls is not None:
            answer, closing = self.calls.message(_TOOL, {"value": _ACTION}), self._call_closing
            reply["role"] = "tool"
        messages = [*self._turn(_OBSERVATION), answer, reply]
        text = self._render(messages, answer=True).split(_ACTION, 1)[1]
        if not text.startswith(closing):
            raise UserError(
                f"the chat template of {self.tokenizer.name_or_path!r} closes an answer in another "
                "way when a turn follows; multi-turn training with it would be wrong"
            )
        return tuple(self._encode(text.removeprefix(closing)))

    def _written(self, action: str) -> str:
        """A call as the template writes it, up to the closing token."""
        assert self.calls is not None
        turn = self._turn(_OBSERVATION)
        before = self._render(turn, answer=True)
        after = self._render([*turn, self.calls.message_of(action)])
        return after.removeprefix(before).rpartition(self._end_text)[0]

    def _turn(self, observation: str) -> list[Message]:
        return [*self._opening, {"role": "user", "content": observation}]

    def _render(self, messages: list[Message], *, answer: bool = False) -> str:
        tools = self.calls.schemas if self.calls is not None else None
        return render(self.tokenizer, messages, tools, answer=answer)

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _check_prefixes(self) -> None:
        """Refuse a template under which an earlier turn changes when a later one is added.

        The probe has three turns and an answer with a thinking block, which several public
        templates drop from earlier turns. With tools, calls with and without thinking follow, and
        an answer without a call between them.
        """
        answers = [_said(f"{_THOUGHT}first"), _said("second"), _said("third")]
        replies = ["user", "user", "user"]
        if self.calls is not None:
            call = self.calls.message(_TOOL, {"value": "x"})
            answers += [call, {**call, "content": _THOUGHT}, _said(f"{_THOUGHT}text"), call]
            replies += ["user", "tool", "tool", "user"]
        messages: list[Message] = list(self._opening)
        before: list[int] = []
        for index, (reply, answer) in enumerate(zip(replies, answers, strict=True)):
            messages.append({"role": reply, "content": f"observation {index}"})
            prompt = self._encode(self._render(messages, answer=True))
            messages.append(answer)
            after = self._encode(self._render(messages))
            if prompt[: len(before)] != before or after[: len(prompt)] != prompt:
                raise UserError(
                    f"the chat template of {self.tokenizer.name_or_path!r} rewrites earlier turns "
                    f"(seen at turn {index}); multi-turn training needs a prefix-preserving one: "
                    "set a training template, see README, own model"
                )
            before = after

    def _find_call_closing(self, calls: ToolCalls) -> str:
        """What follows the last argument of a call, the closing token included."""
        turn = [*self._turn(_OBSERVATION), calls.message(_TOOL, {"value": _ACTION})]
        closing, end, _ = self._render(turn).split(_ACTION, 1)[1].partition(self._end_text)
        result = {"role": "tool", "content": _OBSERVATION}
        named = self._render([*turn, {**result, "name": _TOOL}])
        if not end or named != self._render([*turn, result]):
            raise UserError(
                f"the chat template of {self.tokenizer.name_or_path!r} closes a call otherwise "
                "than an answer, or names the tool in a result; set model.tools to false"
            )
        return closing + end


def _said(text: str) -> Message:
    return {"role": "assistant", "content": text}
