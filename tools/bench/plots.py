"""Plots of docs/benchmarks.md and docs/sizing.md, from the tables: `python -m tools.bench.plots`.

Each is an SVG in docs/images: groups of horizontal bars, each with its figure as the table has it. The
colours follow the reader's choice of light or dark.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
IMAGES: Final = ROOT / "docs" / "images"
PAGE: Final = ROOT / "docs" / "benchmarks.md"

_NUMBER: Final = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
LIGHT: Final = {
    "page": "#ffffff",
    "text": "#1f2328",
    "line": "#d0d7de",
    "bars": ("#0969da", "#bc4c00", "#1a7f37"),
}
DARK: Final = {
    "page": "#0d1117",
    "text": "#e6edf3",
    "line": "#3d444d",
    "bars": ("#4493f8", "#e0823d", "#3fb950"),
}
_WIDTH: Final = 720
_LEFT: Final = 190
_RIGHT: Final = 110
"""Width of the names and of the figures beside the bars."""
_BAR: Final = 15
_GAP: Final = 12


class Plot(NamedTuple):
    """The columns and rows of a table that a plot shows."""

    table: str
    """Name of the table on the page; of several under one name, it is the first one with the columns."""
    title: str
    names: tuple[str, ...]
    """Columns whose cells name a group of bars."""
    bars: Mapping[str, str]
    """By column, the name in the legend. Of several figures in a cell, the first one counts."""
    logarithmic: bool = False
    rows: tuple[str, ...] = ()
    """The first cells of the rows that are shown; none: all rows."""


PLOTS: Final = {
    "latency": Plot(
        "latency",
        "From the sealing event to the snapshot, milliseconds",
        ("duration, ms",),
        {"p50": "p50", "p99": "p99"},
        rows=("sealing event to snapshot, ours", "bare pypaimon commit, call to snapshot"),
    ),
    "visible": Plot(
        "visible",
        "From the completion to the snapshot, median, milliseconds (logarithmic)",
        ("format", "files"),
        {"ours": "Sluicegate", "Java library": "the format's Java library"},
        logarithmic=True,
    ),
    "hook-rates": Plot(
        "hook_rates",
        "Rows a second through the whole hook",
        ("format",),
        {
            "data source, rows/s": "data source",
            "Spark's Parquet sink, rows/s": "Spark's Parquet sink",
            "ForeachBatch, rows/s": "ForeachBatch",
        },
    ),
    "memory": Plot(
        "scale",
        "Memory of one commit above an idle process, MiB",
        ("format", "files"),
        {"memory above idle, peak": "peak"},
    ),
    "commit-time": Plot(
        "scale",
        "Time of one commit, seconds (logarithmic)",
        ("format", "files"),
        {"seconds": "seconds"},
        logarithmic=True,
    ),
}
"""By the name of the file."""


def render(page: str) -> dict[str, str]:
    """Return the text of each plot by the name of its file, from the tables of the page."""
    return {f"{name}.svg": _drawn(plot, _groups(plot, page)) for name, plot in PLOTS.items()}


def write() -> None:
    """Write all plots."""
    for name, text in render(PAGE.read_text(encoding="utf-8")).items():
        (IMAGES / name).write_text(text, encoding="utf-8")


# --- the tables -------------------------------------------------------------------------------------

Group = tuple[str, list[str]]
"""The name of a group of bars, and the figures as the table has them."""


def _groups(plot: Plot, page: str) -> list[Group]:
    """Return the figures of a plot. Raises ValueError if the page has no such table."""
    found = re.search(rf"<!-- table {plot.table} -->\n(.*?)<!-- end -->", page, re.DOTALL)
    wanted = (*plot.names, *plot.bars)
    for head, *rows in _tables(found[1]) if found is not None else ():
        if {*wanted} <= {*head}:
            cells = [[row[head.index(column)] for column in wanted] for row in rows]
            shown = [row for row in cells if not plot.rows or row[0] in plot.rows]
            count = len(plot.names)
            return [(_named(plot, row), [_first(each) for each in row[count:]]) for row in shown]
    raise ValueError(f"docs/benchmarks.md has no table {plot.table} with the columns {', '.join(wanted)}")


def _named(plot: Plot, row: Sequence[str]) -> str:
    """Return the name of a group: a number with the name of its column."""
    pairs = zip(plot.names, row, strict=False)
    return ", ".join(f"{cell} {column}" if cell[:1].isdigit() else cell for column, cell in pairs)


def _tables(text: str) -> list[list[list[str]]]:
    """Return the tables of a part of a page, each as its rows of cells, the head first."""
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if not line.startswith("|"):
            found.append([])
        elif not set(line) <= {*"|- "}:
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
    return [each for each in found if each]


def _first(cell: str) -> str:
    found = _NUMBER.match(cell)
    if found is None:
        raise ValueError(f"{cell!r} begins with no figure")
    return found[0]


# --- the drawing ------------------------------------------------------------------------------------


def _drawn(plot: Plot, groups: Sequence[Group]) -> str:
    values = [[float(each.replace(",", "")) for each in figures] for _, figures in groups]
    scale = _scale([each for row in values for each in row], logarithmic=plot.logarithmic)
    lines, y = ([_legend(plot)], 62) if len(plot.bars) > 1 else ([], 38)
    for (name, figures), row in zip(groups, values, strict=True):
        middle = y + len(row) * _BAR / 2
        lines += _texts(name, middle)
        for number, (figure, value) in enumerate(zip(figures, row, strict=True)):
            length, at = scale(value), y + number * _BAR
            lines.append(
                f'<rect class="b{number}" x="{_LEFT}" y="{at + 1}" width="{length:.1f}" height="{_BAR - 2}"/>'
            )
            lines.append(f'<text x="{_LEFT + length + 6:.1f}" y="{at + 12}">{figure}</text>')
        y += len(row) * _BAR + _GAP
    body = "\n".join(f"  {each}" for each in lines)
    title = escape(plot.title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" role="img" '
        f'font-family="sans-serif" font-size="12">\n  <title>{title}</title>\n  <style>\n'
        f"{_style(LIGHT)}    @media (prefers-color-scheme: dark) {{\n{_style(DARK)}    }}\n  </style>\n"
        f'  <rect class="page" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{y - 1}" rx="8"/>\n'
        f'  <text x="16" y="24" font-size="14" font-weight="bold">{title}</text>\n{body}\n</svg>\n'
    )


def _style(colours: Mapping[str, str | Sequence[str]]) -> str:
    bars = "".join(f"    .b{number} {{ fill: {each} }}\n" for number, each in enumerate(colours["bars"]))
    return (
        f"    .page {{ fill: {colours['page']}; stroke: {colours['line']} }}\n"
        f"    text {{ fill: {colours['text']} }}\n{bars}"
    )


def _legend(plot: Plot) -> str:
    parts, x = [], 16
    for number, name in enumerate(plot.bars.values()):
        parts.append(f'<rect class="b{number}" x="{x}" y="37" width="11" height="11"/>')
        parts.append(f'<text x="{x + 16}" y="47">{escape(name)}</text>')
        x += 36 + 7 * len(name)
    return "".join(parts)


def _texts(name: str, middle: float) -> list[str]:
    """Return the name of a group beside its bars, in two lines if it is long."""
    first, comma, rest = name.partition(", ") if len(name) > 24 else (name, "", "")
    rows = [first + comma.rstrip(), *([rest] if rest else [])]
    top = middle + 4 - 7 * (len(rows) - 1)
    return [
        f'<text x="{_LEFT - 8}" y="{top + 14 * number:.1f}" text-anchor="end">{escape(each)}</text>'
        for number, each in enumerate(rows)
    ]


def _scale(values: Sequence[float], *, logarithmic: bool) -> Callable[[float], float]:
    """Return the function of a figure's length."""
    room = _WIDTH - _LEFT - _RIGHT
    if not logarithmic:
        return lambda value: room * value / max(values)
    low = 10 ** math.floor(math.log10(min(values)))
    if low == min(values):
        low /= 10
    whole = math.log10(max(values) / low)
    return lambda value: room * math.log10(value / low) / whole


if __name__ == "__main__":
    write()
