"""Tables, figures, Markdown and HTML, drawn from the files under ``results/`` alone.

Nothing here trains, plays an episode or imports torch: a report can be rebuilt from a checkout
on a machine that has none of that.
"""

from agent_rl.reporting.bench import performance
from agent_rl.reporting.prose import headline
from agent_rl.reporting.report import build_report

__all__ = ["build_report", "headline", "performance"]
