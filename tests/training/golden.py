"""The golden case: GRPO over four tiny episodes, worked out with plain numbers.

Nothing here knows the package, torch or numpy: every formula is written out as on paper, so that
the trainer can be held to numbers that it had no part in. ``docs/golden.md`` tells the same story
in words. The language has four tokens and the model is a table: the logits of the next token
depend on the previous token only.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt

TOKENS = "?LR."
WEIGHTS = {"?": (1, 4, 3, 2), "L": (1, 2, 2, 5), "R": (2, 1, 3, 4), ".": (4, 3, 2, 1)}
"""Ten times the probability of each next token; the logits W are the logarithms of these."""
REFERENCE = {"?": (2, 3, 3, 2), "L": (1, 3, 2, 4), "R": (1, 1, 4, 4), ".": (3, 3, 2, 2)}
"""The same of the policy that the KL term pulls towards."""

HORIZON = 2
SCALE = 0.5
EPSILON = 1e-4
CLIP = 0.2
MAX_TOKENS = 10
LOSSES = ("dapo", "grpo", "dr_grpo")
NORMALISATIONS = ("group", "batch", "none")

Table = dict[str, list[float]]
"""Previous token -> a number for each next token, in the order of TOKENS."""


@dataclass(frozen=True)
class Episode:
    name: str
    """Its group, and its number in the group."""
    blocks: tuple[str, ...]
    """Tokens in turns: the environment's, the agent's, the environment's, the agent's."""
    distances: tuple[int, ...]
    """Steps to the goal before the first turn and after each turn; 0 is success."""
    ratios: tuple[float, ...]
    """Of every sampled token, p / p_old in the case where the policy has moved since."""


EPISODES = (
    Episode("A1", ("?", "L.", "R?", "R"), (2, 1, 0), (1.5, 1.1, 0.7)),
    Episode("A2", ("?", "R", ".?", "."), (2, 2, 1), (1.5, 0.7)),
    Episode("B1", (".?", "LL", "..R?", "."), (2, 1, 2), (1.3, 0.9, 0.95)),
    Episode("B2", (".?", ".", "?", "L."), (2, 3, 3), (0.75, 1.25, 1.0)),
)


@dataclass(frozen=True)
class Token:
    """One token of an episode."""

    text: str
    before: str
    """The token in front of it; empty for the first."""
    turn: int
    """Which turn, from 0, when the agent sampled it; -1 when the environment wrote it."""


def tokens_of(episode: Episode) -> list[Token]:
    result: list[Token] = []
    for number, block in enumerate(episode.blocks):
        for text in block:
            before = result[-1].text if result else ""
            result.append(Token(text, before, number // 2 if number % 2 else -1))
    return result


def sampled_of(episode: Episode) -> list[Token]:
    return [token for token in tokens_of(episode) if token.turn >= 0]


def logits(weights: dict[str, tuple[int, ...]]) -> Table:
    return {before: [log(weight) for weight in row] for before, row in weights.items()}


def probabilities(row: list[float], temperature: float) -> list[float]:
    """Softmax of one row of logits."""
    raised = [exp(value / temperature) for value in row]
    return [value / sum(raised) for value in raised]


def logprob(table: Table, token: Token, temperature: float) -> float:
    row = probabilities(table[token.before], temperature)
    return log(row[TOKENS.index(token.text)])


# Rewards and advantages: a number for every turn of every episode.


@dataclass(frozen=True)
class Credit:
    label: str
    name: str
    reward: str
    lam: float


CREDITS = (
    Credit("trajectory, sparse", "trajectory", "sparse", 1.0),
    Credit("turn, shaped", "turn", "shaped", 1.0),
    Credit("turn, shaped, lambda 0.5", "turn", "shaped", 0.5),
)


def potential(episode: Episode, time: int) -> float:
    """Phi before turn ``time``: minus the share of the way that is left, 0 once all is over."""
    over = time == len(episode.distances) - 1
    return 0.0 if over else -episode.distances[time] / episode.distances[0]


def rewards(episode: Episode, name: str, gamma: float = 1.0) -> list[float]:
    result = []
    for turn in range(len(episode.distances) - 1):
        gain = gamma * potential(episode, turn + 1) - potential(episode, turn)
        won = episode.distances[turn + 1] == 0
        result.append(won + (SCALE * gain if name == "shaped" else 0.0))
    return result


def returns(episode: Episode, credit: Credit, gamma: float = 1.0) -> list[float]:
    earned = rewards(episode, credit.reward, gamma)
    turns = range(len(earned))
    if credit.name == "trajectory":
        return [sum(gamma**k * earned[k] for k in turns)] * len(earned)
    return [
        sum((gamma * credit.lam) ** (k - turn) * earned[k] for k in turns if k >= turn)
        for turn in turns
    ]


def differences(
    episodes: tuple[Episode, ...], credit: Credit, gamma: float = 1.0
) -> dict[str, list[float]]:
    """Return minus the mean return of the group at the same turn (all live for two turns)."""
    result = {}
    for one in episodes:
        group = [other for other in episodes if other.name[0] == one.name[0]]
        means = [
            sum(returns(other, credit, gamma)[turn] for other in group) / len(group)
            for turn in range(HORIZON)
        ]
        own = returns(one, credit, gamma)
        result[one.name] = [own[turn] - means[turn] for turn in range(HORIZON)]
    return result


def spread(apart: dict[str, list[float]], group: str) -> float:
    """Root of the mean square over the members of a group; "" means over all groups."""
    squares = [
        sum(value**2 for value in values) / len(values)
        for name, values in apart.items()
        if name.startswith(group)
    ]
    return sqrt(sum(squares) / len(squares))


def advantages(
    episodes: tuple[Episode, ...], credit: Credit, normalisation: str, gamma: float = 1.0
) -> dict[str, list[float]]:
    apart = differences(episodes, credit, gamma)
    result = {}
    for name, values in apart.items():
        if normalisation == "none":
            scale = 1.0
        elif normalisation == "batch":
            scale = spread(apart, "") + EPSILON
        else:
            scale = spread(apart, name[0]) + EPSILON
        result[name] = [value / scale for value in values]
    return result


def living(episodes: tuple[Episode, ...], values: dict[str, list[float]]) -> tuple[Episode, ...]:
    """Episodes of groups in which some advantage is not 0; the others are left out altogether."""
    alive = {name[0] for name, row in values.items() if any(abs(v) > 1e-12 for v in row)}
    return tuple(episode for episode in episodes if episode.name[0] in alive)


# The loss, token by token, and its derivative.


@dataclass(frozen=True)
class Setting:
    loss: str = "dapo"
    temperature: float = 1.0
    moved: bool = False
    """Whether p_old differs from p, by the ratios of the episodes."""
    clip: float = CLIP
    beta: float = 0.0
    sequence: bool = False
    """One ratio per episode: the geometric mean of those of its tokens."""


@dataclass(frozen=True)
class Term:
    """What one sampled token adds to the loss."""

    episode: str
    token: Token
    advantage: float
    ratio: float
    weight: float
    """1 / N and its relatives: by what the token's own loss is multiplied."""
    loss: float
    """-min(ratio A, clipped ratio A) + beta KL."""
    slope: float
    """Derivative of the whole loss by the log-probability of this token."""


def old_logprobs(episode: Episode, setting: Setting) -> list[float]:
    """Log-probabilities that were stored when the tokens were sampled."""
    table = logits(WEIGHTS)
    return [
        logprob(table, token, setting.temperature) - (log(ratio) if setting.moved else 0.0)
        for token, ratio in zip(sampled_of(episode), episode.ratios, strict=True)
    ]


def weight_of(loss: str, episode: Episode, batch: tuple[Episode, ...]) -> float:
    if loss == "dapo":  # every token counts the same
        return 1 / sum(len(sampled_of(other)) for other in batch)
    if loss == "grpo":  # every episode counts the same
        return 1 / len(sampled_of(episode)) / len(batch)
    return 1 / (len(batch) * MAX_TOKENS)  # dr_grpo: a constant


def terms_of(
    episode: Episode, row: list[float], weight: float, setting: Setting, table: Table
) -> list[Term]:
    tokens, old = sampled_of(episode), old_logprobs(episode, setting)
    new = [logprob(table, token, setting.temperature) for token in tokens]
    ratios = [exp(n - o) for n, o in zip(new, old, strict=True)]
    if setting.sequence:
        whole = exp(sum(n - o for n, o in zip(new, old, strict=True)) / len(tokens))
        ratios = [whole] * len(tokens)
    losses, slopes = [], []
    for token, ratio in zip(tokens, ratios, strict=True):
        advantage = row[token.turn]
        clipped = min(max(ratio, 1 - setting.clip), 1 + setting.clip)
        losses.append(-min(ratio * advantage, clipped * advantage))
        # The clipped branch is a constant; the other one is ratio A, with derivative ratio A.
        learns = ratio * advantage <= clipped * advantage
        slopes.append(-ratio * advantage if learns else 0.0)
    if setting.sequence:  # the one ratio of all tokens moves with each of them by 1 / their number
        slopes = [sum(slopes) / len(tokens)] * len(tokens)
    reference = logits(REFERENCE)
    result = []
    for i, token in enumerate(tokens):
        gap = logprob(reference, token, setting.temperature) - new[i]
        loss = losses[i] + setting.beta * (exp(gap) - gap - 1)
        slope = slopes[i] + setting.beta * (1 - exp(gap))
        result.append(
            Term(episode.name, token, row[token.turn], ratios[i], weight, loss, weight * slope)
        )
    return result


def terms(
    episodes: tuple[Episode, ...],
    values: dict[str, list[float]],
    setting: Setting,
    table: Table | None = None,
) -> list[Term]:
    batch = living(episodes, values)
    return [
        term
        for episode in batch
        for term in terms_of(
            episode,
            values[episode.name],
            weight_of(setting.loss, episode, batch),
            setting,
            table or logits(WEIGHTS),
        )
    ]


def total(parts: list[Term]) -> float:
    return sum(term.weight * term.loss for term in parts)


def contribution(term: Term, temperature: float) -> list[float]:
    """What one token adds to row ``before`` of dL/dW: d log p(token) / dW = (onehot - p) / T."""
    row = probabilities(logits(WEIGHTS)[term.token.before], temperature)
    hit = TOKENS.index(term.token.text)
    return [term.slope * ((i == hit) - p) / temperature for i, p in enumerate(row)]


def gradient(parts: list[Term], temperature: float) -> Table:
    result: Table = {before: [0.0] * len(TOKENS) for before in TOKENS}
    for term in parts:
        row = result[term.token.before]
        for i, value in enumerate(contribution(term, temperature)):
            row[i] += value
    return result
