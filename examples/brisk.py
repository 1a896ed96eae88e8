"""A reward of one's own: a win is worth less, the more of the allowed turns it took."""

from agent_rl.rewards import reward


@reward("brisk", maximum=1.0)
def brisk(facts, config):
    """r_t = [won at t] (1 - scale (t + 1) / T).

    Target: solve the task, and soon.
    Signal: the task's own verdict and the number of turns taken.
    Encoding: 1 - scale n / T at the winning turn n, 0 at all others.
    """
    share = facts.lengths / facts.horizon
    return facts.won * (1 - config.scale * share)[:, None]
