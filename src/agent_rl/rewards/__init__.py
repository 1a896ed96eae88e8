"""Numbers from trajectories: what an episode is worth (``specs``), and to whom (``credit``).

Everything here is a pure function of facts that the task recorded. Success is one of those facts;
no reward decides it.
"""

from agent_rl.rewards.credit import advantages
from agent_rl.rewards.facts import EpisodeFacts, episode_facts
from agent_rl.rewards.specs import REWARDS, rewards

__all__ = ["REWARDS", "EpisodeFacts", "advantages", "episode_facts", "rewards"]
