"""Each extra alone brings every package that its modules import, whatever the other extras bring."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]
_IMPORT: Final = """
import importlib, json, sys

hidden, modules = map(json.loads, sys.argv[1:])
hidden = set(hidden)

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in hidden:
            raise ModuleNotFoundError(f"no extra brings {name}", name=name)

sys.meta_path.insert(0, Hidden())
for module in modules:
    importlib.import_module(module)
"""
MODULES: Final = {
    "": ("cli", "coordinator", "events", "kafka", "state_store", "writer_hooks"),
    "paimon": ("lakes/paimon",),
    "delta": ("lakes/delta",),
    "iceberg": ("lakes/iceberg",),
    "iceberg,glue": ("lakes/iceberg",),
    "openlineage": ("listeners/openlineage",),
    "otel": ("coordinator/observe",),
}
"""Folders of the modules of extras; of the empty one, of the package without an extra."""
NEED_MORE: Final = {
    "": (
        *(f"cli/local/{name}.py" for name in ("flights", "jobs", "run", "tables", "two_tables", "watch")),
        *("writer_hooks/spark", "coordinator/observe/spans.py"),
    ),
    "iceberg": ("lakes/iceberg/glue.py",),
}
"""Modules in these folders that need another extra."""


def brought(extra: str) -> set[str]:
    """Return the distributions that the package brings with one extra, or with none."""
    found: set[str] = set()
    waiting = [Requirement(f"sluicegate[{extra}]" if extra else "sluicegate")]
    while waiting:
        wanted = waiting.pop()
        for each in wanted.extras or {""}:
            key = f"{canonicalize_name(wanted.name)}[{each}]"
            if key not in found:
                found |= {key, canonicalize_name(wanted.name)}
                waiting += needed(wanted.name, each)
    return found


def needed(name: str, extra: str) -> Iterator[Requirement]:
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def modules_of(extra: str) -> list[str]:
    """Return the names of all modules that an extra is for."""
    paths = [path.relative_to(ROOT) for each in MODULES[extra] for path in (ROOT / each).rglob("*.py")]
    kept = [path for path in paths if not path.as_posix().startswith(NEED_MORE.get(extra, ("-",)))]
    names = [".".join(("sluicegate", *path.with_suffix("").parts)) for path in kept]
    return sorted(name.removesuffix(".__init__") for name in names)


def imported(extra: str, hide: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Import all modules of an extra, in a process that sees only the packages of this extra."""
    seen = brought(extra)
    hidden = [
        top
        for top, owners in packages_distributions().items()
        if not any(canonicalize_name(owner) in seen for owner in owners)
    ]
    command = [sys.executable, "-c", _IMPORT, json.dumps([*hidden, *hide]), json.dumps(modules_of(extra))]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("extra", MODULES)
def test_an_extra_alone_is_enough(extra: str) -> None:
    assert all((ROOT / each).exists() for each in (*MODULES[extra], *NEED_MORE.get(extra, ())))
    done = imported(extra)
    assert done.returncode == 0, done.stderr[-2000:]
