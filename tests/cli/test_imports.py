"""What the commands import: the service starts sooner the less that is."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

PROGRAM: Final = """\
import json, sys
import sluicegate.cli.run, sluicegate.coordinator.runtime.service
print(json.dumps(sorted(sys.modules)))
"""


def test_the_service_imports_nothing_that_other_commands_need(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    heavy = {"redis", "pypaimon", "pyarrow", "pyspark", "sluicegate.simulator", "sluicegate.demo"}
    assert heavy.isdisjoint(json.loads(done.stdout))
