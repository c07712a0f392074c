"""Every part reads topics past undecodable records, and folds the log through the check of signatures."""

import ast
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("cli", "coordinator", "writer_hooks", "kafka", "state_store")
ALLOWED: Final = {
    "coordinator/replay/decisions.py": "the default for logs without signatures, as those of the simulator",
    "coordinator/replay/audit.py": "shows what a refused order tried; effects come from the fold",
    "coordinator/replay/conformance.py": "looks at the events of jobs alone",
}


def decoders(path: Path) -> bool:
    """True if the module takes records as decisions without a look at their signature."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "sluicegate.events.codec"
        and any(alias.name == "read_record" for alias in node.names)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )


@pytest.mark.slow
def test_only_listed_modules_decode_the_log_without_signatures() -> None:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert {str(path.relative_to(ROOT)) for path in paths if decoders(path)} == {*ALLOWED}


@pytest.mark.slow
def test_every_fold_of_the_product_gets_a_decoder() -> None:
    folds = {
        str(path.relative_to(ROOT)): len(node.args)
        for path in sorted((ROOT / "coordinator" / "replay").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "LogFold"
    }
    assert folds
    assert min(folds.values()) >= 4, folds


@pytest.mark.slow
def test_one_module_reads_topics_with_the_client() -> None:
    """The client raises at a header whose name is not UTF-8, again and again."""
    found = {
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("getmany", "getone")
    }
    assert found == {"kafka/reading.py"}
