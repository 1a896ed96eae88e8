"""Questions over a real SQLite database, answered by calling tools over several turns."""

from agent_rl.tasks.sqlqa.task import SqlQATask

__all__ = ["SqlQATask"]
