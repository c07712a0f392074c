"""The command that installs an extra of this package, from where the package came."""

import json
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


@cache
def install_command(*extras: str) -> str:
    """Return the command that adds extras to this installation."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        origin = distribution("sluicegate").read_text("direct_url.json")
    except PackageNotFoundError:
        origin = None
    return command_of(origin, extras)


def command_of(origin: str | None, extras: tuple[str, ...]) -> str:
    """Return the command that installs extras, by the file direct_url.json of the installation.

    That file has the folder, archive or repository that was installed. Without it, the source is unknown. The
    command then needs a clone, since a name alone would be that of whoever has it on the index.
    """
    names = f"[{','.join(extras)}]"
    found: dict[str, Any] = json.loads(origin) if origin else {"url": "", "dir_info": {}}
    if "dir_info" in found:
        folder = unquote(urlsplit(found["url"]).path)
        here = folder and Path(folder, "pyproject.toml").is_file()
        return f'pip install ".{names}" in {folder if here else "the folder of the clone"}'
    url = found["url"]
    if version := found.get("vcs_info"):
        url = f"{version['vcs']}+{url}@{version['commit_id']}"
    if subfolder := found.get("subdirectory"):
        url += f"#subdirectory={subfolder}"
    return f'pip install "sluicegate{names} @ {url}"'
