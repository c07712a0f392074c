"""The command that installs an extra of this package, from where the package came."""

import json
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit


@cache
def install_command(*extras: str) -> str:
    """Return the command that adds extras to this installation."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        origin = distribution("sluicegate").read_text("direct_url.json")
    except PackageNotFoundError:
        return command_of(None, extras, installed=False)
    return command_of(origin, extras)


def command_of(origin: str | None, extras: tuple[str, ...], *, installed: bool = True) -> str:
    """Return the command that installs extras, by the file direct_url.json of the installation.

    That file has the folder, archive or repository that was installed; None: it came from an index.
    """
    names = f"[{','.join(extras)}]"
    found = json.loads(origin) if origin else {}
    if not installed or "dir_info" in found:
        folder = unquote(urlsplit(found.get("url", "")).path)
        here = folder and Path(folder, "pyproject.toml").is_file()
        return f'pip install ".{names}" in {folder if here else "the folder of the clone"}'
    if found:
        scheme = f"{found['vcs_info']['vcs']}+" if "vcs_info" in found else ""
        return f'pip install "sluicegate{names} @ {scheme}{found["url"]}"'
    return f'pip install "sluicegate{names}"'
