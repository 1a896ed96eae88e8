"""Blocks of a report as plain text."""

from agent_rl.reporting.document import Bullets, Missing, Paragraph, Table


def lines_of(blocks) -> str:
    lines = []
    for block in blocks:
        if isinstance(block, Table):
            lines += [" | ".join(row) for row in [block.header, *block.rows]]
        elif isinstance(block, Bullets):
            lines += block.lines
        elif isinstance(block, Paragraph | Missing):
            lines.append(block.text)
    return "\n".join(lines)
