"""The search for secrets finds each of them, wherever it stands."""

import pytest

from tests.security import leaks as searched
from tests.security.leaks import leaks

SECRETS = ("sesame", "open-sesame-1", "close-sesame-1", "a-token.with.a-signature", "ähnlich-geheim")


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("before", ["", "x", "x" * 57, "x" * 58, "x" * 200])
def test_a_secret_is_found_at_any_place(secret: str, before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searched, "_PIECE", 64)
    found = leaks({"log": f"{before}{secret}", "page": f"{before}{secret}y", "other": before}, SECRETS)
    assert set(found) >= {("log", secret), ("page", secret)}
    assert {seen for _, seen in found} == {each for each in SECRETS if each in secret}


@pytest.mark.parametrize("text", ["", "sesam", "esame-1", "open-sesam", "a-token.with.a-signatur"])
def test_a_part_of_a_secret_is_none(text: str) -> None:
    assert leaks({"log": text}, SECRETS) == []
    assert leaks({"log": text}, ()) == []
