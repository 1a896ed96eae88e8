"""Tool calls: the model's own format in, the task's actions out, and not a token re-encoded."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import trl
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_rl.errors import UserError
from agent_rl.rollouts.chat import Chat
from agent_rl.rollouts.engine import Episode, RolloutEngine
from agent_rl.rollouts.model_policy import ModelPolicy
from agent_rl.rollouts.policies import Action, OraclePolicy, ScriptedPolicy
from agent_rl.rollouts.setup import make_chat
from agent_rl.rollouts.storage import load_trajectories, save_trajectories
from agent_rl.rollouts.tool_calls import INVALID
from agent_rl.tasks.registry import make_env, make_task
from agent_rl.training.supervised import written_tokens

PUBLIC = Path(trl.__file__).parent / "chat_templates"
"""Templates of public models that TRL ships, with and without its changes for training."""

KNOWN = (
    "qwen2_5", "qwen3_training", "qwen3_instruct_2507", "qwen3_6_training", "llama3_1", "llama3_2",
    "gemma4_v2",
)  # fmt: skip
MODES = ("sql", "search")
MARKS = ("<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|turn>", "<turn|>")


def public(name):
    return (PUBLIC / f"{name}.jinja").read_text(encoding="utf-8")


def sqlqa(mode="sql"):
    return make_task("sqlqa", {"hops": 2, "tables": 6, "mode": mode})


@pytest.fixture(scope="session")
def tokenizers(make_bpe):
    """Byte-level tokenizers by the name of a public template."""
    made = {}

    def get(name, template=None):
        if name not in made:
            made[name] = make_bpe(template or public(name))
            made[name].add_special_tokens(
                {"additional_special_tokens": ["<|im_start|>", *MARKS], "bos_token": "<s>"}
            )
        return made[name]

    return get


@pytest.fixture(scope="session")
def chats(tokenizers):
    made = {}

    def get(name, mode="sql"):
        if (name, mode) not in made:
            task = sqlqa(mode)
            made[name, mode] = Chat(tokenizers(name), task.tool_instructions, task.tools)
        return made[name, mode]

    return get


def actions_of(mode):
    """Actions of the expert and of whoever looks around, over some instances."""
    task, found = sqlqa(mode), set()
    for seed in range(5):
        task.reset(seed=seed)
        for _ in range(6):
            found.update(task.admissible_actions())
            action = task.expert_action()
            found.add(action)
            if task.step(action)[2]:
                break
    return sorted(found)


def episodes(mode, count):
    task, made = sqlqa(mode), []
    for seed in range(count):
        task.reset(seed=seed)
        made.append(Episode(seed, task.instance_hash(), seed, 0, np.random.SeedSequence([7, seed])))
    return made


def engine(mode, horizon=8):
    settings = {"hops": 2, "tables": 6, "mode": mode}
    return RolloutEngine("sqlqa", lambda: make_env("sqlqa", settings, horizon))


# The tools of a task


@pytest.mark.parametrize("mode", MODES)
def test_schemas_are_functions_with_closed_parameters_in_json(mode):
    names = set()
    for tool in sqlqa(mode).tools:
        schema = json.loads(json.dumps(tool.schema()))
        assert schema.keys() == {"type", "function"} and schema["type"] == "function"
        function = schema["function"]
        assert function.keys() == {"name", "description", "parameters"} and function["description"]
        names.add(function["name"])
        parameters = function["parameters"]
        assert parameters["type"] == "object" and parameters["additionalProperties"] is False
        assert parameters["required"] == list(parameters["properties"])
        for each in parameters["properties"].values():
            assert each["type"] in ("string", "integer") and each["description"]
    answers = {"sql": {"tables", "schema", "sql", "answer"}, "search": {"search", "read", "answer"}}
    assert names == answers[mode]


@pytest.mark.parametrize("mode", MODES)
def test_tools_cover_every_action_and_give_it_back(mode):
    tools = {tool.name: tool for tool in sqlqa(mode).tools}
    actions = actions_of(mode)
    assert {action.split()[0] for action in actions} == tools.keys()
    for action in actions:
        tool = tools[action.split()[0]]
        arguments = json.loads(json.dumps(tool.arguments(action)))
        assert tool.action(arguments) == action
        for other in tools.values():
            if other is not tool:
                with pytest.raises(ValueError, match="no action of tool"):
                    other.arguments(action)


@pytest.mark.parametrize("mode", MODES)
def test_a_tool_takes_the_arguments_of_its_schema_and_no_others(mode):
    right = {"string": ("kai", "", "a  b\nc"), "integer": (3, -1, 0, 4.0)}
    wrong = {
        "string": (3, None, True, ["kai"], {"a": 1}, 1.5),
        "integer": ("3", None, True, 1.5, float("nan"), float("inf"), [3]),
    }
    for tool in sqlqa(mode).tools:
        (name, kind), *more = [(p.name, p.kind) for p in tool.parameters] or [("", "")]
        assert not more
        assert tool.action({"other": "kai"}) is None
        if not name:
            assert tool.action({}) == tool.name
            continue
        assert tool.action({}) is None and tool.action({name: right[kind][0], "b": 1}) is None
        assert all(str(tool.action({name: v})).startswith(tool.name + " ") for v in right[kind])
        assert all(tool.action({name: value}) is None for value in wrong[kind])


@pytest.mark.parametrize(
    ("family", "rules"),
    [("babyai", {}), ("sqlqa", {"mode": "sql"}), ("sqlqa", {"mode": "search"})],
)
def test_no_task_understands_what_it_is_told_for_a_turn_without_a_call(family, rules):
    task = make_task(family, rules)
    _, before = task.reset(seed=1)
    text, success, terminated, _, after = task.step(INVALID)
    assert after["valid"] is False and not success and not terminated
    assert after["distance"] == before["distance"] and len(text) < 40


# The format of a model


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", KNOWN)
def test_a_call_that_the_template_renders_is_read_back_as_the_action(chats, name, mode):
    chat = chats(name, mode)
    for action in actions_of(mode)[::3]:
        call = chat.parse(chat.answer(action))
        assert call == (action, True)
        # The turn was cut before it could be closed, but the call was whole.
        assert chat.parse(chat.answer(action)[:-1]) == call


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", KNOWN)
def test_p2_deltas_add_up_to_the_template_s_encoding_of_calls_and_results(chats, name, mode):
    chat = chats(name, mode)
    first, *results = ("goal w1 of w2 kai .", "w3 w4", "", "it's <b> 'w5' ; \"w6\"", "w7")
    messages = [
        {"role": "system", "content": sqlqa(mode).tool_instructions},
        {"role": "user", "content": first},
    ]
    ids = [*chat.opening(first)]
    for index, (action, result) in enumerate(zip(actions_of(mode)[::7], results, strict=False)):
        called = index != 1
        answer = chat.calls.message_of(action) if called else {"role": "assistant", "content": "hm"}
        before = chat.tokenizer.decode(ids)
        messages += [answer, {"role": "tool" if called else "user", "content": result}]
        if called:
            ids += chat.answer(action)
        else:
            # What the template puts around an answer (an empty thinking block) is its own.
            answered = rendered(chat, messages[:-1], False).removeprefix(before)
            end = chat.tokenizer.decode([chat.end_id])
            ids += [*chat._encode(answered.rpartition(end)[0]), chat.end_id]
        ids += chat.observe(result, called=called)
        assert chat.tokenizer.decode(ids) == rendered(chat, messages, True)
        assert ids == chat._encode(rendered(chat, messages, True))
    assert len(messages) == 10


def rendered(chat, messages, answer):
    return chat.tokenizer.apply_chat_template(
        messages, tools=chat.calls.schemas, tokenize=False, add_generation_prompt=answer,
        date_string="26 Jul 2024",
    )  # fmt: skip


def test_the_tools_are_told_in_the_opening_and_their_mode_decides_which(chats):
    sql, search = (chats("qwen2_5", mode).opening("goal") for mode in MODES)
    text = chats("qwen2_5").tokenizer.decode
    assert all(f'"name": "{tool.name}"' in text(sql) for tool in sqlqa("sql").tools)
    assert '"name": "sql"' not in text(search) and '"name": "read"' in text(search)


CALL = '<tool_call>\n{"name": "schema", "arguments": {"table": "people"}}\n</tool_call>'
SCHEMA = "schema people"


@pytest.mark.parametrize(
    ("written", "command", "called"),
    [
        (CALL, SCHEMA, True),
        (f"<think>\nI wonder.\n</think>\n\n{CALL}", SCHEMA, True),
        (f"Let me see.\n{CALL}\n", SCHEMA, True),
        (CALL.replace("\n", ""), SCHEMA, True),
        ('<tool_call>{"name": "tables"}</tool_call>', "tables", True),
        ('<tool_call>{"name": "tables", "arguments": null}</tool_call>', "tables", True),
        ("", INVALID, False),
        (SCHEMA, INVALID, False),
        ("answer kai", INVALID, False),
        (f"<think>{CALL}</think>", INVALID, False),
        (f"{CALL}\n{CALL}", INVALID, False),
        (CALL.replace("}}", "}"), INVALID, False),
        (CALL.removesuffix("</tool_call>"), INVALID, False),
        ("<tool_call></tool_call>", INVALID, False),
        ("<tool_call>[]</tool_call>", INVALID, False),
        ('<tool_call>"schema"</tool_call>', INVALID, False),
        ('<tool_call>{"arguments": {"table": "people"}}</tool_call>', INVALID, False),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", INVALID, False),
        ('<tool_call>{"name": ' + "9" * 5000 + "}</tool_call>", INVALID, False),
        (CALL.replace('"schema"', '"drop"'), INVALID, True),
        (CALL.replace('"schema"', "3"), INVALID, True),
        (CALL.replace('"schema"', "[]"), INVALID, True),
        (CALL.replace('"people"', "3"), INVALID, True),
        (CALL.replace('"table"', '"name"'), INVALID, True),
        (CALL.replace('{"table": "people"}', '"people"'), INVALID, True),
        (CALL.replace('{"table": "people"}', '"{\\"table\\": \\"people\\"}"'), INVALID, True),
        (CALL.replace('"people"', '"people", "x": 1'), INVALID, True),
    ],
)
def test_one_proper_call_acts_and_whatever_else_is_written_is_invalid(
    chats, written, command, called
):
    for name in ("qwen2_5", "qwen3_training"):
        chat = chats(name)
        assert chat.parse((*chat._encode(written), chat.end_id)) == (command, called)


@pytest.mark.parametrize(
    ("written", "command"),
    [
        ('{"name": "schema", "parameters": {"table": "people"}}', SCHEMA),
        ('{"name": "schema", "parameters": {"table": "people"}', INVALID),
        ('{"name": "schema", "parameters": {"table": 3}}', INVALID),
        ('{"name": "schema", "arguments": {"table": "people"}}', INVALID),
        (SCHEMA, INVALID),
    ],
)
def test_llama_s_bare_json_calls(chats, written, command):
    chat = chats("llama3_1")
    assert chat.parse((*chat._encode(written), chat.end_id)).command == command


def test_an_untyped_format_gives_numbers_where_the_schema_says_so(chats):
    chat = chats("qwen3_6_training", "search")
    assert chat.parse(chat.answer("read 12")).command == "read 12"
    assert chat.parse(chat.answer("answer 12")).command == "answer 12"
    wrong = chat.read(chat.answer("read 12")).replace("12", "twelve")
    assert chat.parse((*chat._encode(wrong), chat.end_id)) == (INVALID, True)


PIECES = (
    "<tool_call>", "</tool_call>", "<think>", "</think>", '{"name": "', '", "arguments": {',
    '", "parameters": {', '"query": ', '"number": ', "}}", "}", "sql", "read", "tables", "answer",
    "<function=sql>", "<parameter=query>", "</parameter>", "</function>", "<|im_end|>",
    "<|eot_id|>", "call:sql{", '<|"|>', "<|tool_call>", "<tool_call|>", "\\ud800", "\x00", "1e999",
    "NaN", "null", "[", "\n", " ", '"select name from people"', "'", '"', "7",
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=14).map("".join),
    st.sampled_from(KNOWN),
    st.sampled_from(MODES),
)
def test_no_text_of_a_model_is_a_crash(chats, text, name, mode):
    command, called = chats(name, mode).calls.parse(text)
    assert command == INVALID or (
        called and command.split(" ")[0] in chats(name, mode).calls._tools
    )
    task = sqlqa(mode)
    task.reset(seed=0)
    valid = task.step(command)[4]["valid"]
    assert valid is False or command != INVALID


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_near_miss_of_a_call_is_a_crash(chats, data):
    name, mode = data.draw(st.sampled_from(KNOWN)), data.draw(st.sampled_from(MODES))
    chat = chats(name, mode)
    call = chat.read(chat.answer(data.draw(st.sampled_from(actions_cached(mode)))))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(call)))
        stop = data.draw(st.integers(start, min(len(call), start + 3)))
        put = data.draw(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)))
        call = call[:start] + put + call[stop:]
    command, _ = chat.calls.parse(call)
    task = sqlqa(mode)
    task.reset(seed=0)
    task.step(command)


def actions_cached(mode, kept={}):  # noqa: B006 (a cache)
    if mode not in kept:
        kept[mode] = actions_of(mode)[::5]
    return kept[mode]


# Whole episodes


class Caller(ScriptedPolicy):
    """The oracle, speaking to the task through the format of a model only."""

    name = "caller"

    def __init__(self, chat):
        super().__init__()
        self.chat = chat

    def act(self, slots, observations, tasks):
        written = [self.chat.answer(task.expert_action()) for task in tasks]
        return [
            Action(self.chat.read(ids), ids, (0.0,) * len(ids), self.chat.parse(ids).command)
            for ids in written
        ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", KNOWN)
def test_an_oracle_that_calls_tools_wins_as_the_oracle_does(chats, name, mode):
    episodes_ = episodes(mode, 6)
    called = engine(mode).play(Caller(chats(name, mode)), episodes_)
    spoken = engine(mode).play(OraclePolicy(), episodes_)
    assert all(t.success for t in called)
    for one, other in zip(called, spoken, strict=True):
        assert one.distances.tolist() == other.distances.tolist()
        assert one.final_observation == other.final_observation
        assert all(turn.valid for turn in one.turns)


class Forced(ModelPolicy):
    """The real policy with its choices made for it; it still reads and scores every token."""

    def force(self, script):
        """``script(slot, turn, task)`` gives the ids of a turn."""
        self.script, self.turns, self.left = script, {}, {}

    def act(self, slots, observations, tasks):
        for slot, task in zip(slots, tasks, strict=True):
            self.turns[slot] = self.turns.get(slot, -1) + 1
            self.left[slot] = list(self.script(slot, self.turns[slot], task))
        return super().act(slots, observations, tasks)

    def _draw(self, logits, slots):
        table = torch.log_softmax(logits, dim=-1)
        chosen = [self.left[slot].pop(0) for slot in slots]
        return chosen, [float(table[row, token]) for row, token in enumerate(chosen)]


@pytest.mark.parametrize("name", ["qwen3_training", "llama3_1"])
def test_p1_p14_tokens_of_an_episode_of_calls_are_those_of_the_template_and_of_the_model(
    chats, make_model, unpadded_logprobs, tmp_path, name
):
    chat = chats(name)
    model = make_model(chat.tokenizer, std=0.1)
    think = "<think>\nhm\n</think>\n\n"
    faults = {
        (1, 0): (*chat._encode(f"{think}just talking"), chat.end_id),
        (2, 1): (*chat.answer("tables")[:-1], *chat._encode(" and then some"), chat.end_id),
        (3, 0): tuple(chat._encode(think + "and_on_" * 60)),
    }

    def script(slot, turn, task):
        return faults.get((slot, turn)) or chat.answer(task.expert_action())

    policy = Forced("forced", model, chat, temperature=1.0, max_action_tokens=160, max_tokens=6000)
    policy.force(script)
    played = engine("sql").play(policy, episodes("sql", 5))
    assert all(t.success for t in played)
    save_trajectories(tmp_path / "played.parquet", played)
    for trajectory in load_trajectories(tmp_path / "played.parquet", "test"):
        _, expected = unpadded_logprobs(model, trajectory)
        assert np.abs(trajectory.logprobs[trajectory.mask == 1] - expected).max() < 1e-4
        assert trajectory.mask.sum() == sum(len(turn.token_ids) for turn in trajectory.turns)
        assert all(chat.read(turn.token_ids) == turn.action for turn in trajectory.turns)
        # The whole of it is what the template renders for these calls and their results.
        messages = [
            {"role": "system", "content": sqlqa().tool_instructions},
            {"role": "user", "content": trajectory.turns[0].observation},
        ]
        for turn, after in zip(trajectory.turns, trajectory.turns[1:], strict=False):
            call = chat.parse(turn.token_ids)
            assert turn.valid == (call.command != INVALID)
            answer = {"role": "assistant", "content": turn.action}
            if call.command and turn.action == chat.read(chat.answer(call.command)):
                answer = chat.calls.message_of(call.command)
            messages += [answer, {"role": "tool" if call.called else "user"}]
            messages[-1]["content"] = after.observation
        start = trajectory.turn_spans[-1][0]
        read = chat.tokenizer.decode(trajectory.token_ids[:start].tolist())
        if name.startswith("qwen") or all(turn.valid for turn in trajectory.turns):
            assert read == rendered(chat, messages, True)
    invalid = [(t.instance_id, i) for t in played for i, u in enumerate(t.turns) if not u.valid]
    assert (1, 0) in invalid and (3, 0) in invalid
    cut = played[3]
    assert cut.token_ids[cut.turn_spans[0][1]] == chat.end_id
    assert cut.mask[cut.turn_spans[0][1]] == 0


def test_p1_demonstrations_are_written_as_the_calls_that_a_policy_would_make(chats, make_model):
    chat = chats("qwen2_5", "search")
    shown = engine("search").play(OraclePolicy(), episodes("search", 3))
    policy = Forced(
        "forced", make_model(chat.tokenizer), chat,
        temperature=1.0, max_action_tokens=120, max_tokens=6000,
    )  # fmt: skip
    policy.force(lambda slot, turn, task: chat.answer(task.expert_action()))
    played = engine("search").play(policy, episodes("search", 3))
    for one, other in zip(shown, played, strict=True):
        written = written_tokens(one, chat)
        assert written.token_ids.tolist() == other.token_ids.tolist()
        assert written.mask.tolist() == other.mask.tolist()


def test_a_model_that_knows_no_tools_plays_on_and_every_turn_is_invalid(chats, make_model):
    chat = chats("qwen2_5")
    policy = ModelPolicy(
        "random", make_model(chat.tokenizer), chat,
        temperature=1.0, max_action_tokens=12, max_tokens=6000,
    )  # fmt: skip
    for trajectory in engine("sql", horizon=4).play(policy, episodes("sql", 4)):
        trajectory.validate()
        assert len(trajectory.turns) == 4 and trajectory.end == "turn_limit"
        assert not any(turn.valid for turn in trajectory.turns)


def test_what_an_action_commands_is_what_the_task_hears(stub, episodes_for):
    class Speaker(ScriptedPolicy):
        def act(self, slots, observations, tasks):
            self.task = tasks[0]
            return [Action("w1", command="w2") for _ in slots]

    speaker = Speaker()
    (trajectory,) = RolloutEngine("stub", stub).play(speaker, episodes_for([0]))
    assert speaker.task.heard == ["w2"]
    assert [turn.action for turn in trajectory.turns] == ["w1"]


# What is refused, and the setting

RENDERS_NO_SCHEMAS = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}"
    "{% for c in m['tool_calls'] or [] %}<tool_call>\n{{ c['function'] | tojson }}\n</tool_call>"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SCHEMAS = "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
OWN_FORMAT = SCHEMAS + RENDERS_NO_SCHEMAS.replace("tool_call>", "do>")
NAMES_THE_TOOL = SCHEMAS + RENDERS_NO_SCHEMAS.replace(
    "['role'] }}", "['role'] }}{{ ' ' + m['name'] if m['name'] }}"
)
CLOSES_OTHERWISE = SCHEMAS + RENDERS_NO_SCHEMAS.replace(
    "{% endfor %}<|im_end|>", "{% endfor %}{{ '<|eot_id|>' if m['tool_calls'] else '<|im_end|>' }}"
)
DROPS_CALLS_LATER = SCHEMAS + RENDERS_NO_SCHEMAS.replace(
    "c in m['tool_calls'] or []", "c in (m['tool_calls'] or []) if loop.last or m is true"
).replace("{% for m in messages %}", "{% for m in messages %}{% set last = loop.last %}").replace(
    "if loop.last or m is true", "if last or messages[-1]['role'] == 'tool'"
)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("qwen2_5_vl", "does not render tools"),
        ("llama3", "does not render tools"),
        ("gemma", "does not render tools"),
        ("qwen3", "rewrites earlier turns"),
        ("lfm2_v2", "cannot be read back"),
        (RENDERS_NO_SCHEMAS, "does not render tools"),
        (OWN_FORMAT, "cannot be read back"),
        (NAMES_THE_TOOL, "names the tool in a result"),
        (CLOSES_OTHERWISE, "closes a call otherwise"),
        (DROPS_CALLS_LATER, "rewrites earlier turns"),
    ],
)
def test_p2_a_template_by_which_calls_cannot_be_trained_on_is_refused(tokenizers, template, told):
    text = template if "{%" in template else public(template)
    with pytest.raises(UserError, match=told) as refusal:
        Chat(tokenizers(template, text), "", sqlqa().tools)
    assert "\n" not in str(refusal.value)


def test_a_tokenizer_s_own_response_template_says_how_its_calls_read(make_bpe):
    tokenizer = make_bpe(OWN_FORMAT)
    tokenizer.response_template = {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {
            "tool_calls": {
                "open": "<do>",
                "close_pattern": r"</do>\s*",
                "repeats": True,
                "content": "json",
                "transform": {"type": "function", "function": "{content}"},
            },
            "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
        },
    }
    chat = Chat(tokenizer, "", sqlqa().tools)
    assert chat.parse(chat.answer(SCHEMA)) == (SCHEMA, True)
    assert "<do>" in chat.read(chat.answer(SCHEMA))


def questions(study):
    settings = {"hops": 2, "tables": 6, "mode": "sql"}
    return dataclasses.replace(study.task("babyai"), family="sqlqa", settings=settings)


def test_the_setting_gives_tools_to_tasks_that_have_them(study, tokenizers):
    tokenizer = tokenizers("qwen2_5")
    on = dataclasses.replace(study.model, tools=True, instructions=True)
    told = make_chat(tokenizer, questions(study), on)
    assert {s["function"]["name"] for s in told.calls.schemas} >= {"sql", "answer"}
    assert "call 'answer'" in tokenizer.decode(told.opening("goal"))
    assert make_chat(tokenizer, study.task("babyai"), on).calls is None
    assert study.model.tools is False
    assert make_chat(tokenizer, questions(study), study.model).calls is None


def test_the_small_model_of_the_study_is_refused_tools(study, word_tokenizer):
    on = dataclasses.replace(study.model, tools=True)
    with pytest.raises(UserError, match=r"set model\.tools to false"):
        make_chat(word_tokenizer, questions(study), on)
