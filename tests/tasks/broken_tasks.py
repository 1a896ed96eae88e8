"""The example task with one fault at a time, and the check that has to find it."""

from hashlib import sha256

from examples.jugs import Jugs, moves

from agent_rl.tasks import Family


class NoText(Jugs):
    """Observations outside the declared space."""

    def text(self):
        return "ä" + super().text()


class SlowExpert(Jugs):
    """The expert idles now and then."""

    def expert_action(self, goal=None):
        return "wait" if self.state[0] == 0 else super().expert_action(goal)


class StaleDistance(Jugs):
    """The distance only ever falls."""

    def reset(self, *, seed=None, options=None):
        self.least = float("inf")
        return super().reset(seed=seed, options=options)

    def facts(self, *, valid=True):
        info = super().facts(valid=valid)
        self.least = min(self.least, info["distance"])
        return {**info, "distance": self.least}


class Detour(Jugs):
    """Expert and distance agree, but both count a step that is not needed."""

    def reset(self, *, seed=None, options=None):
        self.waited = False
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.waited |= action == "wait"
        return super().step(action)

    def plan(self, goal):
        rest = super().plan(goal)
        return rest if goal or self.waited or not rest else ("wait", *rest)


class ShapedReward(Jugs):
    """Pays for progress."""

    def step(self, action):
        before = self.goal_distance("")
        text, success, *rest, info = super().step(action)
        return text, success + 0.1 * (before - info["distance"]), *rest, info


class Leftover(Jugs):
    """What was poured last time is still in the jug."""

    state = None

    def reset(self, *, seed=None, options=None):
        before = self.state
        super().reset(seed=seed, options=options)
        if before is not None and before[0] < min(self.sizes):
            self.state = (before[0], self.state[1])
        return f"goal {self.goal} . {self.text()}", self.facts()


class OwnStream(Jugs):
    """Without a seed every instance has its own luck."""

    drawn = 0

    def instance_seed(self, seed, options=None):
        OwnStream.drawn += 1
        return super().instance_seed(seed, options) if seed is not None else OwnStream.drawn


class Endless(Jugs):
    """Goes on after the end."""

    def step(self, action):
        outcome = super().step(action)
        self.over = False
        return outcome


class Encore(Jugs):
    """Ends a step after it is won, and pays for both steps."""

    late = False

    def step(self, action):
        text, success, won, *rest = super().step(action)
        self.late = won and not self.late
        self.over = won and not self.late
        return text, success, self.over, *rest


class CoarseHash(Jugs):
    """The hash leaves out what is in the jugs."""

    def instance_hash(self):
        return sha256(repr((self.sizes, self.goal)).encode()).hexdigest()


class Diary(Jugs):
    """Keeps every text it ever gave."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def text(self):
        self.kept.append(8 * super().text())
        return super().text()


class Spill(Jugs):
    """What it does not understand spills water."""

    def step(self, action):
        known = action in self.admissible_actions()
        outcome = super().step(action if known else "empty left")
        return (*outcome[:4], {**outcome[4], "valid": known})


class Crash(Jugs):
    """Takes no empty text."""

    def step(self, action):
        assert action.split()[0]
        return super().step(action)


class NewWord(Jugs):
    """Says what no tokenizer knows."""

    def text(self):
        return f"{super().text()} litres{self.sizes[0]}"


class OwnGoalTwice(Jugs):
    """Its own goal is among the others."""

    def alternative_goals(self):
        return (*super().alternative_goals(), self.goal)


class FarGoals(Jugs):
    """Says that other goals are farther than they are."""

    def goal_distance(self, goal):
        return super().goal_distance(goal) + bool(goal)


class Thirst(Jugs):
    """Drinks while it waits."""

    def step(self, action):
        if action == "wait":
            self.state = (0, self.state[1])
        return super().step(action)


class HashOrder(Jugs):
    """Tells the jugs in the order of a set."""

    def text(self):
        return " ".join({f"{action}" for action in moves(self.sizes, self.state)})


HASH_ORDER = Family(HashOrder)

BROKEN = [
    (NoText, "check_gymnasium"),
    (SlowExpert, "check_expert"),
    (StaleDistance, "check_distance"),
    (Detour, "check_shortest"),
    (ShapedReward, "check_facts"),
    (Leftover, "check_p21_resets"),
    (OwnStream, "check_p21_resets"),
    (Endless, "check_p20_order"),
    (Encore, "check_p20_order"),
    (CoarseHash, "check_p22_hashes"),
    (Diary, "check_memory"),
    (Spill, "check_any_text"),
    (Crash, "check_any_text"),
    (NewWord, "check_words"),
    (OwnGoalTwice, "check_other_goals"),
    (FarGoals, "check_other_goals"),
    (Thirst, "check_idle"),
]
