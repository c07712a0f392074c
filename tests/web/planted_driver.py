"""A driver process that a test kills or freezes: `python -m tests.web.planted_driver HOW OPTIONS`.

`whole` commits one checkpoint, and sends heartbeats until it is ended. `half` publishes the files of a
checkpoint, and never completes it.
"""

import json
import signal
import sys

import pyarrow as pa

from sluicegate.writer_hooks import RegionDriver

SCHEMA = pa.schema([("id", pa.int64()), ("origin", pa.string()), ("at", pa.timestamp("ms"))])


def main() -> None:
    """Run as the arguments say."""
    # Before any thread begins: the signal ends the wait of this one.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    how, options = sys.argv[1], json.loads(sys.argv[2])
    with RegionDriver(options, heartbeat_interval=0.5, idle_after=900.0) as driver:
        after = driver.committed
        following = 0 if after is None else int(after.source_offsets["next"])
        checkpoint = driver.begin()
        rows = pa.table({"id": [following], "origin": ["x"], "at": [0]}).cast(SCHEMA)
        results = [checkpoint.write("w0", rows)]
        print("published", flush=True)
        if how == "whole":
            driver.complete(checkpoint, results, source_offsets={"next": following + 1})
            print("completed", flush=True)
        signal.sigwait({signal.SIGTERM})
    print("ended", flush=True)


if __name__ == "__main__":
    main()
