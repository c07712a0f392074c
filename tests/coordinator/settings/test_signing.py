"""Keys of signatures: read with the settings, and kept out of every output."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from sluicegate.coordinator.settings.model import Settings, SettingsError, validate

KEY = "ab" * 32


def settings(folder: Path, **signing: Any) -> Settings:
    files = {name: text for name, text in signing.pop("files", {"k1": KEY}).items() if name}
    for name, text in files.items():
        (folder / f"{name}.key").write_text(text)
    given = {"key_files": [str(folder / f"{name}.key") for name in files], **signing}
    kafka = {"bootstrap_servers": "a:1", "signing": given}
    return validate({"kafka": kafka, "streams": {"s": {"table": "/t"}}}, {})


def test_keys_come_from_files_in_their_order(tmp_path: Path) -> None:
    found = settings(tmp_path, mode="required", files={"2026-11": f"{KEY}\n", "2026-05": "cd" * 32})
    assert list(found.kafka.signing.keys().items()) == [
        ("2026-11", KEY.encode()),
        ("2026-05", ("cd" * 32).encode()),
    ]
    assert {KEY, "cd" * 32} <= found.secrets()
    assert KEY not in repr(found)
    assert found.kafka.signatures().mode == "required"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"mode": "required", "files": {}}, "names no key; make one: openssl rand -hex 32"),
        ({"files": {"k1": "short"}}, "k1.key has less than 32 characters; make one: openssl rand -hex 32"),
        ({"files": {"k1": ""}}, "k1.key is empty"),
        ({"key_files": ["/nowhere/k1.key"]}, "/nowhere/k1.key cannot be read on this machine"),
        ({"files": {"-k": KEY}}, "its name begins with no id of letters and digits"),
        ({"files": {"k1": KEY, "k1.old": KEY}}, "two files have the id k1"),
        ({"retired": {"k2": "2026-11-27T12:00:00Z"}}, "no file of `key_files` has that id"),
        ({"retired": {"k1": "2026-11-27T12:00:00Z"}}, "which signs; list another first"),
        ({"since": "2026-11-27T12:00:00"}, "timezone"),
    ],
)
def test_unusable_signing_is_refused_with_the_way_out(
    tmp_path: Path, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        settings(tmp_path, **given)
    assert told in str(refused.value)
    assert KEY not in str(refused.value)


def test_the_advised_key_is_taken(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        settings(tmp_path, mode="required", files={})
    command = str(refused.value).partition("make one: ")[2].split()
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert (
        settings(tmp_path, mode="required", files={"k1": made}).kafka.signing.keys()["k1"]
        == made.strip().encode()
    )
