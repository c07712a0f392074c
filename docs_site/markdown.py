"""Parts of Markdown that the generated pages share."""


def cell(text: str) -> str:
    """Return a text as one line of a table."""
    line = " ".join(text.split()).replace("|", "\\|")
    # In code, a code host shows an entity as it is.
    parts = line.split("`")
    return "`".join(part if n % 2 else part.replace("<", "&lt;") for n, part in enumerate(parts))
