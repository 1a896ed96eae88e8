"""The sections of the report, in the order in which a reader asks."""

from __future__ import annotations

import math

from agent_rl.reporting import prose, sections_study, style, summary
from agent_rl.reporting.cards import reward_cards
from agent_rl.reporting.document import (
    DASH,
    Block,
    Bullets,
    Cards,
    Document,
    Missing,
    Paragraph,
    Picture,
    Section,
    Table,
    count,
    interval,
    number,
)
from agent_rl.reporting.drawing import SavedFigure
from agent_rl.reporting.figures import Gap
from agent_rl.reporting.sections_bench import speed_blocks
from agent_rl.reporting.sections_gap import gap_blocks
from agent_rl.reporting.sections_rewards import audit_blocks, base_blocks, luck_sentence
from agent_rl.reporting.sections_transcripts import transcript_blocks
from agent_rl.reporting.tables import UNSEEDED, Results

Figures = dict[str, SavedFigure | Gap]
COLUMNS = (("test", "greedy"), ("test", "t1"), ("shifted", "greedy"), ("shifted", "t1"))


def build_document(results: Results, figures: Figures) -> Document:
    """The whole report from checked results and saved figures."""

    def shown(name: str) -> Block:
        figure = figures[name]
        if isinstance(figure, Gap):
            return Missing(f"Figure `{name}` is not shown: {figure.reason}.")
        return Picture(figure)

    return Document(
        "Agent RL against SFT and single-turn DPO",
        [
            Section("The question", sections_study.question(results)),
            Section("The answer", _answer(results)),
            Section("What is trained", [shown("pipeline"), Paragraph(_UNIT)]),
            Section("Main result", [shown("main_results"), *_main_tables(results)]),
            Section("Contrasts paired by seed (exploratory)", _contrasts(results)),
            Section("Registered hypotheses", _registered(results)),
            Section("Learning curves", [shown("learning_curves")]),
            Section("Reward against success", [shown("reward_vs_success"), *gap_blocks(results)]),
            Section(
                "Reward audit: can a reward be farmed?",
                audit_blocks(results, shown("reward_audit")),
            ),
            Section("Rewards on the base's episodes", base_blocks(results, shown("dead_groups"))),
            Section("Reward cards", _cards(results)),
            Section("Success by difficulty", [shown("success_by_distance")]),
            Section("How episodes end", [shown("end_reasons")]),
            Section(
                "What the episodes look like",
                transcript_blocks(results.transcripts, results.tasks, results.showcases),
            ),
            Section("Cost", [shown("cost"), *_cost_tables(results)]),
            Section("Training health", [shown("training_health")]),
            Section("Speed and memory", speed_blocks(results.bench, shown("speed"))),
            Section("Failed and collapsed runs", _failures(results)),
            Section("Instances and overlap", sections_study.instances(results)),
            Section("Provenance", sections_study.provenance(results)),
            Section("Rebuild", sections_study.rebuild(results)),
        ],
    )


_UNIT = (
    "In agent RL the unit of training is the trajectory: the agent acts over several turns, the "
    "reward is a number for the whole interaction, and the update makes the actions of an episode "
    "more likely when it did better than the others from the same start (turn-level credit weighs "
    "each turn by what followed it). SFT and RFT "
    "imitate turns one by one, and single-turn DPO compares two actions after the same history; "
    "both see the interaction only through the data that was cut out of it. Success is always said "
    "by the task, never by a reward."
)


def _answer(results: Results) -> list[Block]:
    blocks: list[Block] = []
    if len(results.tasks) > 1:
        blocks.append(Paragraph(prose.across_lead(results)))
        blocks.append(Bullets(prose.across_claims(results)))
    for task in results.tasks:
        blocks.append(Paragraph(prose.best_sentence(results, task)))
        blocks.append(Bullets(prose.answer_claims(results, task)))
        told = [luck_sentence(results, task), prose.cost_sentence(results, task)]
        blocks += [Paragraph(text) for text in told if text]
    notes = f"{prose.scope(results)} {prose.reading_note()} {prose.failures_note(results)}"
    return [*blocks, Paragraph(notes)]


def _main_tables(results: Results) -> list[Block]:
    blocks: list[Block] = []
    for task in results.tasks:
        rows = []
        for method in results.methods(task):
            by_seed = summary.rates(results, task, method)
            untrained = list(by_seed) == [UNSEEDED]
            cells = [interval(summary.cell(results, task, method, *where)) for where in COLUMNS]
            fraction = summary.ceiling_fraction(results, task, method)
            rows.append(
                [
                    style.label(method),
                    *cells,
                    DASH if untrained else interval(summary.iqm_cell(results, task, method)),
                    "no seeds" if untrained else str(len(by_seed)),
                    DASH if math.isnan(fraction) else f"{fraction:.0%}",
                ]
            )
        header = [f"{task}: arm", "test, greedy", "test, t = 1", "shifted, greedy"]
        header += ["shifted, t = 1", "test, greedy: IQM", "n", "of ceiling"]
        blocks.append(Table(header, rows))
    episodes = results.runs["episodes"].dropna()
    span = sorted({int(episodes.min()), int(episodes.max())}) if len(episodes) else []
    blocks.append(
        Paragraph(
            f"Mean success over training seeds with its {summary.LEVEL:.0%} t-interval, which is "
            "not cut to [0, 1]. Policies without seeds are one policy each: their bracket is a "
            "Wilson interval over episodes. t = 1: sampled at temperature 1. IQM: interquartile "
            f"mean with a bootstrap interval ({summary.BOOTSTRAP_REPS:,} draws), which covers too "
            "little at few seeds. n: finished runs. Of ceiling: mean greedy success as a share of "
            f"the oracle's. Episodes of each run and split: {' to '.join(map(str, span))}."
        )
    )
    return blocks


def _contrasts(results: Results) -> list[Block]:
    blocks: list[Block] = []
    refusals: list[str] = []
    for task in results.tasks:
        rows = []
        for left, right in summary.all_pairs(results, task):
            cells = []
            for split in ("test", "shifted"):
                c = summary.contrast(results, task, left, right, split)
                stated = c.word not in {"refused", "missing"}
                cells += [interval(c.estimate, signed=True) if stated else DASH, c.word]
                if split == "test":
                    middle = [str(c.estimate.n), number(c.p_value, 4)]
                    if c.word == "refused":
                        refusals.append(c.reason)
            rows.append([style.label(left), style.label(right), *cells[:2], *middle, *cells[2:]])
        header = [f"{task}: left", "right", "left − right, test", "reading", "n", "p, test"]
        blocks.append(Table([*header, "left − right, shifted", "reading"], rows, text_columns=2))
    text = (
        "Greedy decoding, paired by training seed. p is the exact two-sided sign-flip value, not "
        "adjusted for the number of rows, so this table is for exploration. "
        f"Rows with fewer than {summary.MIN_SEEDS} pairs are descriptive and have no p. "
        "The base is one fixed policy that is subtracted from every seed."
    )
    blocks.append(Paragraph(text))
    if refusals:
        reasons = "; ".join(dict.fromkeys("; ".join(refusals).split("; ")))
        blocks.append(Paragraph(f"**Refused** comparisons: {reasons}."))
    return blocks


def _registered(results: Results) -> list[Block]:
    return [
        _optional(results, "contrasts", "the registered contrasts are not evaluated here", 4),
    ]


def _cards(results: Results) -> list[Block]:
    blocks: list[Block] = []
    if results.rewards.cards is None:
        text = "`results/reward_cards.json` is absent: the rewards are not described"
        blocks.append(Missing(f"{text} in the words of the code."))
    cards = reward_cards(results)
    if not cards:
        return [*blocks, Missing("No results file speaks of a reward: there are no cards.")]
    lead = "What each reward says, what it pays for by mistake and what it pays the base:"
    return [*blocks, Paragraph(lead), Cards(cards)]


def _optional(results: Results, name: str, consequence: str, text_columns: int) -> Block:
    """An optional results file as it is, or a line that says that it is absent."""
    frame = results.optional.get(name)
    if frame is None:
        return Missing(f"`results/{name}.csv` is absent: {consequence}.")
    header = [column.replace("_", " ") for column in frame.columns]
    rows = [[str(value) or DASH for value in row] for row in frame.itertuples(index=False)]
    return Table(header, rows, text_columns=text_columns)


def _cost_tables(results: Results) -> list[Block]:
    blocks: list[Block] = []
    for task in results.tasks:
        rows = []
        for method in results.trained(task):
            frame = summary.costs(results, task, method)
            mean = frame.mean()
            deviation = summary.budget_deviation(results, task, method)
            if frame.empty:
                verdict = "no finished run"
            elif math.isnan(deviation):
                verdict = "not recorded"
            elif abs(deviation) <= summary.BUDGET_TOLERANCE:
                verdict = f"yes ({deviation:+.1%})"
            else:
                verdict = f"**NO ({deviation:+.1%})**"
            columns = ("total", "sampled", "trained", "context", "env_steps", "expert_labels")
            values = [count(mean[column]) for column in (*columns, "optimizer_steps")]
            rows.append([style.label(method), *values, verdict, str(len(frame))])
        header = [f"{task}: arm", "total tokens", "sampled", "trained", "context"]
        header += ["env steps", "expert labels", "optimizer steps", "within budget", "n"]
        blocks.append(Table(header, rows))
    blocks.append(
        Paragraph(
            f"Means per run. {prose.budget_sentence(results)} An arm is within the budget when no "
            f"run is more than {summary.BUDGET_TOLERANCE:.0%} off; in brackets, the run that is "
            "furthest off. A comparison with an arm outside is refused."
        )
    )
    return blocks


def _failures(results: Results) -> list[Block]:
    bad = results.runs[results.runs["status"] != "ok"]
    bad = bad.sort_values(["task", "method", "seed"]).drop_duplicates(["task", "method", "seed"])
    if bad.empty:
        return [Paragraph("None: every run finished at or above the success of the base.")]
    rows = []
    for row in bad.itertuples():
        rate = summary.rates(results, row.task, row.method).get(row.seed, math.nan)
        cells = [row.task, style.label(row.method), str(row.seed), row.status]
        stated = row.reason or ("no reason given" if row.status == "failed" else DASH)
        rows.append([*cells, stated, number(rate)])
    header = ["task", "arm", "seed", "status", "reason", "test, greedy"]
    return [
        Table(header, rows, text_columns=5),
        Paragraph("Collapsed: the final success lies below that of the base. Failed: no result."),
    ]
