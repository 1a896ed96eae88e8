"""What can be set about a text game, and what fits together."""

from __future__ import annotations

from dataclasses import dataclass

from agent_rl.errors import UserError

GAMES = ("treasure", "cooking")
TEXTS = ("own", "prose")
MAX_LEVEL = 30
MAX_INGREDIENTS = 3
"""With more, a shortest plan is no longer found within the bounds of the planner."""
ROOMS = (1, 6, 9, 12)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides which game a seed gives and how it reads."""

    game: str
    level: int
    """Difficulty of the treasure hunt, 1 to 30."""
    ingredients: int
    """Ingredients of the recipe, all of them to be fetched (cooking)."""
    rooms: int
    """Places of the house (cooking)."""
    open: bool
    """Whether doors and containers start closed (cooking)."""
    cook: bool
    """Whether every ingredient has to be cooked (cooking)."""
    cut: bool
    """Whether every ingredient has to be cut (cooking)."""
    text: str

    def key(self) -> list[str | int | bool]:
        """What the generated game depends on; the other settings play no role for it."""
        if self.game == "treasure":
            return [self.game, self.level]
        return [self.game, self.ingredients, self.rooms, self.open, self.cook, self.cut]


def check_settings(found: Settings) -> Settings:
    """The settings themselves. Raises: UserError for a value that does not exist."""
    _choice("game", found.game, GAMES)
    _choice("text", found.text, TEXTS)
    _number("level", found.level, MAX_LEVEL)
    _number("ingredients", found.ingredients, MAX_INGREDIENTS)
    _choice("rooms", found.rooms, ROOMS)
    for name in ("open", "cook", "cut"):
        if type(getattr(found, name)) is not bool:
            raise UserError(f"{name} {getattr(found, name)!r} of textworld: must be true or false")
    return found


def _choice(name: str, value: object, choices: tuple[str, ...] | tuple[int, ...]) -> None:
    if type(value) is not type(choices[0]) or value not in choices:
        listed = ", ".join(map(str, choices))
        raise UserError(f"{name} {value!r} of textworld does not exist: choose one of {listed}")


def _number(name: str, value: object, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        raise UserError(f"{name} {value!r} of textworld: must be an integer from 1 to {most}")
