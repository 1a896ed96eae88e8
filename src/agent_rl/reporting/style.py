"""How every figure looks: one colour, marker and line style per arm, and files that repeat.

The colours are seaborn's ``colorblind`` palette with three additions of clearly different
lightness, because ten arms are more than any hue scale can tell apart; the marker and the line
style carry the same information a second time.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import seaborn as sns
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from agent_rl.files import atomic_file

_CB = sns.color_palette("colorblind", 10).as_hex()

INK = "#1f2328"
MUTED = "#6e7781"
GRID = "#e4e7eb"


@dataclass(frozen=True, slots=True)
class ArmStyle:
    """The fixed look of one arm."""

    label: str
    """Name shown to the reader."""
    color: str
    """Hex colour."""
    marker: str
    """Matplotlib marker."""
    line: str | tuple[int, tuple[float, ...]]
    """Matplotlib line style."""


ARMS: dict[str, ArmStyle] = {
    "random": ArmStyle("random", _CB[7], ".", ":"),
    "oracle": ArmStyle("oracle", "#000000", "*", (0, (5, 1, 1, 1))),
    "base": ArmStyle("base", "#57606a", "o", "--"),
    "sft": ArmStyle("SFT", _CB[1], "s", "-"),
    "rft": ArmStyle("RFT", "#7f5f3a", "D", (0, (4, 1.5))),
    "dpo": ArmStyle("DPO", _CB[2], "^", "-"),
    "dpo_trajectory": ArmStyle("DPO trajectory", "#00664a", "<", (0, (4, 1.5))),
    "grpo_sparse": ArmStyle("GRPO sparse", _CB[9], "o", (0, (3, 1, 1, 1))),
    "grpo_sparse_turn": ArmStyle("GRPO sparse, turn", _CB[6], ">", (0, (1.5, 1))),
    "grpo_dense": ArmStyle("GRPO dense", _CB[0], "v", (0, (4, 1.5))),
    "grpo_shaped": ArmStyle("GRPO shaped", "#332288", "P", "-"),
    "sft_grpo": ArmStyle("SFT + GRPO", _CB[4], "X", "-"),
}
"""Every arm the reports know, in display order."""

UNTRAINED = ("random", "oracle", "base")
"""Arms without a training seed."""

PURE_RL = ("grpo_sparse", "grpo_sparse_turn", "grpo_dense", "grpo_shaped")
"""Arms that learn from their own interaction alone."""

RL = (*PURE_RL, "sft_grpo")
"""Arms that interact while they learn."""

_RC: dict[Any, Any] = {
    # The fonts that come with matplotlib: the same bytes on every machine.
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "agent-rl",
    "svg.fonttype": "path",
    "hatch.linewidth": 0.6,
}

DPI = 150


@contextmanager
def drawing_style() -> Iterator[None]:
    """Draw with the repository's settings, whatever the reader's own matplotlibrc says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC)
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure (inches) on the Agg canvas, outside pyplot's global list."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def label(method: str) -> str:
    """The reader's name of an arm."""
    return ARMS[method].label


def arm_order(methods: set[str]) -> list[str]:
    """The arms among ``methods`` in display order."""
    return [method for method in ARMS if method in methods]


def write_atomic(path: Path, content: bytes) -> None:
    """Write beside the target and rename, so that a reader never sees half a file."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(content)


def save(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Save as SVG and PNG with the same bytes each time: no date, no software version."""
    written = []
    for suffix, metadata in (
        (".svg", {"Date": None, "Creator": None, "Format": None, "Type": None}),
        (".png", {"Software": None}),
    ):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=suffix[1:], dpi=DPI, metadata=metadata)
        path = stem.with_name(stem.name + suffix)
        write_atomic(path, buffer.getvalue())
        written.append(path)
        figure.set_layout_engine("none")  # it stands; working it out again takes half the time
    return written[0], written[1]
