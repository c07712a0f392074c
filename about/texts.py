"""Parts of texts that all packages print."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 record`, `1,200 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
