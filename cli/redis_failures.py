"""Failures of a connection to Redis, as sentences with the way out."""

import asyncio
import contextlib
import ssl
from typing import Final
from urllib.parse import urlsplit

from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from sluicegate.coordinator.settings.model import RedisSettings
from sluicegate.state_store.redis_store import tls_context

_OTHER_HOST: Final = (62, 64)
"""Codes of OpenSSL for a certificate of another host name, or of another address."""
_EXPIRED: Final = 10
_CLOSED: Final = ("CLOSED BY SERVER", "RESET BY PEER")
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")


_REFUSALS: Final = {
    "read only replica": "is a replica, which takes no writes ({}). Set redis.url to its primary",
    "maxmemory": "is full ({}). Raise its maxmemory, or delete keys of others from it",
    "MISCONF": (
        "takes no writes, as it cannot save to its disk ({}). Correct what its log names, such as a full disk"
    ),
}
"""Answers to a write by a part of their text. Older servers give another prefix to errors in a script."""


async def explain(error: Exception, redis: RedisSettings) -> Exception:
    """Return the error that says why the server closed an encrypted connection, `error` if none does.

    With TLS 1.3, a server refuses the client's certificate after the handshake. A client that writes at
    once sees a closed connection in place of the reason. This connects once more, and only reads.
    """
    tls = redis.shown.startswith("rediss:")
    if not tls or not any(each in str(error).upper() for each in _CLOSED):
        return error
    address, files = urlsplit(redis.shown), redis.client_options()
    names = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_password")
    try:
        context = tls_context(*(files.get(name) for name in names))
        async with asyncio.timeout(redis.timeout):
            reader, writer = await asyncio.open_connection(address.hostname, address.port, ssl=context)
            with contextlib.closing(writer):
                await reader.read(1)
    except ssl.SSLError as reason:
        return reason
    except OSError:
        return error
    return error


def format_failure(error: Exception, *, tls: bool) -> str:
    """Format the failure of a connection, to follow the address of the server.

    `tls`: the connection is to be encrypted.
    """
    if isinstance(error, ResponseError):
        return _format_answer(error)
    found = next((each for each in _chain(error) if isinstance(each, ssl.SSLError)), None)
    if isinstance(found, ssl.SSLCertVerificationError):
        return _format_distrust(found)
    reason = (found.reason if found is not None else None) or ""
    text = f"{reason} {error}".upper()
    if "CERTIFICATE_REQUIRED" in text:
        return "demands a certificate of the client. Set redis.certificate_file and redis.key_file"
    if "UNKNOWN_CA" in text or "BAD_CERTIFICATE" in text:
        return "does not trust redis.certificate_file. Set it to one that the authority of the server signed"
    if tls and (isinstance(error, RedisTimeoutError) or any(each in text for each in _NO_TLS)):
        return f"does not answer ({error}). If it has no TLS at this port, begin redis.url with redis://"
    if found is not None:
        return (
            f"was not asked: redis.certificate_file and redis.key_file cannot be used ({reason or found}). "
            "Give PEM files that belong together, and redis.key_password_file if the key has a password"
        )
    if not tls and any(each in text for each in _CLOSED):
        return f"closes the connection ({error}). If it has TLS at this port, begin redis.url with rediss://"
    return f"does not answer ({error}); check redis.url, redis.ca_file and that it runs"


def _format_answer(error: ResponseError) -> str:
    """Format an error that a server has answered with."""
    text = next((text for part, text in _REFUSALS.items() if part in str(error)), None)
    return (
        text.format(error)
        if text
        else f"answers with an error ({error}). Check redis.url and the settings of the server"
    )


def _format_distrust(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _OTHER_HOST:
        return (
            f"has a certificate of another host: {error.verify_message.rstrip('.')}. Name a host of it in "
            "redis.url"
        )
    if error.verify_code == _EXPIRED:
        return "has a certificate that has expired. Give the server a new one"
    return (
        "has a certificate that is signed by no authority that is trusted here: "
        f"{error.verify_message}. Set redis.ca_file to the certificate of the authority that signed it"
    )


def _chain(error: BaseException | None) -> list[BaseException]:
    """Return an error with its causes, the error itself first."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
