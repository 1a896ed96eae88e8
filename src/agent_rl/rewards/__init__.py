"""Numbers from trajectories: what an episode is worth (``specs``), and to whom (``credit``).

Everything here is a pure function of facts that the task recorded; only the optional judge asks a
server. Success is one of those facts; no reward decides it.
"""

from agent_rl.rewards.credit import advantages, dead_groups, returns, returns_to_go
from agent_rl.rewards.facts import EpisodeFacts, episode_facts
from agent_rl.rewards.rubric import CRITERIA, criterion
from agent_rl.rewards.specs import JUDGE, REWARDS, Reward, find_reward, reward, rewards, spec

__all__ = [
    "CRITERIA",
    "JUDGE",
    "REWARDS",
    "EpisodeFacts",
    "Reward",
    "advantages",
    "criterion",
    "dead_groups",
    "episode_facts",
    "find_reward",
    "returns",
    "returns_to_go",
    "reward",
    "rewards",
    "spec",
]
