"""What the pages say about Spark: tables that a job writes, and sessions that maintain them."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Final

import pytest

from sluicegate.lakes.registry import adapter
from tests.integration.spark_kafka import COORDINATES

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = DOCS / "spark.md"
FORMATS: Final = ("paimon", "iceberg", "delta")
"""In the order of the page."""


@pytest.mark.slow
def test_the_tables_of_the_page_can_be_written(tmp_path: Path) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("\n## Create the table\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    locations = re.findall(r"The table is at `(/lake/\S+)`", section)
    for lake, block, location in zip(FORMATS, blocks, locations, strict=True):
        program = tmp_path / f"{lake}.py"
        program.write_text(block.replace("/lake", str(tmp_path)), encoding="utf-8")
        for _ in range(2):  # a second run changes nothing
            runpy.run_path(str(program))
        options = {"uri": f"sqlite:///{tmp_path}/catalog.db"} if lake == "iceberg" else {}
        table = adapter(lake).parse_table(location.replace("/lake", str(tmp_path)), options)
        adapter(lake).open_writer(table, "time_hour").abort()


def test_each_line_of_spark_has_its_connector_for_kafka() -> None:
    """The tests with a topic as their source use the one of this page."""
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (re.fullmatch(r"spark-?(\d)\.?(\d)", each) for each in project["optional-dependencies"])
    assert {f"{each[1]}.{each[2]}" for each in extras if each} == COORDINATES.keys()
    pages = [*DOCS.rglob("*.md"), *(DOCS.parent / "examples").glob("*.py")]
    named = re.compile(r"org\.apache\.spark:spark-sql-kafka-0-10_[\w.:]+")
    assert {name for page in pages for name in named.findall(page.read_text(encoding="utf-8"))} == {
        *COORDINATES.values()
    }
