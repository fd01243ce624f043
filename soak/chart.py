"""The samples as a picture: memory, connections and handles, sizes, dead rows."""

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from soak.sample import Samples

INK = "#1f2933"
PANELS = (
    ("Memory, MiB", ["memory: "]),
    ("Connections to the database", ["connections"]),
    ("Open files", ["open files: "]),
    ("Table and indexes, MiB", ["table", "indexes"]),
    ("Rows", ["rows", "dead rows", "due and waiting"]),
    ("Threads", ["threads: "]),
)


def write(samples: Samples, title: str, path: Path) -> None:
    """Writes the chart as SVG; the half that is judged is shaded."""
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "marian_jobs", "font.size": 8, "text.color": INK})
    figure, axes = plt.subplots(3, 2, figsize=(10, 9), layout="constrained", sharex=True)
    for axis, (name, wanted) in zip(axes.flat, PANELS, strict=True):
        _panel(axis, samples, name, wanted)
    figure.suptitle(title, fontweight="bold")
    figure.savefig(path, metadata={"Date": None, "Title": title})
    plt.close(figure)


def _panel(axis: Axes, samples: Samples, title: str, wanted: list[str]) -> None:
    minutes = [at / 60 for at in samples.at]
    for series in samples.series:
        for name in wanted:
            if series.name == name or (name.endswith(" ") and series.name.startswith(name)):
                axis.plot(minutes, series.values, label=series.name.removeprefix(name) or name, linewidth=1)
    axis.axvspan((minutes[0] + minutes[-1]) / 2, minutes[-1], color="#0f766e", alpha=0.06)
    axis.set_title(title, loc="left", fontsize=9)
    axis.set_ylim(bottom=0)
    axis.spines[["top", "right"]].set_visible(False)
    if len(axis.lines) > 1:
        axis.legend(fontsize=7, frameon=False, ncols=2)
    if axis.get_subplotspec() is not None and axis.get_subplotspec().is_last_row():  # type: ignore[union-attr]
        axis.set_xlabel("minutes")
