"""An installation without the extras says in one sentence what to install."""

import subprocess
import sys
import textwrap

import pytest

from sluicegate.installation import install_command

INSTALL = install_command("paimon", "spark")

_REFUSE = """
    import sys

    class Refused:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in {refused!r}:
                raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

    sys.meta_path.insert(0, Refused())
"""


def without(refused: set[str], work: str) -> subprocess.CompletedProcess[str]:
    """Run a program where some packages are not installed."""
    script = textwrap.dedent(_REFUSE).format(refused=refused) + textwrap.dedent(work)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


@pytest.mark.slow
def test_plain_python_loads_no_spark_and_no_arrow_before_it_writes() -> None:
    work = """
        from sluicegate.writer_hooks import BadOption, Job, RegionDriver, Writer
        options = {
            "stream": "flights",
            "region": "JFK",
            "table": "/lake/flights",
            "format": "delta",
            "kafka.bootstrap.servers": "localhost:9092",
        }
        RegionDriver(options)
        print(sorted({"pyarrow", "pyspark", "numpy"} & {*sys.modules}))
    """
    done = without({"pyspark", "py4j"}, work)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["start_incarnation", "preflight"])
def test_an_import_names_the_package_and_the_install_line(name: str) -> None:
    work = f"from sluicegate.writer_hooks import {name}"
    done = without({"pyarrow", "pyspark", "py4j", "pypaimon", "fastavro"}, work)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1, "no chain of errors"
    last = done.stderr.strip().splitlines()[-1]
    assert f"sluicegate.writer_hooks.{name} needs the package pyarrow, which is not installed" in last
    assert last.endswith(INSTALL)


@pytest.mark.slow
def test_attach_without_pyspark() -> None:
    work = """
        from sluicegate.writer_hooks import HookError, attach
        try:
            attach(None)
        except HookError as error:
            print(error)
    """
    done = without({"pyspark", "py4j"}, work)
    assert "attach needs PySpark 3.5 or newer" in done.stdout, done.stderr
    assert done.stdout.strip().endswith(INSTALL)


@pytest.mark.slow
def test_a_table_format_whose_package_is_missing_is_found_before_the_query_starts() -> None:
    work = """
        from sluicegate.writer_hooks import PreflightFailed, preflight
        options = {
            "stream": "flights",
            "region": "JFK",
            "table": "/lake/flights",
            "kafka.bootstrap.servers": "localhost:9092",
            "checkpointLocation": "/checkpoints/JFK",
        }
        try:
            preflight(options, timeout=0.1)
        except PreflightFailed as error:
            print(error)
    """
    done = without({"pypaimon"}, work)
    assert "the table format paimon needs a package that is not installed (pypaimon)" in done.stdout, (
        done.stderr
    )
    assert install_command("paimon") in done.stdout
    assert "if the table has another format, set `format`" in done.stdout
