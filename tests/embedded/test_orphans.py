"""No server outlives the process that started it, however that process ends."""

import json
import shutil
import signal
import subprocess
import sys
from typing import Any, Final

import psutil
import pytest

from tests.integration.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.seam]

_PARENT = """
import json, os, sys
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.cli.local.servers import EmbeddedValkey

# Several, as it is a race whether a frozen server escapes.
servers = [EmbeddedKafka(), *(EmbeddedValkey() for _ in range(8))]
for server in servers:
    server.start()
    if sys.argv[1] == "frozen":
        server.suspend()
child = os.fork() if sys.argv[1] == "forked" else None
if child == 0:
    sys.stdin.read()
    os._exit(0)
pids, directories = [server.pid for server in servers], [str(server.data_dir) for server in servers]
print(json.dumps({"pids": pids, "directories": directories, "child": child}), flush=True)
if sys.argv[1] == "exits":
    sys.exit()
# Ends when the test lets go of the other end, even by dying.
sys.stdin.read()
"""


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


_OTHERS: Final = [pytest.param(each, marks=pytest.mark.matrix) for each in ("frozen", "forked", "exits")]


@pytest.mark.parametrize("how", ["killed", *_OTHERS])
def test_servers_go_with_their_parent(how: str) -> None:
    command = [sys.executable, "-c", _PARENT, how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        told = json.loads(parent.stdout.readline())
        if how != "exits":
            parent.send_signal(signal.SIGKILL)
        parent.wait()
        try:
            wait_until(lambda: all(_gone(pid) for pid in told["pids"]))
        finally:
            _clean_up(told)


def _clean_up(told: dict[str, Any]) -> None:
    """End what the parent's abrupt end left on purpose, and its temporary directories."""
    if told["child"] is not None:
        psutil.Process(told["child"]).kill()
    for directory in told["directories"]:
        shutil.rmtree(directory)
