"""Per-user cache of directories. A directory appears in it complete or not at all."""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_LISTING: Final = "listing.json"


def cache_dir() -> Path:
    """Return the cache's directory: SLUICEGATE_CACHE, else a folder in XDG_CACHE_HOME or ~/.cache."""
    own = os.environ.get("SLUICEGATE_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sluicegate"


def cached_directory(name: str, fill: Callable[[Path], None]) -> Path:
    """Return the cached directory `name`, filled once by `fill(empty directory)`.

    Concurrent callers, also in other processes, wait for the one that fills. A fill that fails or is killed
    leaves no directory of this name. A directory that has lost files since is filled again.
    """
    root = cache_dir()
    target = root / name
    if _is_whole(target):
        return target
    root.mkdir(parents=True, exist_ok=True)
    with _exclusive(root / f"{name}.lock"):
        if _is_whole(target):
            return target
        # This process holds the lock, so no other one fills: directories of earlier attempts are dead.
        for leftover in root.glob(f"{name}.filling-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        staging = Path(tempfile.mkdtemp(prefix=f"{name}.filling-", dir=root))
        try:
            fill(staging)
            _write_listing(staging)
            if target.exists():
                shutil.rmtree(target)
            staging.rename(target)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
    return target


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Acquire a file lock for the context. The kernel releases it when its holder dies."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write_listing(directory: Path) -> None:
    sizes = {file.name: file.stat().st_size for file in directory.iterdir() if file.is_file()}
    for name in sizes:
        _sync(directory / name)
    (directory / _LISTING).write_text(json.dumps(sizes, sort_keys=True), encoding="utf-8")
    _sync(directory / _LISTING)


def _sync(file: Path) -> None:
    """Make the content durable before the rename.

    Otherwise a power failure could leave a complete directory whose files are empty.
    """
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _is_whole(directory: Path) -> bool:
    try:
        # The listing is written last, so a directory without one is incomplete.
        sizes = json.loads((directory / _LISTING).read_text(encoding="utf-8"))
        return all((directory / name).stat().st_size == size for name, size in sizes.items())
    except (FileNotFoundError, json.JSONDecodeError):
        return False
