"""Releases of Spark, and the ways of writing that each of them has."""

from importlib.util import find_spec
from typing import Final

from sluicegate.lakes.registry import install_line
from sluicegate.writer_hooks.errors import HookError

_OLDEST: Final = (3, 5)


def require_spark(user: str) -> None:
    """Raise HookError if PySpark is missing or older than 3.5; `user` is the name of the caller."""
    found = None
    try:
        import pyspark

        found = pyspark.__version__
    except ImportError as error:
        reason = str(error)
    else:
        reason = f"found {found}"
    if found is None or _numbers(found) < _OLDEST:
        raise HookError(
            f"{user} needs PySpark 3.5 or newer ({reason}); install it with: {install_line('spark')}"
        )


def has_data_source() -> bool:
    """Return True if Spark can write through the data source, as Spark 4.1 and later can."""
    if find_spec("pyspark.sql.datasource") is None:
        return False
    from pyspark.sql import datasource

    return hasattr(datasource, "DataSourceStreamArrowWriter")


def require_arrow() -> None:
    """Raise HookError if this Python lacks a package that Spark's `mapInArrow` needs."""
    try:
        from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

        require_minimum_pyarrow_version()
        require_minimum_pandas_version()
    except ImportError as error:
        raise HookError(
            f"Spark cannot pass rows to Python ({error}). Install the missing package for the driver and for "
            "the Python workers: pip install pyarrow pandas setuptools"
        ) from error


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
