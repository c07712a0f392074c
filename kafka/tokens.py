"""Sources of tokens for OAUTHBEARER: a file, an OpenID provider, IAM of Amazon MSK.

Each process asks for itself: settings and options name a source, and no token travels. The clients of a
process share one token, which is renewed after 80 % of its life. One that the brokers refuse is dropped.
While a source does not answer, its last token serves until its end.
"""

import asyncio
import base64
import json
import logging
import math
import ssl
import time
from abc import abstractmethod
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError

from sluicegate.token_claims import stated_end

_log = logging.getLogger(__name__)

RENEWED_AT: Final = 0.8
"""Share of a token's life after which it is renewed."""
PAUSE: Final = 10.0
"""Seconds between two questions, if the answers are of no use: a provider may lock a client that insists."""
_SECONDS: Final = 10.0
"""Longest wait for an answer."""
_LARGEST: Final = 1 << 20
"""Bytes of an answer."""
_SHOWN: Final = 200
"""Characters of a reason."""
_SIGNER: Final = "aws_msk_iam_sasl_signer"


class NoToken(KafkaConnectionError):  # type: ignore[misc]
    """A source gives no token now. The connection is tried again."""

    def __str__(self) -> str:
        return str(self.args[0])


class TokenSource(AbstractTokenProvider):  # type: ignore[misc]
    """Port of all sources: gives the token of each new connection."""

    @abstractmethod
    async def token(self) -> str:
        """Return the token. Raises NoToken."""

    def extensions(self) -> dict[str, str]:
        """Return what goes to the brokers with the token."""
        return {}

    async def lifetime(self) -> float | None:
        """Return the seconds for which the token is valid; None if nothing states them. Raises NoToken."""
        end = stated_end(await self.token())
        return None if end is None else end - time.time()

    def refused(self) -> None:
        """Take note that the brokers refused the newest token."""


class TokenFile(TokenSource):
    """Reads the token for each connection, so that a renewed one counts without a restart."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def token(self) -> str:
        """Return the token. Raises NoToken while there is none."""
        return await asyncio.to_thread(_read, self._path, "token")


def _read(path: Path, what: str) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NoToken(f"the {what} file {path} cannot be read: {type(error).__name__}") from error
    if not text:
        raise NoToken(f"the {what} file {path} is empty")
    return text


class Issued(NamedTuple):
    """An answer of a source."""

    token: str
    life: float
    """Seconds, from the question on."""


class RenewedToken(TokenSource):
    """Keeps a token for most of its life. Clients in event loops of several threads may share it."""

    def __init__(self) -> None:
        self._token: str | None = None
        self._asked = self._renewal = self._end = -math.inf
        self._problem = ""
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    @abstractmethod
    async def issue(self) -> Issued:
        """Ask for a new token. Raises NoToken."""

    async def token(self) -> str:
        """Return the token. Raises NoToken if there is none, and the source gives none."""
        # Connections of one loop that open together ask once.
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            now = time.monotonic()
            if self._token is not None and now < self._renewal:
                return self._token
            if not self._problem or now >= self._asked + PAUSE:
                await self._renew(now)
            if self._token is None or (self._problem and now >= self._end):
                raise NoToken(self._problem or "the brokers refused the token just now")
            return self._token

    async def lifetime(self) -> float | None:
        """Return the seconds as the source has stated them, or else as the token itself does."""
        await self.token()
        left = self._end - time.monotonic()
        return left if left > 0 else await super().lifetime()

    async def _renew(self, now: float) -> None:
        self._asked = now
        try:
            self._token, life = await self.issue()
        except NoToken as error:
            self._problem = str(error)
            if self._token is not None and now < self._end:
                left = self._end - now
                _log.warning("the token is not renewed: %s. The present one is valid for %d s", error, left)
        else:
            self._problem = ""
            self._renewal, self._end = now + RENEWED_AT * life, now + life

    def refused(self) -> None:
        """Drop the token, so that the next connection asks for another, unless it is new."""
        if time.monotonic() >= self._asked + PAUSE:
            self._token = None


class OidcTokens(RenewedToken):
    """Tokens of an OpenID provider, for a client with a secret (client credentials of OAuth 2.0)."""

    def __init__(
        self, url: str, client: str, secret_file: Path, scope: str, extensions: str, ca_file: Path | None
    ) -> None:
        super().__init__()
        self._url = url
        # A query may have a key.
        self._shown = url.partition("?")[0]
        self._client = client
        self._secret_file = secret_file
        self._form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        self._extensions = parse_extensions(extensions)
        self._ca_file = ca_file

    def extensions(self) -> dict[str, str]:
        """Return the extensions of the settings."""
        return self._extensions

    async def issue(self) -> Issued:
        """Ask the token endpoint. Raises NoToken, without the secret."""
        # A changed secret counts with the next token.
        secret = await asyncio.to_thread(_read, self._secret_file, "secret")
        login = base64.b64encode(f"{self._client}:{secret}".encode()).decode()
        status, text = await self._ask(login)
        answer = _object(text)
        token, life = answer.get("access_token"), _seconds(answer.get("expires_in"))
        if status == 200 and isinstance(token, str) and token.isascii() and token.isprintable() and token:
            return Issued(token, life)
        if status == 200:
            raise NoToken(f"the token endpoint {self._shown} answers without a token")
        told = [str(answer[name]) for name in ("error", "error_description") if answer.get(name)]
        reason = (
            ": ".join(told)
            .replace(secret, "[secret]")
            .replace(login, "[secret]")
            .encode("ascii", "replace")
            .decode()
        )
        reason = "".join(each for each in reason if each.isprintable())[:_SHOWN]
        raise NoToken(
            f"the token endpoint {self._shown} refuses the client {self._client} with the status {status}"
            f"{f' ({reason})' if reason else ''}"
        )

    async def _ask(self, login: str) -> tuple[int, str]:
        # Most processes never ask, and tasks of Spark must start fast.
        from urllib.request import getproxies, proxy_bypass

        import aiohttp

        place = urlsplit(self._url)
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SECONDS)) as session,
                # A redirection would take the secret to another host.
                session.post(
                    self._url,
                    data=self._form,
                    headers={"Accept": "application/json", "Authorization": f"Basic {login}"},
                    # The library's own way to a proxy reads ~/.netrc besides, and then refuses the header.
                    proxy=None if proxy_bypass(place.netloc) else getproxies().get(place.scheme),
                    allow_redirects=False,
                    ssl=self._trusted(),
                ) as answer,
            ):
                body = await answer.content.read(_LARGEST)
                return answer.status, body.decode(errors="replace")
        except TimeoutError as error:
            raise NoToken(
                f"the token endpoint {self._shown} gives no answer within {_SECONDS:g} s"
            ) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoToken(f"the token endpoint {self._shown} gives no answer: {error}") from error

    def _trusted(self) -> ssl.SSLContext:
        """Return the trust in the authorities of the system, and in those of the brokers."""
        context = ssl.create_default_context()
        if self._ca_file is not None:
            context.load_verify_locations(self._ca_file)
        return context


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(value: object) -> float:
    """Return the life of a token. One that the provider does not state is 0: each connection asks."""
    try:
        return max(0.0, float(value)) if isinstance(value, str | int | float) else 0.0
    except ValueError:
        return 0.0


class MskTokens(RenewedToken):
    """Tokens for Amazon MSK, signed with the credentials that AWS gives this process."""

    def __init__(self, region: str) -> None:
        super().__init__()
        self._region = region

    async def issue(self) -> Issued:
        """Sign a token. Raises NoToken, with the credential that is missing."""
        # It may ask AWS for credentials, which blocks.
        return await asyncio.to_thread(self._sign)

    def _sign(self) -> Issued:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

        # At the level `debug` it logs signatures, and credentials of the answers of AWS.
        logging.getLogger("botocore").setLevel(logging.INFO)
        now = time.time()
        try:
            token, end = MSKAuthTokenProvider.generate_auth_token(self._region)
        except AttributeError as error:
            # The signer takes it for granted that AWS gives something.
            raise NoToken(
                "AWS gives this process no credentials for a token of MSK: set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give its machine or pod a role"
            ) from error
        except Exception as error:  # botocore has many classes
            raise NoToken(f"no token of MSK can be signed: {type(error).__name__}: {error}") from error
        return Issued(token, end / 1000 - now)


def signer_installed() -> bool:
    """Return True if the package that signs tokens for MSK is there."""
    return find_spec(_SIGNER) is not None


# One of each for a process: its clients share the token.
oidc_tokens: Final = cache(OidcTokens)
msk_tokens: Final = cache(MskTokens)


def parse_extensions(text: str) -> dict[str, str]:
    """Parse `name=value`, several with commas (RFC 7628: names have letters alone). Raises ValueError."""
    found: dict[str, str] = {}
    for each in text.split(",") if text else ():
        name, separator, value = (part.strip() for part in each.partition("="))
        if not (separator and value and value.isascii() and value.isprintable()):
            raise ValueError("must be name=value, several with commas")
        if not (name.isascii() and name.isalpha()) or name.lower() == "auth" or name in found:
            raise ValueError(f"must have each name once, with letters alone, and not `auth`: {name!r}")
        found[name] = value
    return found
