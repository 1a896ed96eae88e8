"""The card of a policy folder, and checks of the folder that run nothing that lies in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from agent_rl.errors import UserError
from agent_rl.files import read_json

CARD = "card.json"
ENTRIES = ("task", "method", "adapter", "base_weights", "weights", "tokenizer")
_ADAPTERS = "adapter_model.safetensors"


def read_card(folder: Path, made_by: str) -> dict[str, Any]:
    """The card of a policy folder.

    Args:
        folder: a folder that training wrote.
        made_by: command that makes it, for the error message.

    Raises: UserError when the card is missing, damaged or no policy's.
    """
    card = read_json(folder / CARD, made_by)
    missing = [entry for entry in ENTRIES if not isinstance(card, dict) or entry not in card]
    if missing:
        raise UserError(
            f"{folder / CARD} is not the card of a policy: {missing[0]!r} is missing; "
            f"name a folder that training wrote, or make it again with `{made_by}`"
        )
    assert isinstance(card, dict)
    return card


def check_adapters(folder: Path) -> None:
    """Refuse adapters that are not whole and in safetensors. Raises: UserError."""
    path = folder / _ADAPTERS
    try:
        with safe_open(path, framework="pt"):
            pass
    except (OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{path} cannot be read ({reason}); name a folder that training wrote"
        ) from error
