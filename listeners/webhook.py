"""Webhook: each outcome as a CloudEvent to one URL, signed as Standard Webhooks has it.

The receiver finds repetitions by the header `webhook-id`, which is the id of the event.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field

from sluicegate.events.encoding import encode_notification
from sluicegate.events.notifications import Notification, NotificationType
from sluicegate.listeners.http import Answer, Url, post
from sluicegate.listeners.port import (
    Action,
    Done,
    Failed,
    ListenerRefused,
    ListenerUnready,
    Options,
    Outcome,
    Refused,
    Result,
    Services,
    State,
    StatelessListener,
    Step,
    Stream,
)

PREFIX: Final = "whsec_"
SHORTEST_KEY: Final = 24
"""Bytes of a key, as Standard Webhooks asks for."""
CONTENT_TYPE: Final = "application/cloudevents+json"
GONE: Final = 410
Event = Literal["commit", "revert", "savepoint"]
_EVENTS: Final[Mapping[NotificationType, Event]] = {
    NotificationType.COMMITTED: "commit",
    NotificationType.PARTIALLY_COMMITTED: "commit",
    NotificationType.REVERTED: "revert",
    NotificationType.SAVEPOINT_TAKEN: "savepoint",
}


class WebhookOptions(Options):
    """Settings of a webhook."""

    url: Url
    """URL that gets a POST for each outcome. Redirects are not followed."""
    secret_file: Path
    """File with a key for signatures on each line: `whsec_` and 24 to 64 bytes as base64.

    All of them sign, so a receiver can change its key while both are there. Each request reads the file.
    """
    events: tuple[Event, ...] = ("commit", "revert", "savepoint")
    """Kinds of outcomes that are sent."""
    timeout: Annotated[float, Field(gt=0, le=60)] = 10.0
    """Seconds for one request."""


@dataclass(frozen=True)
class Delivery(Action):
    """One request."""

    body: bytes = b""


def sign(keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """Return the header `webhook-signature`: one signature for each key."""
    content = b".".join((message_id.encode(), b"%d" % timestamp, body))
    digests = (hmac.new(key, content, hashlib.sha256).digest() for key in keys)
    return " ".join(f"v1,{base64.b64encode(each).decode()}" for each in digests)


def read_keys(path: Path) -> list[bytes]:
    """Return the keys of a file. Raises ListenerUnready with the way out."""
    example = f'write one key on each line, made for example with: echo "{PREFIX}$(openssl rand -base64 32)"'
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ListenerUnready(f"secret_file {path} cannot be read ({error}); {example}") from error
    keys = []
    for number, line in enumerate(lines, 1):
        try:
            key = base64.b64decode(line.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            key = b""
        if len(key) < SHORTEST_KEY:
            raise ListenerUnready(
                f"secret_file {path}: line {number} is not base64 of {SHORTEST_KEY} bytes or more; {example}"
            )
        keys.append(key)
    if not keys:
        raise ListenerUnready(f"secret_file {path} is empty; {example}")
    return keys


def cloud_event(outcome: Outcome) -> bytes:
    """Return an outcome as a CloudEvent in structured JSON, with the attributes that it has in Kafka."""
    found = Notification(outcome.id, outcome.type, outcome.stream, "", "", outcome.body)
    message = encode_notification(found, outcome.time)
    event: dict[str, Any] = {
        name.removeprefix("ce_"): value.decode()
        for name, value in message.headers
        if name.startswith("ce_") and value is not None
    }
    event |= {"datacontenttype": "application/json", "data": json.loads(message.value)}
    return json.dumps(event, separators=(",", ":")).encode()


class Webhook(StatelessListener):
    """A webhook of one stream."""

    def __init__(self, options: WebhookOptions, services: Services) -> None:
        self._options, self._http = options, services.http

    def apply(self, outcome: Outcome, state: State) -> Step[State]:
        """Return one request for an outcome, if its kind is sent."""
        if _EVENTS[outcome.type] not in self._options.events:
            return Step(state)
        text = f"send decision {outcome.decision} to {urlsplit(self._options.url).hostname}"
        return Step(state, (Delivery(key=outcome.id, text=text, body=cloud_event(outcome)),))

    async def run(self, action: Action) -> Result:
        """Send a request."""
        if not isinstance(action, Delivery):
            raise TypeError(f"a webhook has no action {type(action).__name__}")
        try:
            keys = await asyncio.to_thread(read_keys, self._options.secret_file)
        except ListenerRefused as error:
            return Failed(f"{error}.")
        now = int(time.time())
        headers = {
            "content-type": CONTENT_TYPE,
            "webhook-id": action.key,
            "webhook-timestamp": str(now),
            "webhook-signature": sign(keys, action.key, now, action.body),
        }
        url = self._options.url
        answer = await post(self._http, url, action.body, headers, self._options.timeout)
        if not isinstance(answer, Answer):
            return answer
        if answer.is_success:
            return Done()
        if answer.status == GONE:
            return Refused(f"{url} answered 410 Gone: it wants no more events.")
        return Failed(f"{url} answered {answer.status}. Look at the receiver; redirects are not followed.")


class WebhookType:
    """Type `webhook`."""

    options = WebhookOptions

    def check(self, options: WebhookOptions, stream: Stream) -> None:
        """Refuse a webhook without a usable key, or one that sends nothing."""
        if not options.events:
            raise ListenerRefused("`events` is empty, so nothing is sent. Name one, or remove the listener")
        read_keys(options.secret_file)

    def open(self, options: WebhookOptions, stream: Stream, services: Services) -> Webhook:
        """Return the webhook of a stream."""
        return Webhook(options, services)


TYPE: Final = WebhookType()
