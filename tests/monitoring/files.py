"""The files of deploy/ for Prometheus and Grafana, and the names that their expressions use."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from sluicegate.coordinator.observe.metrics import Metrics

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
RULES: Final = DEPLOY / "prometheus" / "sluicegate.rules.yml"
RULE_TESTS: Final = DEPLOY / "prometheus" / "sluicegate.rules.test.yml"
BOARD: Final = DEPLOY / "grafana" / "sluicegate.json"
SCALED: Final = DEPLOY / "keda" / "scaledobject.yaml"
ADDED: Final = frozenset({"job", "instance", "le"})
"""Labels that Prometheus adds, and that of the bounds of a histogram."""
_SELECTED: Final = re.compile(r"\b((?:sluicegate|stream:|instance:)[a-z0-9_:]*)(\{[^}]*\})?")
_GROUPED: Final = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
_QUOTED: Final = re.compile(r'"[^"]*"')


def tool(name: str) -> str | None:
    """Return the path of one of Prometheus' programs; None if it is not installed."""
    return os.environ.get(f"SLUICEGATE_TEST_{name.upper()}") or shutil.which(name)


@cache
def rules() -> list[dict[str, Any]]:
    """Return all rules."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """Return the alerts by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def records() -> dict[str, str]:
    """Return the expressions of the recording rules, by name."""
    return {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}


def expanded(expression: str) -> str:
    """Return an expression with the recording rules in place of their names."""
    for name, meant in records().items():
        if name in expression:
            return expanded(expression.replace(name, f"({meant})"))
    return expression


def queries() -> Iterator[tuple[str, str]]:
    """Yield the title and the expression of each query of the dashboard."""
    for panel in json.loads(BOARD.read_text(encoding="utf-8"))["panels"]:
        yield from ((panel["title"], each["expr"]) for each in panel.get("targets", ()))


def unknown(expression: str) -> list[str]:
    """Return the names of an expression that no metric and no recording rule has, and wrong labels."""
    found, allowed = list[str](), set[str](ADDED)
    for name, selector in _SELECTED.findall(_without_texts(expression)):
        labels = _labels_of(name)
        if labels is None:
            found.append(name)
            continue
        allowed |= labels
        used = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)
        found += [f"{name}{{{label}}}" for label in used if label not in labels | ADDED]
    for group in _GROUPED.findall(expression):
        found += [f"by {label}" for label in re.findall(r"\w+", group) if label not in allowed]
    return found


def _without_texts(expression: str) -> str:
    return _QUOTED.sub('""', expression)


def _labels_of(name: str) -> set[str] | None:
    if name in records():
        return {label for group in _GROUPED.findall(expanded(name)) for label in re.findall(r"\w+", group)}
    for each in Metrics().definitions:
        series = {each.name}
        if each.kind == "histogram":
            series = {each.name + part for part in ("_bucket", "_sum", "_count")}
        if name in series:
            return set(each.labels)
    return None
