"""TextWorld's treasure hunt and cooking game played as text."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from agent_rl.tasks.base import EpisodeOver, TextTask
from agent_rl.tasks.textworld import library, words
from agent_rl.tasks.textworld.planner import Planner
from agent_rl.tasks.textworld.prose import Teller
from agent_rl.tasks.textworld.settings import Settings, check_settings
from agent_rl.tasks.textworld.store import LOOK, Game, games
from agent_rl.tasks.textworld.view import NOT_POSSIBLE, goal_text, scene_text
from agent_rl.tasks.textworld.world import Move

_TREASURE = (
    "You walk through a house to take the thing that the first message names; it is somewhere in "
    "one of the rooms. Taking another thing may lose the game. "
)
_COOKING = (
    "You are in a house and have to cook the recipe of the first message and eat the meal. Fetch "
    "every ingredient. Cut it as the recipe says (chop, slice or dice it with the knife, which you "
    "must carry) and cook it as the recipe says (fry with the stove, roast with the oven, grill "
    "with the bbq). A thing cut or cooked wrongly or cooked twice loses the game. In the kitchen, "
    "with all of them in your hands, prepare the meal, then eat it. "
)
_COMMANDS = {
    "treasure": "go north, take THING, take THING from PLACE, open THING, unlock THING with KEY",
    "cooking": (
        "go north, open THING, take THING, take THING from PLACE, slice THING with knife, cook "
        "THING with stove, prepare meal, eat meal"
    ),
}


class TextWorldTask(TextTask):
    """A house of rooms in which a thing has to be found, or a meal to be cooked.

    The rules are TextWorld's; they are grounded once per game (see ``grounding``), so that a step
    is a few operations on integers. Only moves that are possible now reach them. The text is the
    project's own.

    The distance is the length of a shortest plan of an expert who knows the whole house. Whoever
    plays sees one room at a time: nobody can be expected to be as fast.

    Args:
        game: ``treasure`` (TextWorld's tw-treasure_hunter) or ``cooking`` (tw-cooking).
        level: difficulty of the treasure hunt: 1 to 10 five rooms, 11 to 20 ten rooms with doors
            and containers, 21 to 30 twenty rooms with locks (seconds per game).
        ingredients: ingredients of the recipe, 1 to 3.
        rooms: places of the cooking game, 1, 6, 9 or 12.
        open: whether doors and containers of the cooking game start closed.
        cook, cut: whether every ingredient has to be cooked and cut.
        text: ``own`` (few words, a closed vocabulary) or ``prose`` (the text of the compiled game,
            for language models; there ``examine`` and ``inventory`` are understood as well).

    Raises: UserError when a setting does not exist, or when textworld is not installed.
    """

    instructions: ClassVar[str] = ""

    def __init__(
        self,
        game: str = "treasure",
        level: int = 8,
        ingredients: int = 1,
        rooms: int = 6,
        open: bool = True,
        cook: bool = True,
        cut: bool = True,
        text: str = "own",
    ) -> None:
        super().__init__()
        self.settings = check_settings(
            Settings(game, level, ingredients, rooms, open, cook, cut, text)
        )
        library.require()
        told = _TREASURE if game == "treasure" else _COOKING
        self.instructions = (  # type: ignore[misc]
            f"{told}Every message tells the room, its exits, what is in it and what you carry. "
            f"Answer with one command and nothing else, for example: {_COMMANDS[game]}. "
            "The command look changes nothing."
        )
        # Prose has no closed vocabulary: a word-level tokenizer cannot read it.
        known = words.vocabulary(game, level) if text == "own" else ()
        self.vocabulary = known  # type: ignore[misc]
        self._teller = Teller(self.settings) if text == "prose" else None
        self._games = games(self.settings)
        self._game: Game | None = None
        self._state = 0
        self._over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start instance ``seed``; without a seed, the next one of the generator."""
        seed = self.instance_seed(seed, options)
        game = self._game = self._games(seed)
        self._state = game.world.begin()
        self._over = False
        info = {"valid": True, "success": False, "distance": self._distance()}
        seen = self._text() if self._teller is None else self._teller.start(seed)
        return goal_text(game.world) + seen, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise EpisodeOver("the episode is over: call reset before step")
        world = self._started().world
        command = " ".join(action.lower().split())
        move = self._move(command)
        if move is None:
            info = {"valid": False, "success": False, "distance": self._distance()}
            return NOT_POSSIBLE, 0.0, False, False, info
        if move.adds or move.removes:
            self._state = world.after(self._state, move)
        success = world.won(self._state) and not world.lost(self._state)
        distance = 0.0 if success else self._distance()
        # A game that cannot be won any more is lost, as in TextWorld itself.
        self._over = success or distance == math.inf
        info = {"valid": True, "success": success, "distance": distance}
        return self._told(command, success), float(success), self._over, False, info

    def expert_action(self, goal: str | None = None) -> str:
        """First command of a shortest plan; equally short plans go by the alphabet.

        Where the goal is reached, or cannot be reached any more, the answer changes nothing.

        Raises: ValueError for a goal that is neither the own one nor an alternative.
        """
        planner = self._planner(goal or "")
        return LOOK if self._over else planner.command(self._state) or LOOK

    def idle_action(self) -> str:
        """Looking around."""
        return LOOK

    def goal_distance(self, goal: str) -> float:
        """Steps to an alternative goal, or to the own one. Raises: ValueError for another."""
        planner = self._planner(goal)
        if self._over:
            return 0.0 if planner.reached(self._state) else math.inf
        return planner.distance(self._state)

    def alternative_goals(self) -> tuple[str, ...]:
        """Taking another thing (``take pen``), walking to another room (``go to kitchen``)."""
        return self._started().goals()

    def admissible_actions(self) -> tuple[str, ...]:
        """All commands that are understood now, sorted: those that change something, and ``look``.

        In prose also those that only tell something.
        """
        moves, state = self._moves(), self._state
        found = {move.command for move in moves if state & move.needs == move.needs}
        return tuple(sorted(found))

    def instance_hash(self) -> str:
        """SHA-256 of all facts of the start, by the names of things, and of the goal."""
        return self._started().world.digest

    def goal_key(self) -> str:
        """The thing to take, without adjective, or the ingredients, joined with `` or ``."""
        return " or ".join(self._started().world.keys)

    @staticmethod
    def goal_keys() -> tuple[str, ...]:
        """Every thing that can be the treasure and every food, from TextWorld's data files."""
        return words.goal_keys()

    def _move(self, command: str) -> Move | None:
        state = self._state
        for move in self._moves():
            if move.command == command and state & move.needs == move.needs:
                return move
        return None

    def _moves(self) -> tuple[Move, ...]:
        game = self._started()
        return game.moves if self._teller is None else game.world.moves

    def _planner(self, goal: str) -> Planner:
        game = self._started()
        if not goal or goal == game.world.goal:
            return game.planner
        if goal not in game.world.others:
            raise ValueError(f"{goal!r} is no goal of this game: {', '.join(game.world.others)}")
        return game.other(goal)

    def _started(self) -> Game:
        if self._game is None:
            raise EpisodeOver("no episode has started: call reset first")
        return self._game

    def _text(self) -> str:
        return scene_text(self._started().world, self._state)

    def _told(self, command: str, success: bool) -> str:
        """What is to be read after a command."""
        if self._teller is None:
            return self._text()
        text, end = self._teller.tell(command)
        lost = self._started().world.lost(self._state)
        if end != ("won" if success else "lost" if lost else ""):
            raise RuntimeError(
                f"after {command!r} the game says {end!r}, the logic differs: {text}"
            )
        return text

    def _distance(self) -> float:
        return self._started().planner.distance(self._state)
