"""Pages and documents that are made from the code. They are not committed; `make docs` adds them."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from sluicegate import documents
from sluicegate.coordinator.settings import schema
from tools.docs import (
    cli_page,
    codes_page,
    http_page,
    messages_page,
    metrics_page,
    permissions_page,
    schemas_page,
    settings_page,
    states_page,
)


@cache
def render() -> Mapping[str, str]:
    """Return the text of each file by its path below docs/."""
    return {
        "reference/settings.md": settings_page.render(),
        "reference/cli.md": cli_page.render(),
        "reference/http.md": http_page.render(),
        "reference/codes.md": codes_page.render(),
        "reference/permissions.md": permissions_page.render(),
        "reference/metrics.md": metrics_page.render(),
        "reference/messages.md": messages_page.render(),
        "reference/states.md": states_page.render(),
        "schemas/README.md": schemas_page.render(),
        f"schemas/{schema.NAME}": schema.render(),
        **{f"schemas/{name}": text for name, text in documents.render().items()},
    }


def write(folder: Path) -> None:
    """Write all files below a folder."""
    for name, text in render().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
