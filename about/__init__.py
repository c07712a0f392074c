"""Root of the installed package: the version. It imports nothing of the product.

The other folders are installed below this one (`package-dir` in pyproject.toml). The version is in that file
alone.
"""

from typing import Final

UNKNOWN: Final = "0+unknown"
"""Version of a checkout that is not installed as a package."""

__version__: str


def __getattr__(name: str) -> str:
    """Return the installed version as `__version__`.

    It is read on the first use only, because importing the reader would delay each command.

    Raises:
        AttributeError: the name is another one.
    """
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("sluicegate")
    except PackageNotFoundError:
        found = UNKNOWN
    globals()[name] = found
    return found
