"""Tool calls in the model's own format: schemas in, calls of a sampled turn out.

The chat template renders schemas, calls and results; transformers' response parser reads a call
back, driven by a *response template* that belongs to the format. It is the tokenizer's own, or the
one of TRL's that reads back what the chat template renders.

What counts as an action: a turn with exactly one call, of a tool that exists, with the arguments
of its schema. Thinking and text beside the call are allowed and play no part. Whatever else a
model writes is told to the task as ``INVALID``, so it costs a turn; of several calls none is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from agent_rl.errors import UserError
from agent_rl.tasks.base import Tool

INVALID = ""
"""Told to the task for a turn without a proper call; no task understands the empty text."""

# What models do write between the marks of a call can make the parser raise any of these.
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, RecursionError)

# Llama's templates tell the date unless they are given one; what a model reads must not depend on
# the clock. This is their own default where there is no clock.
_DATE = "26 Jul 2024"

Message = dict[str, Any]

_QUESTION: Message = {"role": "user", "content": "question"}


def render(
    tokenizer: PreTrainedTokenizerBase,
    messages: list[Message],
    tools: list[Any] | None,
    *,
    answer: bool,
) -> str:
    """Text of a conversation; with ``answer`` up to where the agent's next answer begins."""
    rendered: Any = tokenizer.apply_chat_template(
        messages,
        tools=tools,
        tokenize=False,
        add_generation_prompt=answer,
        date_string=_DATE,
    )
    return str(rendered)


def _known_formats() -> tuple[dict[str, Any], ...]:
    """TRL's response templates for formats in which any text can stand in an argument."""
    from trl import chat_template_utils as known

    return (
        known.qwen3_template,
        known.qwen3_5_template,
        known.llama3_template,
        known.gemma4_template,
    )


class ToolCall(NamedTuple):
    """What a turn meant."""

    command: str
    """Action for the task."""
    called: bool
    """Whether the turn holds one call, proper or not: then the answer is its result."""


class ToolCalls:
    """The tools of a task under one tokenizer.

    Args:
        tokenizer: a tokenizer whose chat template renders tools.
        tools: tools of a task, at least one.

    Raises:
        UserError: a template that does not render tools, calls or results, or a format of calls
            that cannot be read back.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, tools: Sequence[Tool]) -> None:
        self.schemas: list[Any] = [tool.schema() for tool in tools]
        self._tokenizer = tokenizer
        self._tools = {tool.name: tool for tool in tools}
        self._prefix = self._opening()
        self._format = self._find_format()

    def message(self, name: str, arguments: dict[str, Any]) -> Message:
        """The assistant's turn that makes one call."""
        call = {"type": "function", "function": {"name": name, "arguments": arguments}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}

    def message_of(self, action: str) -> Message:
        """The assistant's turn that stands for an action.

        Raises: ValueError when no tool has this action.
        """
        tool = self._tools.get(action.split(" ", 1)[0])
        if tool is None:
            raise ValueError(f"{action!r} is an action of none of {', '.join(self._tools)}")
        return self.message(tool.name, tool.arguments(action))

    def parse(self, turn: str) -> ToolCall:
        """What the text of a turn means, its closing token included. Any text is accepted."""
        calls = self._calls(turn, self._format)
        if len(calls) != 1:
            return ToolCall(INVALID, called=False)
        name, arguments = calls[0]
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None or not isinstance(arguments, dict):
            return ToolCall(INVALID, called=True)
        return ToolCall(tool.action(arguments) or INVALID, called=True)

    def _calls(self, turn: str, form: dict[str, Any]) -> list[tuple[Any, Any]]:
        """Names and arguments of the calls in a turn; none when anything about them is broken."""
        try:
            message = self._tokenizer.parse_response(
                turn, form, prefix=self._prefix, tools=self.schemas
            )
            functions = [call["function"] for call in message.get("tool_calls", [])]
            # A call without arguments may leave them out.
            return [(f["name"], {} if (a := f.get("arguments")) is None else a) for f in functions]
        except _MALFORMED:
            return []

    def _opening(self) -> str:
        tokenizer = self._tokenizer
        from trl.chat_template_utils import supports_tool_calling  # slow, and for tools only

        prefix = ""
        with suppress(TemplateError):
            if supports_tool_calling(tokenizer):
                prefix = self._render([_QUESTION], answer=True)
        shown = [schema["function"]["description"] for schema in self.schemas]
        if not all(text in prefix for text in shown):
            raise UserError(
                f"the chat template of {tokenizer.name_or_path!r} does not render tools, their "
                "calls and results; take a model that knows tool calls or set model.tools to false"
            )
        return prefix

    def _find_format(self) -> dict[str, Any]:
        """The first response template that reads back what the chat template renders."""
        own = getattr(self._tokenizer, "response_template", None)
        calls = [
            (tool.name, {p.name: 7 if p.kind == "integer" else "a 'b', c" for p in tool.parameters})
            for tool in self._tools.values()
        ]
        turns = [self._render([_QUESTION, self.message(*call)]) for call in calls]
        for form in _known_formats() if own is None else (own,):
            read = [self._calls(turn.removeprefix(self._prefix), form) for turn in turns]
            if read == [[call] for call in calls]:
                return form
        raise UserError(
            f"the tool calls that the chat template of {self._tokenizer.name_or_path!r} writes "
            "cannot be read back; set tokenizer.response_template or set model.tools to false"
        )

    def _render(self, messages: list[Message], *, answer: bool = False) -> str:
        return render(self._tokenizer, messages, self.schemas, answer=answer)
