"""What the pages say about Spark: tables that a job writes, and sessions that maintain them."""

import re
import runpy
from pathlib import Path
from typing import Final

import pytest

from sluicegate.lakes.registry import adapter

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
