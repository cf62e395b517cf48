"""Makes the pictures of the documentation: diagrams from docs/pictures/*.dot, plots from docs/figures/*.csv, and the
timeline of the logs of collectives in docs/figures/timeline.json.

    pictures.py OUT [NAME...]

Writes OUT/<name>.svg for each source, or for those that are named. The README shows two pictures, which are committed in
docs/pictures because its readers see it without a build: `make pictures` writes them again.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
# Plots: what the bars measure, and the value that they are compared with.
PLOTS = {
    "small-operators": ("time of fake / time of CPU torch (less is better)", 1),
    "large-operators": ("time of fake / time of CPU torch (less is better)", 1),
    "products": ("GFLOP/s of fake / GFLOP/s of CPU torch (more is better)", 1),
    "models": ("ratio of times of models, forward and training (less is better)", 1),
    "training": ("time of a training step: fake / CPU torch (less is better)", 1),
    "lazy": ("time of lazy mode / time of what it is compared with (less is better)", 1),
    "lazy-recording": ("microseconds to record one operator on 16 floats (less is better)", None),
    "opencl": ("time of opencl / time of what it is compared with (less is better)", 1),
    "collectives": ("time on fake / time of Gloo on CPU tensors (less is better)", 1),
    "h200": ("time of the cuda plugin / time of torch.cuda 2.11 (less is better)", 1),
}
README = ("architecture", "training")
TIMELINE = "timeline"


def rows(name):
    """Returns the rows of a file of figures: dictionaries with `low` and `high`, and `target` or None, as numbers."""
    with open(DOCS / "figures" / f"{name}.csv", encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    for row in found:
        for key in ("low", "high", "target"):
            row[key] = float(row[key]) if row[key] else None
        if row["low"] > row["high"]:
            raise ValueError(f"{name}.csv: {row['what']}: low {row['low']} is more than high {row['high']}")
    return found


def plot(name, out):
    """Writes a horizontal bar from low to high for each row, and a mark for its target."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": name, "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    label, baseline = PLOTS[name]
    found = rows(name)
    labels = [textwrap.fill(row["what"], 40) for row in reversed(found)]
    figure, axes = pyplot.subplots(figsize=(7.5, 0.9 + 0.2 * len("\n".join(labels).split("\n")) + 0.14 * len(labels)), layout="constrained")
    for place, row in enumerate(reversed(found)):
        # A single value is a narrow bar.
        axes.barh(place, max(row["high"] - row["low"], 0.01), left=row["low"], height=0.55, color="#2a6f97")
        if row["target"] is not None:
            axes.plot([row["target"]] * 2, [place - 0.4, place + 0.4], color="#c1121f", linewidth=2)
    if baseline is not None:
        axes.axvline(baseline, color="#555555", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(found)), labels)
    axes.set_xlim(left=0)
    figure.suptitle(f"{label}; red: target" if any(row["target"] for row in found) else label, fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(out, metadata={"Date": None}, facecolor="white")
    pyplot.close(figure)


def diagram(name, out):
    """Writes a diagram by Graphviz."""
    done = subprocess.run(["dot", "-Tsvg", DOCS / "pictures" / f"{name}.dot", "-o", out], capture_output=True, text=True)
    if done.returncode or done.stderr:
        raise RuntimeError(f"dot: {name}.dot: {done.stderr or done.returncode}")


def timeline(name, out):
    """Writes the picture that `torch_backend.distributed.plot` writes of the logs of a run, by rank."""
    from torch_backend.distributed import _timeline

    logs = json.loads((DOCS / "figures" / f"{name}.json").read_text(encoding="utf-8"))
    out.write_text(_timeline.timeline({int(rank): log for rank, log in logs.items()}), encoding="utf-8")


def make(out, names=()):
    """Writes the pictures into the folder `out`, and returns their names."""
    diagrams = [path.stem for path in sorted((DOCS / "pictures").glob("*.dot"))]
    if missing := set(PLOTS) ^ {path.stem for path in (DOCS / "figures").glob("*.csv")}:
        raise ValueError(f"docs/figures and PLOTS of pictures.py differ: {sorted(missing)}")
    chosen = names or [*diagrams, *PLOTS, TIMELINE]
    for name in chosen:
        writer = diagram if name in diagrams else timeline if name == TIMELINE else plot
        writer(name, out / f"{name}.svg")
    return chosen


def words(path):
    """Returns the text of a picture: what two versions of Graphviz or matplotlib write alike."""
    return re.findall(r"<text[^>]*>([^<]+)</text>", path.read_text(encoding="utf-8"))


def main() -> int:
    """Writes the pictures."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    names = README if sys.argv[2:] == ["--readme"] else sys.argv[2:]
    print(f"{out}: {len(make(out, names))} pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
