"""The table of docs/spark.md is created as the page shows, and a writer can write it."""

import re
import runpy
from pathlib import Path
from typing import Final

from sluicegate.lakes.registry import adapter

PAGE: Final = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_table_of_the_page_can_be_written(tmp_path: Path) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("\n## Create the table\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    (location,) = re.findall(r"The table is at `(/lake/\S+)`", section)
    program = tmp_path / "program.py"
    program.write_text(block.replace('"/lake"', repr(str(tmp_path))), encoding="utf-8")
    for _ in range(2):  # a second run changes nothing
        runpy.run_path(str(program))
    paimon = adapter("paimon")
    table = paimon.parse_table(location.replace("/lake", str(tmp_path)))
    paimon.open_writer(table, "time_hour").abort()
