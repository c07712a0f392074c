"""Disks of their own for tests that fill them, take away their inodes or mount them read-only."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest


class Disk:
    """A small tmpfs that every user may enter."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> Path:
        """Take all of its space; returns the file to remove."""
        filler = self.path / "filler"
        with open(filler, "wb", buffering=0) as file:
            for size in (1 << 16, 1 << 12):
                with suppress(OSError):
                    while True:
                        file.write(b"x" * size)
        return filler

    def use_up_inodes(self) -> list[Path]:
        """Take all of its inodes; returns the files to remove."""
        made: list[Path] = []
        with suppress(OSError):
            while True:
                made.append(self.path / f"inode-{len(made)}")
                made[-1].touch()
        return made[:-1]

    def remount(self, option: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{option}", self.path], check=True, capture_output=True)


@contextmanager
def mounted_disk(inodes: int = 1_000) -> Iterator[Disk]:
    """Mount a disk; skips the test where the process may not mount."""
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        path.chmod(0o755)
        options = f"size=2m,nr_inodes={inodes},mode=755"
        mount = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", path],
            capture_output=True,
            text=True,
            check=False,
        )
        if mount.returncode != 0:
            pytest.skip(f"this process may not mount a tmpfs: {mount.stderr.strip()}")
        stack.callback(lambda: subprocess.run(["umount", "-l", path], check=True))
        yield Disk(path)


@contextmanager
def without_privileges() -> Iterator[None]:
    """Permission bits do not bind root, so act as another user."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)
