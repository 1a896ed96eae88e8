"""BabyAI levels played as text."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from agent_rl.tasks.babyai.levels import COLORS, TYPES, check_settings
from agent_rl.tasks.babyai.planner import DROP, PICKUP, Planner
from agent_rl.tasks.babyai.render import ACTIONS, VOCABULARY, sight
from agent_rl.tasks.babyai.scenes import Scene, Stage, scenes
from agent_rl.tasks.base import EpisodeOver, TextTask

_NUMBERS = {word: number for number, word in enumerate(ACTIONS)}


class BabyAITask(TextTask):
    """One room of coloured objects: go to one, pick one up, or put one next to another.

    Args:
        level: one of ``LEVELS``.
        room_size: side of the room in cells, walls included; None is the level's default.
        num_dists: number of objects drawn at random (besides the red ball in GoToRedBall); None
            is the level's default.

    Raises: UserError when a setting does not exist or does not fit.
    """

    instructions: ClassVar[str] = (
        "You walk through a small room to reach the goal that the first message states. "
        "Every message tells what you see, nearest first, as colour, thing and place: f2 means two "
        "steps ahead, l1 one step to the left and r1 one step to the right; 'wall f3' is the wall "
        "ahead of you and 'carry' tells what you hold. "
        "The actions are left and right (turn on the spot), forward (one step), pickup (take the "
        "thing at f1) and drop (lay what you carry on the free place at f1). "
        "You have gone to a thing when it is at f1 with no step to the side. "
        "Answer every message with exactly one of these action words and nothing else."
    )
    vocabulary: ClassVar[tuple[str, ...]] = VOCABULARY

    def __init__(
        self,
        level: str = "GoToLocal",
        room_size: int | None = None,
        num_dists: int | None = None,
    ) -> None:
        super().__init__()
        self.level = level
        self.room_size, self.num_dists = check_settings(level, room_size, num_dists)
        self._scenes = scenes(level, self.room_size, self.num_dists)
        self._stage = Stage(level, self.room_size, self.num_dists)
        self._sight = sight(self.room_size)
        self._scene: Scene | None = None
        self._over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start instance ``seed``; without a seed, the next one of the generator."""
        scene = self._scene = self._scenes(self.instance_seed(seed, options))
        self._stage.set(scene)
        self._planner = scene.planner(scene.goal)
        self._pose, self._cells = scene.pose, scene.cells
        self._carried = None
        self._layout = self._planner.layout(self._cells)
        self._over = False
        distance = self._planner.distance(self._layout, self._pose)
        solved = distance == 0
        # The verifier looks only after an action, so even a solved start needs one.
        info = {"valid": True, "success": solved, "distance": max(distance, 1.0)}
        return f"goal {scene.mission} . {self._text()}", info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise EpisodeOver("the episode is over: call reset before step")
        number = _NUMBERS.get(action.strip().lower())
        if number is None:
            info = {"valid": False, "success": False, "distance": self._distance()}
            return self._text(), 0.0, False, False, info
        env = self._stage.env
        _, reward, terminated, _, _ = env.step(number)
        success = reward > 0
        self._pose = self._stage.pose()
        if env.carrying is not self._carried:
            self._carried = env.carrying
            self._cells = self._stage.cells()
            self._layout = self._planner.layout(self._cells)
        self._over = terminated
        ended_at = 0.0 if success else math.inf
        distance = ended_at if terminated else self._distance()
        info = {"valid": True, "success": success, "distance": distance}
        return self._text(), float(success), terminated, False, info

    def expert_action(self, goal: str | None = None) -> str:
        """First action of a shortest plan; equally short plans go by the order of ``ACTIONS``.

        Where the goal is reached, or cannot be reached any more, the answer changes nothing.

        Raises: ValueError for a goal that is neither the own one nor an alternative.
        """
        scene = self._started()
        number = None
        if goal is None or goal == scene.goal.text:
            if not self._over:
                number = self._planner.action(self._layout, self._pose)
        else:
            planner = self._other(goal)
            layout = planner.layout(self._cells)
            if not planner.holds(layout, self._pose):
                number = planner.action(layout, self._pose)
        return self.idle_action() if number is None else ACTIONS[number]

    def idle_action(self) -> str:
        """Empty hands cannot drop and full hands cannot pick up."""
        return ACTIONS[DROP if self._carried is None else PICKUP]

    def goal_distance(self, goal: str) -> float:
        """Steps to an alternative goal, or to the own one. Raises: ValueError for another."""
        if not goal:
            return self._distance()
        planner = self._other(goal)
        layout = planner.layout(self._cells)
        # To put next is an event: once it has happened, a plan would bring it about again.
        return 0.0 if planner.holds(layout, self._pose) else planner.distance(layout, self._pose)

    def alternative_goals(self) -> tuple[str, ...]:
        """Goals of the same kind about other objects (put-next: at most 12 pairs)."""
        return tuple(self._started().others)

    def admissible_actions(self) -> tuple[str, ...]:
        """The five actions; all of them are always understood."""
        return ACTIONS

    def instance_hash(self) -> str:
        """SHA-256 of objects, agent, carried object and mission, equal for rotated rooms."""
        return self._started().hash()

    def goal_key(self) -> str:
        """``colour type`` of the target (put-next: of the moved object).

        A goal that several colours fulfil ("pick up a ball") joins them with `` or ``.
        """
        scene = self._started()
        return " or ".join(sorted({scene.names[number] for number in scene.goal.movers}))

    @staticmethod
    def goal_keys() -> tuple[str, ...]:
        """Every colour-type pair that a goal can be about."""
        return tuple(f"{color} {kind}" for color in COLORS for kind in TYPES)

    def _other(self, goal: str) -> Planner:
        scene = self._started()
        if goal not in scene.others:
            raise ValueError(f"{goal!r} is no goal of this room: {', '.join(scene.others)}")
        return scene.planner(scene.others[goal])

    def _started(self) -> Scene:
        if self._scene is None:
            raise EpisodeOver("no episode has started: call reset first")
        return self._scene

    def _text(self) -> str:
        return self._sight.text(self._pose, self._started().names, self._cells)

    def _distance(self) -> float:
        # A goal that already holds still has to be seen by the verifier, after some action.
        return max(self._planner.distance(self._layout, self._pose), 1.0)
