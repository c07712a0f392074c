"""The allocator of the coordinator's process."""

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

PROGRAM: Final = """\
import json, resource
from sluicegate.coordinator.service.process import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        buffers = [bytearray(8 << 20) for _ in range(3)]
        del buffers
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
keep_freed_memory()
faults()
print(json.dumps([first, faults()]))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_large_buffers_that_are_freed_are_used_again(tmp_path: Path) -> None:
    """Their pages are not asked of the system again and again."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    before, after = json.loads(done.stdout)
    assert after < before / 4
