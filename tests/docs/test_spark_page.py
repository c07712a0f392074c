"""The tables of docs/spark.md are created as the page shows, and a writer can write them."""

import re
import runpy
from pathlib import Path
from typing import Final

from sluicegate.lakes.registry import adapter

PAGE: Final = Path(__file__).parents[2] / "docs" / "spark.md"
FORMATS: Final = ("paimon", "iceberg", "delta")
"""In the order of the page."""


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
