"""Results files with one wrong value, and the one line that reading them must give."""

import pytest

from agent_rl.errors import UserError
from agent_rl.reporting.tables import load_results


def change(column, value, row=0):
    def apply(frame):
        frame.loc[frame.index[row], column] = value

    return apply


def failure(results) -> str:
    with pytest.raises(UserError) as caught:
        load_results(results)
    message = str(caught.value)
    assert "\n" not in message
    return message
