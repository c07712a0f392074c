"""Tables of docs/benchmarks.md: they show the results, and the results are of the current benchmarks."""

import re
import subprocess
from pathlib import Path

import pytest

from bench import catalogue, tables
from bench.catalogue import BENCHMARKS, RESULTS, Benchmark, digest
from bench.demo import DEMO

REPEAT = "Measure again: .venv/bin/python -m bench.all --only {}"


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda each: each.name)
def test_a_table_is_not_older_than_its_benchmark(benchmark: Benchmark) -> None:
    result = tables.load(benchmark.name)
    assert result is not None, REPEAT.format(benchmark.name)
    assert result["digest"] == digest(benchmark), REPEAT.format(benchmark.name)
    assert result["commit"] != "unknown"
    assert result["figures"]


def test_the_tables_are_what_the_results_say() -> None:
    text = tables.DOCS.read_text(encoding="utf-8")
    assert tables.filled(text) == text, "Rewrite them: .venv/bin/python -m bench.tables"


def test_every_result_has_one_table_with_its_command() -> None:
    text = tables.DOCS.read_text(encoding="utf-8")
    named = re.findall(r"<!-- table (\w+) -->", text)
    assert sorted(named) == sorted(each.name for each in BENCHMARKS) == sorted(tables.MAKERS)
    assert {path.stem for path in RESULTS.glob("*.json")} <= set(named)


def test_a_change_of_the_code_that_measures_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("from bench.shared import rows\n")
    (tmp_path / "shared.py").write_text("rows = 1\n")
    (tmp_path / "other.py").write_text("rows = 1\n")
    monkeypatch.setattr(catalogue, "BENCH", tmp_path)
    before = digest(Benchmark("mine", "mine"))
    (tmp_path / "other.py").write_text("rows = 2\n")
    assert digest(Benchmark("mine", "mine")) == before
    (tmp_path / "shared.py").write_text("rows = 2\n")
    assert digest(Benchmark("mine", "mine")) != before
    before = digest(Benchmark("mine", "mine"))
    (tmp_path / "mine.py").write_text("import os\n\nfrom bench.shared import (\n    rows,\n)\n")
    assert digest(Benchmark("mine", "mine")) == before


def test_a_change_of_the_java_that_measures_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text('PROGRAM = "Mine.java"\n')
    (tmp_path / "java").mkdir()
    program = tmp_path / "java" / "Mine.java"
    program.write_text("class Mine {}\n")
    monkeypatch.setattr(catalogue, "BENCH", tmp_path)
    before = digest(Benchmark("mine", "mine"))
    program.write_text("class Mine { int more; }\n")
    assert digest(Benchmark("mine", "mine")) != before


def test_the_benchmarks_find_the_demo() -> None:
    subprocess.run([*DEMO, "--help"], check=True, capture_output=True)


def test_the_measured_figures_of_the_sizing_guide_are_those_of_the_benchmarks() -> None:
    measured = tables.DOCS.read_text(encoding="utf-8")
    page = tables.DOCS.with_name("sizing.md").read_text(encoding="utf-8")
    table = page.partition("## Measured")[2].partition("\n## ")[0]
    cells = [line.split("|")[3] for line in table.splitlines() if line.startswith("| ")][1:]
    found = {figure for cell in cells for figure in re.findall(r"\d[\d,.]*\d", cell)} - {"50", "99"}
    assert len(found) > 30
    known = {*re.findall(r"\d[\d,.]*\d", measured)}
    assert found - known == set()
