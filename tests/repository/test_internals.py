"""Private attributes of aiokafka and asyncio are used in `kafka/internals.py` alone."""

import ast
from collections.abc import Iterator

import pytest

from tests.repository.test_layout import FOLDERS, ROOT

ALLOWED = ROOT / "kafka" / "internals.py"
PRIVATE = {
    *(
        "_buffer",
        "_client",
        "_closed",
        "_closing",
        "_cluster",
        "_conns",
        "_coordination_task",
        "_coordinator",
    ),
    *("_decompressed", "_fetch_task", "_fetcher", "_loop", "_maybe_leave_group", "_maybe_uncompress"),
    *("_maybe_wait_for_pid", "_pending_tasks", "_sync_task"),
    *("_sasl_oauth_token_provider", "_token_sent"),
    *("_message_accumulator", "_metadata", "_metadata_update", "_num_records", "_pos"),
    *("_send_request", "_send_request_to_node"),
    "_transports",
    *("_send_to_controller", "_sender", "_sender_task", "_subscription", "_txn_manager", "_wait_on_metadata"),
}
"""Names of aiokafka, and of a loop of asyncio.

A class of the product may have one of them too, for its own `self` alone."""
BY_NAME = {"getattr", "setattr", "hasattr", "delattr"}


def private_uses(source: str) -> Iterator[str]:
    """Give the private names of aiokafka that a module uses on another object, or imports."""
    tree = ast.parse(source)
    subclasses = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and _is_client(node)]
    inherited = {id(node) for each in subclasses for node in ast.walk(each)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE:
            own = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not own or id(node) in inherited:
                yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BY_NAME:
            yield from (
                str(each.value)
                for each in node.args[1:2]
                if isinstance(each, ast.Constant) and each.value in PRIVATE
            )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "aiokafka":
            yield from (alias.name for alias in node.names if alias.name.startswith("_"))


def _is_client(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).rpartition(".")[2].startswith("AIOKafka") for base in node.bases)


@pytest.mark.slow
def test_no_other_module_uses_a_private_attribute() -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for folder in sorted(FOLDERS)
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != ALLOWED and (names := list(private_uses(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


def test_every_name_that_is_used_there_is_in_the_list() -> None:
    tree = ast.parse(ALLOWED.read_text(encoding="utf-8"))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {name for name in used if name.startswith("_") and not name.startswith("__")} <= PRIVATE


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("consumer._client.send()", ["_client"]),
        ("self._consumer._coordinator.x", ["_coordinator"]),
        ("producer._closed = True", ["_closed"]),
        ("getattr(consumer, '_fetcher', None)", ["_fetcher"]),
        ("from aiokafka.record.default_records import _DefaultRecordBatchPy", ["_DefaultRecordBatchPy"]),
        ("class Own(AIOKafkaProducer):\n    def end(self):\n        self._sender = None", ["_sender"]),
        ("class Own:\n    def end(self):\n        self._closed = True", []),
        ("event._replace(size=1)\nfrom aiokafka import TopicPartition", []),
    ],
)
def test_a_private_attribute_is_noticed(source: str, found: list[str]) -> None:
    assert list(private_uses(source)) == found
