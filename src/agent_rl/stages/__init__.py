"""One thin module per DVC stage: read the settings, call one function, write the outputs."""

import sys
from types import TracebackType

from agent_rl.errors import INTERRUPTED


def _one_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A stage spends its first seconds importing torch: Ctrl-C is a line then, too."""
    if issubclass(kind, KeyboardInterrupt):
        print(INTERRUPTED, file=sys.stderr)
        raise SystemExit(130)
    sys.__excepthook__(kind, error, trace)


sys.excepthook = _one_line
