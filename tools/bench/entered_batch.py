"""Files of the product that one batch of a Spark job enters, in the driver and in Spark's Python workers.

    python -m tools.bench.entered_batch [--batches 5] [--root CHECKOUT] [--json]

A streaming query writes with ForeachBatch into a Paimon table, with two tasks a batch. A file is entered if
one of its functions is called between the begin and the end of the function that Spark calls for a batch.
Counted are the files that each batch enters, without the first two: those register, and their workers load
their libraries. `hooks` are those of `writer_hooks`. The coordinator does not count. Heartbeats and the
like count if they fall into each batch. `--root` measures another checkout, with its environment.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from tools.bench.common import machine, report

_JOB: Final = Path(__file__).with_name("batch_job.py")
_VARIABLE: Final = "BENCH_ENTERED"
_TRACER: Final = """
import mmap, os, sys, threading
folder = os.environ.get("BENCH_ENTERED")
if folder:
    with open(os.path.join(folder, "batch"), "r+b") as file:
        batch = mmap.mmap(file.fileno(), 1)
    seen = set()
    def call(frame, event, _):
        if event == "call" and batch[0]:
            key = batch[0], frame.f_code.co_filename
            if key not in seen:
                seen.add(key)
                if "/sluicegate/" in key[1]:
                    with open(os.path.join(folder, f"entered-{os.getpid()}"), "a") as file:
                        file.write(f"{key[0]} {key[1]}\\n")
    sys.setprofile(call)
    threading.setprofile(call)
"""
"""`sitecustomize` of driver and workers. The byte of a shared file is the number of the batch, else 0."""


def measure(root: Path, batches: int) -> dict[str, Any]:
    """Return the files that each batch enters."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "batch").write_bytes(b"\0")
        (folder / "site").mkdir()
        (folder / "site/sitecustomize.py").write_text(_TRACER)
        environment = {
            **os.environ,
            _VARIABLE: made,
            "PYTHONPATH": os.pathsep.join([str(folder / "site"), str(root)]),
        }
        subprocess.run(
            [str(root / ".venv/bin/python"), str(_JOB), made, str(batches)],
            cwd=root,
            env=environment,
            check=True,
            stdout=sys.stderr,
        )
        entered = defaultdict[int, set[str]](set)
        coordinator = f"entered-{(folder / 'coordinator.pid').read_text()}"
        for path in folder.glob("entered-*"):
            if path.name == coordinator:
                continue
            for line in path.read_text().splitlines():
                number, _, name = line.partition(" ")
                entered[int(number)].add(name.rpartition("/sluicegate/")[2])
    each = set.intersection(*(entered[number + 1] for number in range(2, batches)))
    hooks = sorted(name for name in each if name.startswith("writer_hooks/"))
    return {
        "files": len(each),
        "hooks": len(hooks),
        "entered": sorted(each),
        "batches": batches - 2,
        **machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[2])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    report(measure(arguments.root.resolve(), arguments.batches), as_json=arguments.json)


if __name__ == "__main__":
    main()
