"""Each alert is tested, has its section in operations, and asks for metrics that exist."""

import re
import subprocess
from collections import defaultdict

import pytest
import yaml

from sluicegate.events.dead_letters import LETTER_CODES
from tests.docs.test_links import anchors
from tests.monitoring.files import ROOT, RULE_TESTS, RULES, alerts, expanded, queries, rules, tool, unknown

OPERATIONS = ROOT / "docs" / "operations.md"


@pytest.fixture
def promtool() -> str:
    found = tool("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian: prometheus); .ci/run installs it")
    return found


@pytest.mark.slow
def test_promtool_finds_nothing_wrong_with_the_rules(promtool: str) -> None:
    done = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(rules())} rules found" in done.stdout


@pytest.mark.slow
def test_each_alert_fires_when_it_must_and_only_then(promtool: str) -> None:
    done = subprocess.run([promtool, "test", "rules", RULE_TESTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fires, quiet = defaultdict[str, int](int), defaultdict[str, int](int)
    for each in yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))["tests"]:
        for asked in each["promql_expr_test"]:
            assert f'alertname="{each["name"]}"' in asked["expr"]
            (fires if asked["exp_samples"] else quiet)[each["name"]] += 1
    assert {*fires} == {*quiet} == {*alerts()}


@pytest.mark.parametrize("name", alerts())
def test_each_alert_has_a_text_and_a_section_in_operations(name: str) -> None:
    rule, text = alerts()[name], OPERATIONS.read_text(encoding="utf-8")
    notes = rule["annotations"]
    assert {*notes} == {"summary", "description", "runbook_url"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    page, _, anchor = notes["runbook_url"].partition("#")
    assert ROOT / page == OPERATIONS
    assert anchor == name.lower()
    assert anchor in anchors(text)
    shown = {label for each in notes.values() for label in re.findall(r"\$labels\.(\w+)", each)}
    kept = {*re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", expanded(rule["expr"]))))}
    assert shown <= kept | ({"instance"} if rule["expr"].startswith("up{") else set())


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_each_rule_asks_for_metrics_that_exist(rule: dict[str, str]) -> None:
    assert unknown(rule["expr"]) == []


@pytest.mark.parametrize(("title", "expression"), [*queries()])
def test_each_panel_asks_for_metrics_that_exist(title: str, expression: str) -> None:
    assert title
    assert unknown(expression) == []


def test_the_counters_of_dead_letters_exist_from_the_start_for_each_code_of_the_table() -> None:
    section = OPERATIONS.read_text(encoding="utf-8").partition("\n## Dead letters\n")[2].partition("\n## ")[0]
    first = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    listed = {code for cell in first for code in re.findall(r"`([a-z-]+)`", cell)}
    assert listed == {code.value for code in LETTER_CODES}
