"""The actions as functions, for chat models that call tools."""

from agent_rl.tasks.base import Parameter, Tool

_ANSWER = Tool(
    "answer",
    "Answer the question. A wrong answer ends the episode.",
    (Parameter("value", "string", "the value that was asked for"),),
)

TOOLS = {
    "sql": (
        Tool("tables", "List the tables of the database."),
        Tool(
            "schema",
            "List the columns of a table.",
            (Parameter("table", "string", "name of the table"),),
        ),
        Tool(
            "sql",
            "Run a query on one table of the SQLite database.",
            (
                Parameter(
                    "query",
                    "string",
                    "a SELECT statement, for example: select team from people where name = 'kai'",
                ),
            ),
        ),
        _ANSWER,
    ),
    "search": (
        Tool(
            "search",
            "Numbers and subjects of the mails that hold all the words.",
            (Parameter("words", "string", "words to search for, separated by blanks"),),
        ),
        Tool("read", "Read one mail.", (Parameter("number", "integer", "number of the mail"),)),
        _ANSWER,
    ),
}
"""Tools by mode."""
