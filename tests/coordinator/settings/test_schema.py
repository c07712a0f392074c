"""The JSON Schema of the settings file accepts what the models accept, and finds what an editor can find."""

import json
import re
import subprocess
import tomllib
from functools import cache
from typing import Any, Final

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from sluicegate.cli.main import main
from sluicegate.coordinator.settings.model import SettingsError, validate
from sluicegate.coordinator.settings.schema import render
from tests.repository.test_layout import ROOT

pytestmark = pytest.mark.slow

OTHERS: Final = ("pyproject.toml", "examples/kubernetes/options.toml")
"""Files of that kind that are no settings: the second has a writer's options."""
STREAM: Final = "[streams.flights]\ntable = '/lake/flights'\n"


@cache
def schema() -> Any:
    return json.loads(render())


def problems(text: str) -> list[str]:
    """Return the places that an editor marks in a settings file."""
    settings = json.loads(json.dumps(tomllib.loads(text), default=str))
    return [each.json_path for each in Draft202012Validator(schema()).iter_errors(settings)]


def files() -> list[tuple[str, str]]:
    """Return each settings file of the repository, and each block of settings in its pages."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [each for each in listed.stdout.split() if (ROOT / each).is_file()]
    found = [
        (name, (ROOT / name).read_text(encoding="utf-8"))
        for name in names
        if name.endswith(".toml") and name not in OTHERS
    ]
    for name in names:
        if name.endswith(".md"):
            text = (ROOT / name).read_text(encoding="utf-8")
            found += [(name, block) for block in re.findall(r"^```toml\n(.*?)^```", text, re.M | re.S)]
    return found


def test_every_settings_file_and_every_block_in_the_pages_fits() -> None:
    Draft202012Validator.check_schema(schema())
    found = files()
    assert {"examples/sluicegate.toml", "deploy/kubernetes/base/sluicegate.toml"} <= {
        name for name, _ in found
    }
    assert len(found) > 10
    assert [(name, wrong) for name, text in found if (wrong := problems(text))] == []


@pytest.mark.parametrize(
    ("text", "place", "key"),
    [
        ("[kafka]\nbootstrap_server = 'a:1'", "$.kafka", "bootstrap_server"),
        ("[kafka.security]\nprotocol = 'TLS'", "$.kafka.security.protocol", "protocol"),
        ("stall_after = '30 minutes'", "$.stall_after", "stall_after"),
        ("memory.body_budget = '64KB'", "$.memory.body_budget", "body_budget"),
        (f"{STREAM}partal = 'allow'", "$.streams.flights", "partal"),
        (f"{STREAM}partial = 'always'", "$.streams.flights.partial", "partial"),
        (f"{STREAM}commit_interval = true", "$.streams.flights.commit_interval", "commit_interval"),
        (f"{STREAM}tables.items = {{ name = 'shop.items' }}", "$.streams.flights.tables.items", "items"),
        (
            f"{STREAM}[streams.flights.listeners.a]\ntype = 'webhook'\nurls = 'http://a'",
            "$.streams.flights.listeners.a",
            "urls",
        ),
        (
            f"{STREAM}[streams.flights.listeners.a]\ntype = 'tags'\nskip_through = '-'",
            "$.streams.flights.listeners.a.skip_through",
            "listeners.a",
        ),
    ],
)
def test_a_mistake_is_found_where_it_is_and_refused_by_the_models_too(
    text: str, place: str, key: str
) -> None:
    assert place in problems(text)
    with pytest.raises(SettingsError, match=key):
        validate({"kafka": {"bootstrap_servers": "a:1"}, "streams": {}} | tomllib.loads(text), {})


@pytest.mark.parametrize(
    "text",
    [
        "stall_after = 2.5",
        "replay_window = '30 days'",
        "kafka.bootstrap_servers = ['a:1', 'b:2']",
        "kafka.signing.since = 2026-11-21T16:00:00Z",
        f"{STREAM}tables.items = {{ identifier = 'shop.items', allowed_locations = ['s3://a/'] }}",
        f"{STREAM}options.s3.region = 'eu-central-1'",
        f"{STREAM}[streams.flights.listeners.a]\ntype = 'of-another-package'\nkey = 1",
    ],
)
def test_each_way_to_write_a_value_fits(text: str) -> None:
    assert problems(text) == []


def test_the_command_prints_it_and_the_example_names_the_file() -> None:
    printed = CliRunner().invoke(main, ["init", "--schema"])
    assert (printed.exit_code, printed.output) == (0, render())
    first, *rest = (ROOT / "examples/sluicegate.toml").read_text(encoding="utf-8").splitlines()
    assert first == "#:schema ./sluicegate.schema.json"
    assert "# sluicegate init --schema > sluicegate.schema.json" in rest
