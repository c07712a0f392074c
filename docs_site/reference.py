"""Write the pages of docs/reference from the code: `python -m docs_site.reference`."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from docs_site import cli_page, codes_page, http_page, permissions_page, settings_page

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference"


def render() -> Mapping[str, str]:
    """Return the text of each page by its name."""
    return {
        "settings.md": settings_page.render(),
        "cli.md": cli_page.render(),
        "http.md": http_page.render(),
        "codes.md": codes_page.render(),
        "permissions.md": permissions_page.render(),
    }


def main() -> int:
    """Write the pages; return the exit status."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in render().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
