"""What the grounded rules say is what TextWorld's own engine says, and the distances are exact."""

import math
import os
import random
from functools import partial
from importlib.util import find_spec

import pytest

from agent_rl.tasks.registry import make_task
from agent_rl.tasks.textworld import library, store, words
from agent_rl.tasks.textworld.grounding import ground
from agent_rl.tasks.textworld.planner import Planner
from agent_rl.tasks.textworld.settings import Settings, check_settings

pytestmark = pytest.mark.skipif(
    find_spec("textworld") is None and os.environ.get("AGENT_RL_REQUIRE_EXTRAS") != "1",
    reason="the optional package textworld is not installed",
)

HUNT = {"level": 8}
DOORS = {"level": 15}
MEAL = {"game": "cooking"}
FEAST = {"game": "cooking", "ingredients": 2}


class Original:
    """TextWorld's own game and JSON engine for an instance, as the reference."""

    def __init__(self, task, seed, folder, walkthrough=False):
        import textworld

        task.reset(seed=seed)
        self.game = library.generate(task.settings, seed, 0, walkthrough)
        assert ground(self.game).digest == task.instance_hash(), "choose a seed of one attempt"
        self.game.save(str(folder / "game.json"))
        infos = textworld.EnvInfos(policy_commands=True)
        self.env = textworld.start(str(folder / "game.json"), request_infos=infos)
        self.state = self.env.reset()

    def commands(self):
        """Commands that change something, and ``look``."""
        valid = zip(self.state["_valid_commands"], self.state["_valid_actions"], strict=True)
        return {"look"} | {command.lower() for command, one in valid if one.added or one.removed}

    def step(self, command):
        by_text = {one.lower(): one for one in reversed(self.state["_valid_commands"])}
        self.state, _, done = self.env.step(by_text[command])
        return bool(self.state["won"]), done

    def shortest(self, state, reached, dead):
        """Length of a shortest plan, by search over TextWorld's states with TextWorld's rules."""
        rules, constants = self.game.kb.rules.values(), self.game.kb.types.constants_mapping
        frontier, seen, depth = [state], {frozenset(state.facts)}, 0
        if reached(state):
            return 0
        while frontier:
            depth += 1
            following = []
            for one in frontier:
                for action in list(one.all_applicable_actions(rules, constants)):
                    found = one.apply_on_copy(action)
                    key = frozenset(found.facts)
                    if key in seen:
                        continue
                    if reached(found):
                        return depth
                    seen.add(key)
                    if not dead(found):
                        following.append(found)
            frontier = following
        return math.inf


@pytest.mark.parametrize(("settings", "seeds"), [(HUNT, 12), (DOORS, 3), (MEAL, 4), (FEAST, 2)])
def test_moves_and_verdicts_are_those_of_textworlds_engine(settings, seeds, tmp_path):
    task = make_task("textworld", settings)
    cooking = "game" in settings
    wins = losses = 0
    for seed in range(seeds):
        # Without a walkthrough the engine cannot tell that a cooking game is lost for good.
        rng, original = random.Random(seed), Original(task, seed, tmp_path, False)
        task.reset(seed=seed)
        for _ in range(30):
            ours, theirs = set(task.admissible_actions()), original.commands()
            # The engine lets a raw meal be prepared; the compiled game refuses, and so do we.
            assert theirs - ours <= ({"prepare meal"} if cooking else set()) and ours <= theirs
            action = task.expert_action() if rng.random() < 0.5 else rng.choice(sorted(ours))
            _, success, terminated, _, info = task.step(action)
            won, done = original.step(action)
            assert (won, done) == (bool(success), terminated), action
            if action == "prepare meal" and settings is FEAST:
                # Here the engine uses up the first ingredient only, the compiled game uses all.
                break
            wins, losses = wins + won, losses + (done and not won)
            if terminated:
                assert info["distance"] == (0.0 if won else math.inf)
                break
    assert wins or settings is FEAST
    assert losses or settings is not HUNT


def attains(goal, names, state):
    """Whether a goal like ``take pen`` or ``go to attic`` holds in a TextWorld state."""
    wanted = ("at", "P") if goal.startswith("go to ") else ("in", "I")
    name = goal.removeprefix("go to ").removeprefix("take ")
    return any(
        fact.name == wanted[0]
        and wanted[1] in {one.name for one in fact.arguments}
        and name in {names[str(one.name)] for one in fact.arguments}
        for fact in state.facts
    )


def test_distances_equal_an_independent_search_for_all_goals_also_after_random_moves(tmp_path):
    task = make_task("textworld", HUNT)
    looked = 0
    for seed in range(6):
        rng, original = random.Random(seed), Original(task, seed, tmp_path)
        quest = original.game.quests[0]
        names = {key: str(info.name).lower() for key, info in original.game.infos.items()}

        def wins(state, quest=quest):
            return any(event.is_triggering(state) for event in quest.win_events)

        def over(state, quest=quest, wins=wins):
            return wins(state) or any(event.is_triggering(state) for event in quest.fail_events)

        for _ in range(5):
            state = original.state["_game_progression"].state
            assert task.goal_distance("") == original.shortest(state, wins, over)
            for goal in task.alternative_goals():
                aim = partial(attains, goal, names)
                assert task.goal_distance(goal) == original.shortest(state, aim, over)
                looked += 1
            action = rng.choice(task.admissible_actions())
            original.step(action)
            if task.step(action)[2]:
                break
    assert looked > 60


def test_no_plan_of_textworld_is_shorter_and_some_are_longer(tmp_path):
    task = make_task("textworld", HUNT)
    longer = 0
    for seed in range(8):
        original = Original(task, seed, tmp_path)
        _, info = task.reset(seed=seed)
        theirs = len(original.state["policy_commands"])
        assert theirs >= info["distance"]
        longer += theirs > info["distance"]
    # Its own plan walks around a cycle of rooms in the direction in which it was made.
    assert 0 < longer < 8


def test_a_stored_walkthrough_of_a_cooking_game_is_never_shorter(tmp_path):
    task = make_task("textworld", MEAL)
    original = Original(task, 1, tmp_path, walkthrough=True)
    _, info = task.reset(seed=1)
    assert len(original.state["policy_commands"]) >= info["distance"] > 4


@pytest.mark.parametrize(("settings", "seeds"), [(HUNT, 12), (DOORS, 3), (MEAL, 4), (FEAST, 2)])
def test_the_distance_falls_by_one_along_the_expert_from_anywhere(settings, seeds):
    task = make_task("textworld", settings)
    reached = 0
    for seed in range(seeds):
        rng = random.Random(seed)
        for detour in (0, 2, 6):
            task.reset(seed=seed)
            if any(task.step(rng.choice(task.admissible_actions()))[2] for _ in range(detour)):
                continue
            goals = task.alternative_goals()
            for goal in ["", rng.choice(goals)] if detour else [""]:
                distance = task.goal_distance(goal)
                while 0 < distance < math.inf and not task._over:
                    task.step(task.expert_action(goal))
                    assert task.goal_distance(goal) == distance - 1
                    distance -= 1
                reached += distance == 0
                if task._over:
                    break
                assert task.expert_action(goal) == "look" or distance
    assert reached > seeds


class Plain(Planner):
    """The search without its shortcut for urgent moves."""

    def _urgent(self, start, moves):
        return frozenset()


@pytest.mark.parametrize(("settings", "seeds"), [(DOORS, 3), (FEAST, 2)])
def test_urgent_moves_shorten_the_search_and_not_the_distances(settings, seeds):
    task = make_task("textworld", settings)
    for seed in range(seeds):
        rng = random.Random(seed)
        task.reset(seed=seed)
        world = task._game.world
        plain = {"": Plain(world)} | {g: Plain(world, world.others[g]) for g in world.others}
        for _ in range(20):
            for goal in ("", rng.choice(task.alternative_goals())):
                assert task.goal_distance(goal) == plain[goal].distance(task._state)
            if task.step(rng.choice([task.expert_action(), *task.admissible_actions()]))[2]:
                break


def test_reading_the_rules_once_and_skipping_the_walkthrough_change_no_game(monkeypatch):
    from textworld.generator import GameOptions
    from textworld.generator.data import KnowledgeBase
    from textworld.generator.maker import GameMaker

    before = KnowledgeBase.__dict__["load"], GameMaker.set_walkthrough
    for chosen in (HUNT, MEAL):
        settings = make_task("textworld", chosen).settings
        ours = ground(library.generate(settings, 4, 0))
        options = GameOptions()
        options.seeds = library._sub_seed(4, 0)
        assert ground(library._make(settings, options)).dump() == ours.dump()
    assert (KnowledgeBase.__dict__["load"], GameMaker.set_walkthrough) == before


def test_a_seed_that_the_generator_refuses_gets_the_game_of_its_next_sub_seed(monkeypatch):
    settings = make_task("textworld", {"level": 10}).settings
    attempts = {seed: store.sub_game(settings, seed)[0] for seed in range(6)}
    assert max(attempts.values()) > 0, "choose seeds of which some are refused"
    refused = next(seed for seed, attempt in attempts.items() if attempt)
    with pytest.raises(library.Refused):
        store.ground(library.generate(settings, refused, 0))
    again = store.generate(settings, refused)
    assert again.digest == ground(library.generate(settings, refused, attempts[refused])).digest

    def never(*_):
        raise library.Refused

    monkeypatch.setattr(library, "generate", never)
    monkeypatch.setattr(library, "MAX_ATTEMPTS", 3)
    with pytest.raises(store.UserError, match="seed 5: no game in 3 attempts"):
        store.generate(settings, 5)


def test_a_game_that_cannot_be_won_is_refused():
    game = library.generate(make_task("textworld", HUNT).settings, 0, 0)
    state = game.world.state
    target = next(fact for fact in state.facts if str(fact.arguments[0].type) in ("o", "f", "k"))
    for fact in [fact for fact in state.facts if target.arguments[0] in fact.arguments]:
        state.remove_fact(fact)
    other = next(fact for fact in state.facts if str(fact.arguments[0].type) in ("o", "f", "k"))
    state.remove_fact(other)
    with pytest.raises(library.Refused, match="no play can fulfil"):
        ground(game)


def test_the_grammar_is_read_as_textworld_reads_it():
    from textworld.generator.text_grammar import Grammar

    theirs = Grammar({}, rng=0).grammar
    ours = words.grammar()
    assert {f"#{symbol}#" for symbol in ours} == set(theirs)
    for symbol, texts in ours.items():
        read = [one.full_form().replace(" ", "") for one in theirs[f"#{symbol}#"].alternatives]
        assert [text.replace(" ", "") for text in texts] == read, symbol


def test_only_settings_that_shape_the_game_tell_games_apart():
    base = Settings("treasure", 8, 1, 6, True, True, True, "own")
    other = check_settings(Settings("treasure", 8, 3, 12, False, False, False, "prose"))
    assert base.key() == other.key() != Settings("treasure", 9, *base_rest(base)).key()


def base_rest(base):
    return base.ingredients, base.rooms, base.open, base.cook, base.cut, base.text
