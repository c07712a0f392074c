"""A server before a REST catalog that lets in nobody without authentication, and gives tokens."""

import base64
import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs

from tests.doubles.proxy import Proxy

CLIENT: Final = "client-of-the-gate"
SECRET: Final = "secret-of-the-gate"  # noqa: S105
_TOKENS: Final = "/oauth/tokens"


class Gate(Proxy):
    """A proxy that asks for one header, or for a token that it has given for the client's secret."""

    def __init__(self, target: str, header: tuple[str, str] | None = None) -> None:
        super().__init__(target)
        self._header = header
        self._valid: set[str] = set()
        self.given = 0
        """Number of the tokens that were given."""

    def expire(self) -> None:
        """Let no token count any more."""
        self._valid.clear()

    def refusal(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, bytes] | None:
        if path.endswith(_TOKENS):
            return self._token(headers, body)
        found = {name.lower(): value for name, value in headers.items()}
        if self._header is not None:
            name, value = self._header
            let_in = found.get(name.lower()) == value
        else:
            let_in = found.get("authorization", "").removeprefix("Bearer ") in self._valid
        if not let_in:
            return 401, _error("NotAuthorizedException", "nobody is let in like this")
        return None

    def _token(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        basic = f"Basic {base64.b64encode(f'{CLIENT}:{SECRET}'.encode()).decode()}"
        known = (form.get("client_id"), form.get("client_secret")) == (CLIENT, SECRET)
        if form.get("grant_type") != "client_credentials" or not (
            known or headers.get("Authorization") == basic
        ):
            return 401, json.dumps({"error": "invalid_client", "error_description": "unknown"}).encode()
        self.given += 1
        self._valid.add(f"token-{self.given}")
        answer = {"access_token": f"token-{self.given}", "token_type": "bearer", "expires_in": 3600}
        return 200, json.dumps(answer).encode()


def _error(kind: str, message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "code": 401}}).encode()
