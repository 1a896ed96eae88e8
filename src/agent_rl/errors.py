"""The one exception that a person is meant to read, and what else is told in one line."""

INTERRUPTED = "interrupted: nothing was half written; run the same command again"
"""What a person reads who pressed Ctrl-C."""


class UserError(Exception):
    """Bad input: what is wrong, where, the value, and what to do, in one line.

    Entry points print the message and exit with code 2. Anything else that escapes is a bug and
    keeps its traceback.
    """


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out; torch raises no MemoryError for that."""
    told = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in told)
    )
