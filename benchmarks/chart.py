"""The comparison as a picture: a row of bars per figure, ours in colour."""

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.compared import FIGURES, Figure
from benchmarks.report import CHART, Results, number
from benchmarks.systems import OWN

OURS, OTHERS, INK = "#0f766e", "#b8bec6", "#1f2933"


def write(results: Results, directory: Path) -> Path:
    """Writes benchmarks.svg and returns where; text stays text, readable and searchable."""
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "marian_jobs", "font.size": 9, "text.color": INK})
    shown = [figure for figure in FIGURES if figure.key != "idle"]
    figure, axes = plt.subplots(3, 2, figsize=(9, 8), layout="constrained")
    for axis, what in zip(axes.flat, shown, strict=True):
        _bars(axis, results, what)
    figure.suptitle("Postgres queues on one server, fsync on", fontweight="bold")
    path = directory / CHART
    figure.savefig(path, metadata={"Date": None, "Title": "Postgres queues compared"})
    plt.close(figure)
    return path


def _bars(axis: Axes, results: Results, what: Figure) -> None:
    taken = [(s.name, results.comparison.median(s.name, what.key)) for s in results.systems]
    known = sorted(((v, n) for n, v in taken if v is not None), reverse=not what.higher_is_better)
    values, names = [v for v, _ in known], [n for _, n in known]
    bars = axis.barh(names, values, color=[OURS if n == OWN.name else OTHERS for n in names])
    axis.bar_label(bars, [number(v) for v in values], padding=3)
    axis.set_title(
        f"{what.title} ({what.unit}; {'more' if what.higher_is_better else 'less'} is better)", fontsize=9, loc="left"
    )
    axis.margins(x=0.18)
    axis.xaxis.set_visible(False)
    axis.spines[["top", "right", "bottom"]].set_visible(False)
