"""Rewrite the tables of docs/benchmarks.md from the results of `python -m tools.bench all`.

    python -m tools.bench.tables

A table stands between two markers, `<!-- table NAME -->` and `<!-- end -->`. Nothing between them is written
by hand. A table without a new result stays as it is.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

from tools.bench.catalogue import BENCHMARKS, RESULTS, Benchmark
from tools.bench.cells import Tables
from tools.bench.commit_tables import COMMIT_TABLES
from tools.bench.fault_tables import FAULT_TABLES, faults, ways_in
from tools.bench.plots import write as write_plots
from tools.bench.writer_tables import WRITER_TABLES

DOCS: Final = Path(__file__).parents[2] / "docs" / "benchmarks.md"
_TABLE: Final = re.compile(r"<!-- table (\w+) -->\n.*?<!-- end -->", re.DOTALL)


MAKERS: Final[Tables] = {
    **COMMIT_TABLES,
    **WRITER_TABLES,
    **FAULT_TABLES,
    **{each.name: faults for each in BENCHMARKS if each.module == "faults"},
    **{each.name: ways_in for each in BENCHMARKS if each.module == "ways_in"},
}


def load(name: str) -> dict[str, Any] | None:
    """Read a result, None if there is none."""
    path = RESULTS / f"{name}.json"
    found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return found


def _origin(benchmark: Benchmark, result: dict[str, Any]) -> str:
    """Format where a table comes from: command, commit and load."""
    said = f"`{result['command']}`, commit `{result['commit']}`, {result['date']}, {result['seconds']} s. "
    said += f"Of {result['cores']} cores, other processes used {result['others_before']} before and "
    said += f"{result['others_during']} during the run; load {result['load_before']} before, "
    said += f"{result['load_after']} after."
    if not result["quiet"]:
        said += " **The machine was busy.**"
    if result["command"] != f"python {' '.join(benchmark.command())}":
        said += f" **A trial, not the full run (`python {' '.join(benchmark.command())}`).**"
    return said


def render(benchmark: Benchmark) -> str:
    """Format a benchmark's table with its origin."""
    result = load(benchmark.name)
    if result is None:
        return f"Not measured: `python {' '.join(benchmark.command())}`."
    return f"{_origin(benchmark, result)}\n\n{MAKERS[benchmark.name](result['figures'])}"


def filled(text: str) -> str:
    """Return the page with every table rewritten that has a result."""
    known = {each.name: each for each in BENCHMARKS if load(each.name) is not None}
    return _TABLE.sub(
        lambda found: (
            f"<!-- table {found[1]} -->\n{render(known[found[1]])}\n<!-- end -->"
            if found[1] in known
            else found[0]
        ),
        text,
    )


def on_page(name: str) -> bool:
    """Return True if the page has a table of this benchmark."""
    return f"<!-- table {name} -->" in DOCS.read_text(encoding="utf-8")


def rewrite() -> None:
    """Rewrite the page, and the plots of its tables."""
    DOCS.write_text(filled(DOCS.read_text(encoding="utf-8")), encoding="utf-8")
    write_plots()


if __name__ == "__main__":
    rewrite()
