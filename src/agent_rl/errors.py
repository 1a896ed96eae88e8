"""The one exception that a person is meant to read."""


class UserError(Exception):
    """Bad input: what is wrong, where, the value, and what to do, in one line.

    Entry points print the message and exit with code 2. Anything else that escapes is a bug and
    keeps its traceback.
    """
