"""The authentication of REST catalogs: a real catalog behind a server that lets in nobody without it."""

import base64
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from sluicegate.lakes.iceberg.adapter import IcebergAdapter
from sluicegate.lakes.iceberg.vended import OPTION, VENDED
from sluicegate.lakes.port import LakeError, LakeUnavailable, OutcomeUnknown, Published, TableRefused
from tests.contracts.lakes.harness import USER, Stream
from tests.contracts.lakes.iceberg_rest_lake import RestLake
from tests.doubles.gate import CLIENT, SECRET, Gate
from tests.doubles.proxy import Effect
from tests.iceberg_java.java import RestCatalogServer
from tests.lakes.outcomes import is_refused
from tests.oidc import CLIENT as OIDC_CLIENT
from tests.oidc import Provider, provider

# Without the address of a server for tokens, the library takes the catalog's, and warns of that.
pytestmark = pytest.mark.filterwarnings("ignore:.*OAuth2 server URI:DeprecationWarning")

TOKEN = "known-token"  # noqa: S105
BASIC = f"Basic {base64.b64encode(f'{CLIENT}:{SECRET}'.encode()).decode()}"
GIVEN = {
    "credential": {"credential": f"{CLIENT}:{SECRET}"},
    "credential, own server": {
        "credential": f"{CLIENT}:{SECRET}",
        "oauth2-server-uri": "{uri}/other/oauth/tokens",
    },
    "oauth2": {
        "auth.type": "oauth2",
        "auth.oauth2.client_id": CLIENT,
        "auth.oauth2.client_secret": SECRET,
        "auth.oauth2.token_url": "{uri}/other/oauth/tokens",
        "auth.oauth2.scope": "lake",
        "auth.oauth2.expires_in": "600",
    },
}
"""Options with which a token is given, where {uri} stands for the server's."""
FIXED: Mapping[str, tuple[dict[str, str], tuple[str, str]]] = {
    "bearer": ({"token": TOKEN}, ("Authorization", f"Bearer {TOKEN}")),
    "basic": (
        {"auth.type": "basic", "auth.basic.username": CLIENT, "auth.basic.password": SECRET},
        ("Authorization", BASIC),
    ),
    "authorization": (
        {"auth.type": "noop", "header.Authorization": f"Other {TOKEN}"},
        ("Authorization", f"Other {TOKEN}"),
    ),
    "header": ({"header.X-Api-Key": SECRET}, ("X-Api-Key", SECRET)),
}
"""Options, and the header that must come of them."""


@pytest.fixture
def lake(iceberg_rest: RestCatalogServer, unique: str, tmp_path: Path) -> RestLake:
    return RestLake(iceberg_rest, unique, tmp_path)


def stream_of(gate: Gate, lake: RestLake, options: Mapping[str, str]) -> Stream:
    """Return a stream whose committer must authenticate itself."""
    given = {name: value.replace("{uri}", gate.uri) for name, value in options.items()}
    adapter = IcebergAdapter()
    more = {"type": "rest", "uri": gate.uri, "identifier": str(lake.table_name)}
    return Stream(lake, adapter.open_committer(adapter.parse_table(lake.location, {**given, **more}), USER))


@pytest.fixture
def gate(iceberg_rest: RestCatalogServer) -> Iterator[Gate]:
    with Gate(iceberg_rest.uri) as found:
        yield found


@pytest.mark.parametrize("kind", FIXED)
def test_a_fixed_header_is_in_each_request(
    iceberg_rest: RestCatalogServer, lake: RestLake, kind: str
) -> None:
    options, header = FIXED[kind]
    with Gate(iceberg_rest.uri, header) as gate:
        stream = stream_of(gate, lake, options)
        stream.commit(1, [1])
        stream.commit(2, [2])
        assert gate.posts == 2
    assert lake.ids() == [1, 2]


@pytest.mark.parametrize("kind", ["token", "file"])
def test_the_end_of_a_token_is_shown(
    iceberg_rest: RestCatalogServer, lake: RestLake, kind: str, tmp_path: Path
) -> None:
    token = Provider("https://issuer.example", life=600).token()
    file = tmp_path / "token"
    file.write_text(token)
    options = {"token": token} if kind == "token" else {"auth.type": "file", "auth.file.path": str(file)}
    more = {"type": "rest", "identifier": str(lake.table_name)}
    adapter = IcebergAdapter()
    with Gate(iceberg_rest.uri, ("Authorization", f"Bearer {token}")) as gate:
        table = adapter.parse_table(lake.location, {**options, **more, "uri": gate.uri})
        access = adapter.open_maintenance(table).catalog_access()
    assert access.login == ("a fixed token" if kind == "token" else "auth.type = file")
    assert access.lifetime is not None
    assert 0 < access.lifetime <= 600
    assert access.refuses
    assert token not in repr(access)


@pytest.mark.seam
@pytest.mark.parametrize("kind", GIVEN)
def test_a_token_that_expires_is_renewed(gate: Gate, lake: RestLake, kind: str) -> None:
    stream = stream_of(gate, lake, GIVEN[kind])
    stream.commit(1, [1])
    gate.expire()
    before = gate.given
    stream.commit(2, [2])
    assert gate.given > before
    head, event = stream.head(3), lake.event([3])
    gate.expire()
    assert isinstance(stream.publish(3, head, [event]), Published)
    assert lake.ids() == [1, 2, 3]


@pytest.mark.parametrize("kind", GIVEN)
def test_a_token_that_expires_before_the_change_publishes_nothing(
    gate: Gate, lake: RestLake, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(gate, lake, GIVEN[kind])
    head, event = stream.head(1), lake.event([1])
    with monkeypatch.context() as patch:
        patch.setattr("sluicegate.lakes.iceberg.rest.before_change", gate.expire)
        assert is_refused(stream.publish(1, head, [event]), again=True)
    assert lake.ids() == []
    stream.add(1, event)
    assert lake.ids() == [1]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"token": "another-secret"},
        {"credential": f"{CLIENT}:another-secret"},
        {"credential": "another-secret"},
        {**GIVEN["oauth2"], "auth.oauth2.client_secret": "another-secret"},
        {"auth.type": "basic", "auth.basic.username": CLIENT, "auth.basic.password": "another-secret"},
        {"auth.type": "no-such-kind", "auth.no-such-kind.password": "another-secret"},
        {"auth": "another-secret"},
        {"auth.basic": "another-secret", "auth.basic.password": "another-secret"},
        {"auth.type": "basic", "auth.basic.secret": "another-secret"},
    ],
    ids=str,
)
def test_who_is_not_let_in_is_told_without_secrets(
    gate: Gate, lake: RestLake, options: Mapping[str, str]
) -> None:
    with pytest.raises(LakeError, match=r"credentials|401") as raised:
        stream_of(gate, lake, options)
    assert isinstance(raised.value, LakeUnavailable)
    assert "another-secret" not in str(raised.value)


def test_an_answer_of_another_form_shows_no_token(tmp_path: Path) -> None:
    """The library names the answer that it does not understand."""
    with provider() as issuer:
        issuer.answer = b'{"access_token": "known-token"}'
        options = {"credential": f"{OIDC_CLIENT}:{issuer.secret}", "oauth2-server-uri": f"{issuer.url}/token"}
        adapter = IcebergAdapter()
        more = {"type": "rest", "uri": issuer.url, "identifier": "db.numbers"}
        with pytest.raises(LakeUnavailable, match="no TokenResponse") as raised:
            adapter.open_committer(adapter.parse_table(str(tmp_path), {**options, **more}), USER)
    assert "known-token" not in "".join(traceback.format_exception(raised.value))


def test_a_token_in_a_file_counts_as_soon_as_it_is_renewed(
    iceberg_rest: RestCatalogServer, lake: RestLake, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    options = {"auth.type": "file", "auth.file.path": str(file)}
    with Gate(iceberg_rest.uri, ("Authorization", f"Bearer {TOKEN}")) as gate:
        stream = stream_of(gate, lake, options)
        stream.commit(1, [1])
        file.write_text("former-token")
        with pytest.raises(LakeUnavailable, match="nobody is let in"):
            stream.head(2)
        file.write_text(TOKEN)
        stream.commit(2, [2])
    assert lake.ids() == [1, 2]


@pytest.mark.parametrize("text", [None, "", "two\nlines", "known-t\u00f6ken"])
def test_a_file_without_a_token_is_named_and_not_shown(
    gate: Gate, lake: RestLake, text: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    with pytest.raises(LakeUnavailable, match=str(file)) as raised:
        stream_of(gate, lake, {"auth.type": "file", "auth.file.path": str(file)})
    assert not text or text not in str(raised.value)


SIGNED = {"rest.sigv4-enabled": "true", "rest.signing-name": "glue", "rest.signing-region": "eu-central-1"}
"""Options of Glue's own REST catalog."""


class _Signed(Gate):
    """Lets signed requests in. It does not check the signature, since nobody here has the secret of AWS."""

    def refusal(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, bytes] | None:
        found = {name.lower(): value for name, value in headers.items()}
        signed = found.get("authorization", "").startswith("AWS4-HMAC-SHA256 Credential=AKIAKNOWN/")
        scope = "/eu-central-1/glue/aws4_request" in found.get("authorization", "")
        if signed and scope and found.get("x-amz-security-token") == "known-session":
            return None
        return 403, b'{"error": {"message": "not signed", "type": "ForbiddenException", "code": 403}}'


@pytest.fixture
def keys_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAKNOWN")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "known-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "known-session")


@pytest.mark.usefixtures("keys_of_aws")
def test_requests_are_signed(iceberg_rest: RestCatalogServer, lake: RestLake) -> None:
    with _Signed(iceberg_rest.uri) as gate:
        stream = stream_of(gate, lake, SIGNED)
        stream.commit(1, [1])
        assert gate.posts == 1
    assert lake.ids() == [1]


@pytest.mark.usefixtures("keys_of_aws")
@pytest.mark.parametrize("effect", [Effect.LOST_AFTER, Effect.LOST_BEFORE, Effect.ANSWERED_AFTER])
def test_a_signed_request_is_sent_once(
    iceberg_rest: RestCatalogServer, lake: RestLake, effect: Effect
) -> None:
    """The library would send it up to eleven times."""
    with _Signed(iceberg_rest.uri) as gate:
        stream = stream_of(gate, lake, {**SIGNED, "rest.sigv4.max-retries": "10"})
        head, event = stream.head(1), lake.event([1])
        gate.strike(effect, 503)
        assert isinstance(stream.publish(1, head, [event]), OutcomeUnknown)
        assert gate.posts == (0 if effect is Effect.LOST_BEFORE else 1)
    assert lake.ids() == ([] if effect is Effect.LOST_BEFORE else [1])


def test_a_process_without_keys_of_aws_is_told_so(
    lake: RestLake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with _Signed("http://127.0.0.1:1") as gate, pytest.raises(LakeUnavailable, match="AWS_ACCESS_KEY_ID"):
        stream_of(gate, lake, SIGNED)


@pytest.mark.usefixtures("keys_of_aws")
def test_keys_of_signatures_are_those_of_the_moment_when_a_source_is_made(
    iceberg_rest: RestCatalogServer, lake: RestLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An uploader serves several stores, and has the variables of each for that moment alone."""
    with _Signed(iceberg_rest.uri) as gate:
        options = {**SIGNED, "type": "rest", "uri": gate.uri, "identifier": str(lake.table_name)}
        source = IcebergAdapter().key_source({**options, OPTION: VENDED, "format": "iceberg"})
        assert source is not None
        assert "known-secret" not in source.options.values()
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOTHER")
        # The request is let in. This server has no keys to hand out.
        with pytest.raises(TableRefused, match="hands out no keys"):
            source.keys(lake.location)
