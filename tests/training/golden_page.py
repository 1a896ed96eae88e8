"""The tables and sums of docs/golden.md, printed from the calculation in golden.py.

``python -m tests.training.golden_page`` prints them all, each under its name on the page.
"""

from tests.training import golden
from tests.training.golden import CREDITS, EPISODES, LOSSES, NORMALISATIONS, TOKENS, Setting

PAIR = EPISODES[:2]
WORKED = (CREDITS[0], "group")


def number(value):
    return f"{value + 0.0:.6f}" if abs(value) >= 5e-7 else "0.000000"


def table(header, rows):
    """Markdown; floats to 6 digits."""
    cells = [[number(c) if isinstance(c, float) else str(c) for c in row] for row in rows]
    lines = [header, ["---"] * len(header), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def code(lines):
    return "\n".join(["```text", *lines, "```"])


def settings():
    return table(
        ["k", "gamma", "epsilon", "clip", "token budget of an episode", "turns allowed"],
        [
            [
                golden.SCALE, 1.0, golden.EPSILON, golden.CLIP, golden.MAX_TOKENS, golden.HORIZON,
            ]
        ],
    )  # fmt: skip


def ratios():
    pairs = [
        (f"{e.name} `{token.text}`", ratio)
        for e in EPISODES
        for token, ratio in zip(golden.sampled_of(e), e.ratios, strict=True)
    ]
    return table(["", *(name for name, _ in pairs)], [["rho", *(ratio for _, ratio in pairs)]])


def model(weights=golden.WEIGHTS):
    rows = []
    for before in TOKENS:
        p = golden.probabilities(golden.logits(weights)[before], 1.0)
        w = golden.logits(weights)[before]
        rows.append([f"`{before}`", *p, *w])
    return table(["after", *(f"p(`{t}`)" for t in TOKENS), *(f"W[`{t}`]" for t in TOKENS)], rows)


def episodes(group):
    rows = []
    for episode in (e for e in EPISODES if e.name[0] == group):
        for place, token in enumerate(golden.tokens_of(episode)):
            sampled = token.turn >= 0
            row = [episode.name, place, f"`{token.text}`", "agent" if sampled else "environment"]
            if sampled:
                value = golden.logprob(golden.logits(golden.WEIGHTS), token, 1.0)
                rows.append([*row, 1, token.turn + 1, f"`{token.before}`", value])
            else:
                rows.append([*row, 0, "", "", ""])
    return table(
        ["episode", "place", "token", "written by", "mask", "turn", "after", "log p"], rows
    )


def rewards():
    rows = []
    for episode in EPISODES:
        for turn in range(golden.HORIZON):
            rows.append(
                [
                    episode.name, turn + 1, episode.distances[turn], episode.distances[turn + 1],
                    golden.potential(episode, turn), golden.potential(episode, turn + 1),
                    *(float(golden.rewards(episode, r)[turn]) for r in ("sparse", "shaped")),
                ]
            )  # fmt: skip
    return table(
        ["episode", "turn", "d before", "d after", "Phi before", "Phi after", "sparse", "shaped"],
        rows,
    )


def per_turn(values):
    return [value for episode in EPISODES for value in values[episode.name]]


TURNS = [f"{e.name} turn {t + 1}" for e in EPISODES for t in range(golden.HORIZON)]


def returns():
    rows = []
    for credit in CREDITS:
        own = {e.name: [float(x) for x in golden.returns(e, credit)] for e in EPISODES}
        rows.append([credit.label, "G", *per_turn(own)])
        rows.append([credit.label, "G - mean", *per_turn(golden.differences(EPISODES, credit))])
    return table(["credit", "", *TURNS], rows)


def spreads():
    rows = []
    for credit in CREDITS:
        apart = golden.differences(EPISODES, credit)
        rows.append([credit.label, *(golden.spread(apart, group) for group in ("A", "B", ""))])
    return table(["credit", "group A", "group B", "batch"], rows)


def advantages():
    rows = []
    for credit in CREDITS:
        for normalisation in NORMALISATIONS:
            values = golden.advantages(EPISODES, credit, normalisation)
            rows.append([credit.label, normalisation, *per_turn(values)])
    return table(["credit", "normalisation", *TURNS], rows)


def parts(credit, normalisation, setting, batch=EPISODES):
    return golden.terms(batch, golden.advantages(batch, credit, normalisation), setting)


def loss_sums():
    """The three losses of the worked case, with the numbers put in."""
    values = golden.advantages(PAIR, *WORKED)
    lines = [
        f"A(A1) = 0.5 / ({number(golden.spread(golden.differences(PAIR, WORKED[0]), 'A'))}"
        f" + 0.0001) = {number(values['A1'][0])}",
        f"A(A2) = {number(values['A2'][0])}",
    ]
    for loss in LOSSES:
        terms = parts(*WORKED, Setting(loss))
        sums = " ".join(f"{'-' if t.loss < 0 else '+'} {number(abs(t.loss))}" for t in terms)
        one, two = sums.split()[:6], sums.split()[6:]
        lengths = len(one) // 2, len(two) // 2
        if loss == "dapo":
            text = f"({sums}) / {len(terms)}"
        elif loss == "grpo":
            text = f"(({' '.join(one)}) / {lengths[0]} + ({' '.join(two)}) / {lengths[1]}) / 2"
        else:
            text = f"({sums}) / (2 x {golden.MAX_TOKENS})"
        lines.append(f"{loss:7} L = {text} = {number(golden.total(terms))}")
    return code(lines)


def losses(moved):
    rows = []
    for credit in CREDITS:
        for normalisation in NORMALISATIONS:
            found = [
                golden.total(parts(credit, normalisation, Setting(loss, moved=moved)))
                for loss in LOSSES
            ]
            rows.append([credit.label, normalisation, *found])
    return table(["credit", "normalisation", *LOSSES], rows)


def one_token():
    """The softmax derivative of the first sampled token, number by number."""
    term = parts(*WORKED, Setting())[0]
    p = golden.probabilities(golden.logits(golden.WEIGHTS)[term.token.before], 1.0)
    hit = [float(t == term.token.text) for t in TOKENS]
    return code(
        [
            f"dL / d log p = -(1 / N) A     = {number(term.slope)}",
            f"onehot                        = {' '.join(number(v) for v in hit)}",
            f"p                             = {' '.join(number(v) for v in p)}",
            "d log p / dW = onehot - p     = "
            + " ".join(number(h - v) for h, v in zip(hit, p, strict=True)),
            "product                       = "
            + " ".join(number(v) for v in golden.contribution(term, 1.0)),
        ]
    )


def contributions():
    """The gradient of the worked case: a line per sampled token, then the sums."""
    terms = parts(*WORKED, Setting())
    rows = [
        [
            t.episode, f"`{t.token.text}`", f"`{t.token.before}`", t.slope,
            *golden.contribution(t, 1.0),
        ]
        for t in terms
    ]  # fmt: skip
    for before, row in golden.gradient(terms, 1.0).items():
        rows.append(["sum", "", f"`{before}`", "", *row])
    return table(
        ["episode", "token", "row of W", "dL / d log p", *(f"dL/dW[`{t}`]" for t in TOKENS)], rows
    )


def clipping():
    rows = []
    for t in parts(*WORKED, Setting(moved=True)):
        clipped = min(max(t.ratio, 1 - golden.CLIP), 1 + golden.CLIP)
        rows.append(
            [
                t.episode, f"`{t.token.text}`", t.advantage, t.ratio, t.ratio * t.advantage,
                clipped * t.advantage, t.loss, "yes" if t.slope else "no",
            ]
        )  # fmt: skip
    header = ["episode", "token", "A", "rho", "rho A", "clipped rho A", "-min", "learns"]
    return table(header, rows)


VARIANTS = {
    "on-policy": {},
    "policy has moved": {"moved": True},
    "temperature 0.5": {"temperature": 0.5},
    "beta 0.3": {"beta": 0.3},
    "moved, one ratio per episode": {"moved": True, "sequence": True},
    "moved, one ratio per episode, clip 0.03": {"moved": True, "sequence": True, "clip": 0.03},
}


def variants():
    rows = []
    for name, changes in VARIANTS.items():
        for loss in LOSSES:
            setting = Setting(loss, **changes)
            terms = parts(*WORKED, setting)
            slopes = golden.gradient(terms, setting.temperature)
            rows.append([name, loss, golden.total(terms), *slopes["?"], *slopes["L"]])
    return table(["case", "loss", "L", *SLOPES], rows)


SLOPES = [f"`{before}{t}`" for before in "?L" for t in TOKENS]


def gradients(moved):
    rows = []
    for credit in CREDITS:
        for normalisation in NORMALISATIONS:
            for loss in LOSSES:
                found = golden.gradient(
                    parts(credit, normalisation, Setting(loss, moved=moved)), 1.0
                )
                rows.append([credit.label, normalisation, loss, *found["?"], *found["L"]])
    return table(["credit", "normalisation", "loss", *SLOPES], rows)


BLOCKS = {
    "Settings": settings,
    "The model": model,
    "Episodes of group A": lambda: episodes("A"),
    "Episodes of group B": lambda: episodes("B"),
    "Rewards": rewards,
    "Returns": returns,
    "Spreads": spreads,
    "Advantages": advantages,
    "Three losses": loss_sums,
    "Losses": lambda: losses(moved=False),
    "One token": one_token,
    "A gradient": contributions,
    "Ratios": ratios,
    "The clip": clipping,
    "Losses after a move": lambda: losses(moved=True),
    "The reference": lambda: model(golden.REFERENCE),
    "Temperature, reference, sequence ratio": variants,
    "Gradients": lambda: gradients(moved=False),
    "Gradients after a move": lambda: gradients(moved=True),
}
"""Name on the page -> the block under it."""


def blocks_of(page):
    """Name -> block, for every table and sum on a page: ``**Name.**`` stands in front of each."""
    found, name, lines, open_code = {}, "", [], False
    for line in [*page.splitlines(), ""]:
        inside = open_code or line.startswith("|") or line.startswith("```")
        if line.startswith("```"):
            open_code = not open_code
        if inside:
            lines.append(line)
        elif lines:
            assert name and name not in found, f"a block without a name of its own after {name!r}"
            found[name], lines = "\n".join(lines), []
        if line.startswith("**") and ".**" in line:
            name = line[2 : line.index(".**")]
    return found


if __name__ == "__main__":
    for title, block in BLOCKS.items():
        print(f"**{title}.**\n\n{block()}\n")
