"""An OpenID provider in the test's process, and a Kafka that asks it for the keys of tokens."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

from sluicegate.cli.local.process import LOOPBACK, free_port
from sluicegate.cli.local.servers import EmbeddedKafka

CLIENT: Final = "writer"
CLIENT_SECRET: Final = "known-secret-of-oidc"  # noqa: S105
AUDIENCE: Final = "kafka"
_MODULE: Final = "org.apache.kafka.common.security.oauthbearer"
_KEY: Final = "key-1"


def _encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


@dataclass
class Provider:
    """Signs tokens for a client with a secret, and publishes the key. Tests change its fields."""

    url: str
    life: float = 3600
    secret: str = CLIENT_SECRET
    status: int = 200
    """Status of its answers to questions for a token."""
    answer: bytes | None = None
    """Body in place of a token."""
    asked: list[dict[str, list[str]]] = field(default_factory=list)
    """Forms of the questions."""
    issued: list[str] = field(default_factory=list)
    key: RSAPrivateKey = field(default_factory=lambda: generate_private_key(65_537, 2048))

    def token(self, **claims: Any) -> str:
        """Return a signed token; `claims` replace its own."""
        now = int(time.time())
        own = {"iss": self.url, "aud": AUDIENCE, "sub": CLIENT, "iat": now, "exp": now + int(self.life)}
        head = {"alg": "RS256", "typ": "JWT", "kid": _KEY}
        payload = {**own, "jti": str(len(self.issued)), **claims}
        text = ".".join(_encoded(json.dumps(each).encode()) for each in (head, payload))
        signature = self.key.sign(text.encode(), PKCS1v15(), SHA256())
        return f"{text}.{_encoded(signature)}"

    def keys(self) -> bytes:
        """Return the published key."""
        numbers = self.key.public_key().public_numbers()
        n, e = (_encoded(each.to_bytes((each.bit_length() + 7) // 8)) for each in (numbers.n, numbers.e))
        key = {"kty": "RSA", "kid": _KEY, "use": "sig", "alg": "RS256", "n": n, "e": e}
        return json.dumps({"keys": [key]}).encode()

    def reply(self, form: dict[str, list[str]], authorization: str | None) -> tuple[int, bytes]:
        """Return the answer to a question for a token. The secret is in the header, or in the form."""
        self.asked.append(form)
        right = base64.b64encode(f"{CLIENT}:{self.secret}".encode()).decode()
        in_form = (form.get("client_id"), form.get("client_secret")) == ([CLIENT], [self.secret])
        if authorization != f"Basic {right}" and not in_form:
            problem = {"error": "invalid_client", "error_description": f"who is {authorization}?"}
            return 401, json.dumps(problem).encode()
        if self.answer is not None or self.status != 200:
            return self.status, self.answer or b""
        token = self.token()
        self.issued.append(token)
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": self.life}
        return 200, json.dumps(answer).encode()


@contextmanager
def provider() -> Iterator[Provider]:
    """Give a provider on a loopback port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, given.keys())

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer(*given.reply(parse_qs(form), self.headers["Authorization"]))

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if status == 302:
                self.send_header("Location", f"{given.url}/elsewhere")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        given = Provider(f"http://{LOOPBACK}:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield given
        finally:
            server.shutdown()
            thread.join()


class OidcKafka(EmbeddedKafka):
    """Kafka with a door for tokens of a provider, beside its open one."""

    def __init__(self, given: Provider, **settings: str) -> None:
        self.sasl = f"{LOOPBACK}:{free_port()}"
        """Address of the door: SASL_PLAINTEXT."""
        keys = f"{given.url}/keys"
        self.java_options = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}",)
        door = "listener.name.sasl_plaintext.oauthbearer.sasl"
        super().__init__(
            settings={
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                f"{door}.jaas.config": f"{_MODULE}.OAuthBearerLoginModule required;",
                f"{door}.server.callback.handler.class": f"{_MODULE}.OAuthBearerValidatorCallbackHandler",
                f"{door}.oauthbearer.jwks.endpoint.url": keys,
                f"{door}.oauthbearer.expected.audience": AUDIENCE,
                f"{door}.oauthbearer.expected.issuer": given.url,
                **settings,
            },
            listeners=(f"SASL_PLAINTEXT://{self.sasl}",),
        )


def oidc_security(given: Provider, folder: Path) -> dict[str, Any]:
    """Return the settings of the door; the secret is in a file of the folder."""
    file = folder / "oidc.secret"
    file.write_text(f"{given.secret}\n", encoding="utf-8")
    return {
        "protocol": "SASL_PLAINTEXT",
        "mechanism": "OAUTHBEARER",
        "token_source": "oidc",
        "token_url": f"{given.url}/token?key=known-key",
        "token_client": CLIENT,
        "token_secret_file": file,
        "token_scope": "kafka",
        "token_extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
    }
