"""Settings of listeners: the keys of each type, and what is refused at the start."""

from pathlib import Path
from typing import Any

import pytest

from sluicegate.coordinator.listeners.facts import refuse_senseless
from sluicegate.coordinator.settings.model import Settings, SettingsError, validate


def settings(**listener: Any) -> Settings:
    stream = {"table": "/lake/t", "format": "memory", "listeners": {"hook": listener}}
    return validate({"kafka": {"bootstrap_servers": "k:9092"}, "streams": {"s": stream}}, {})


@pytest.mark.parametrize(
    ("listener", "words"),
    [
        ({"type": "pigeon"}, "unknown type 'pigeon'; this release knows: "),
        ({"type": "webhook", "secret_file": "/s"}, "`url` is required"),
        ({"type": "webhook", "url": "ftp://x", "secret_file": "/s"}, "must be a URL such as"),
        ({"type": "webhook", "url": "https://u:p@x/", "secret_file": "/s"}, "must not contain credentials"),
        ({"type": "webhook", "url": "https://x/", "secret_file": "/s", "ulr": "x"}, "unknown key `ulr`"),
        ({"url": "https://x/"}, "type: is required"),
    ],
)
def test_wrong_keys_are_named(listener: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as refused:
        settings(**listener)
    assert words in str(refused.value)
    assert "streams.s.listeners.hook" in str(refused.value)


def test_a_listener_without_a_usable_key_is_refused_when_settings_are_reloaded(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    own = {"type": "webhook", "url": "https://x/", "secret_file": str(secret)}
    with pytest.raises(SettingsError, match=r"streams\.s\.listeners\.hook: secret_file .* cannot be read"):
        refuse_senseless(settings(**own))
    # At a start, the streams matter more.
    assert refuse_senseless(settings(**own), unready=False) == settings(**own)
    with pytest.raises(SettingsError, match="nothing is sent"):
        refuse_senseless(settings(**own, events=[]), unready=False)
    secret.write_text("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n")
    assert refuse_senseless(settings(**own)) == settings(**own)


def test_another_revision_lets_a_stopped_listener_try_again() -> None:
    own = {"type": "webhook", "url": "https://x/", "secret_file": "/s"}
    first, second = settings(**own), settings(**own, revision=1)
    marks = [each.streams["s"].listeners["hook"].fingerprint for each in (first, settings(**own), second)]
    assert marks[0] == marks[1] != marks[2]


def test_a_variable_overrides_a_key_of_the_type() -> None:
    own = {"type": "webhook", "url": "https://x/", "secret_file": "/s"}
    stream = {"table": "/lake/t", "format": "memory", "listeners": {"hook": own}}
    file = {"kafka": {"bootstrap_servers": "k:9092"}, "streams": {"s": stream}}
    found = validate(file, {"SLUICEGATE_STREAMS__S__LISTENERS__HOOK__URL": "https://other/"})
    assert found.streams["s"].listeners["hook"].options.model_dump()["url"] == "https://other/"
