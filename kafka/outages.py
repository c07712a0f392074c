"""One sentence when Kafka goes away and one when it is back, in place of the client's many lines a second.

Other lines of the client are shown once, and their repetitions rarely.
"""

import logging
import time
from typing import Final

from sluicegate.kafka.internals import LOGIN_ERRORS, login_reason

_log = logging.getLogger(__name__)

GRACE: Final = 2.0
"""Seconds of trouble before it is called an outage: an election, or a restart of one broker, is none."""
FIRST_PAUSE: Final = 10.0
LONGEST_PAUSE: Final = 300.0
QUIET: Final = 8.0
"""Seconds without a sign of trouble until Kafka counts as back: one broker of several may stay away."""
OVER: Final = 60.0
"""Seconds without a sign of trouble after which the next one begins a new outage: clients retry sooner."""

LOGGERS: Final = (
    "aiokafka",
    "aiokafka.cluster",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.producer.sender",
)
NOISE: Final = (
    "Unable connect to",
    "Unable to request metadata from",
    "Unable to update metadata from",
    "No broker metadata found",
    "Failed fetch messages from",
    "Failed fetch offsets from",
    "Group Coordinator Request failed",
    "FindCoordinator Request failed",
    "Heartbeat send request failed",
    "Heartbeat session expired",
    "Heartbeat failed for group %s: coordinator",
    "Error sending %s to node",
    "Marking the coordinator dead",
    "Cannot send %r to",
    "Could not send %r",
    "Got error produce response",
)
"""Prefixes of the client's messages that only report that a broker does not answer."""
CONNECTIONS: Final = "aiokafka.conn"
"""Logger that shows each request at the level `debug`."""
_LOGINS: Final = ("SaslAuthenticateRequest", "SaslAuthenticateResponse")
ROUTINE: Final = ("Heartbeat failed for group", "Heartbeat failed: local member_id")
"""Prefixes of messages during a rebalance; they are no sign of an outage."""


_LASTS: Final = (
    "(%s), for %d s now; it is tried again and again, and nothing is lost. Said again in %d s, if it lasts"
)
AWAY: Final = f"Kafka does not answer {_LASTS}"
REFUSED: Final = f"Kafka refuses the login {_LASTS}"

MOST_TEXTS: Final = 500
"""Different texts that each count, such as one for each topic; of later ones, one of each message."""


class Outage:
    """Says that Kafka is away: soon, then ever more rarely; and once that it is back.

    It may be told from any thread: a race costs a sentence too many. Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._said = False
        self._refused = False
        self._last = 0.0
        self._next = 0.0
        self._pause = FIRST_PAUSE

    def trouble(self, detail: str, now: float | None = None, *, refused: bool = False) -> None:
        """Take note of a sign that Kafka does not answer; that it refuses the login is said at once."""
        now = time.monotonic() if now is None else now
        if self._since is None or now - self._last > (OVER if self._said else QUIET):
            self._since, self._said, self._refused = now, False, False
            self._next, self._pause = now + GRACE, FIRST_PAUSE
        self._last = now
        if refused and not self._refused:
            self._next = now
        self._refused = self._refused or refused
        if now < self._next:
            return
        self._said = True
        self._next = now + self._pause
        _log.warning(
            REFUSED if refused else AWAY,
            detail,
            now - self._since,
            self._pause,
        )
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def answered(self, now: float | None = None) -> None:
        """Take note that Kafka has answered."""
        now = time.monotonic() if now is None else now
        if self._since is None or (self._said and now - self._last < QUIET):
            return
        if self._said:
            _log.warning("Kafka answers again, after %d s", now - self._since)
        self._since, self._said = None, False


class ConnectionNoise(logging.Filter):
    """Keeps the client's lines about silent brokers and rebalances out of a log without debug lines."""

    def __init__(self, outage: Outage) -> None:
        super().__init__()
        self._outage = outage

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record is shown."""
        text = str(record.msg)
        if not text.startswith(NOISE + ROUTINE):
            return True
        if text.startswith(NOISE):
            found = record.args if isinstance(record.args, tuple) else ()
            refused = next((each for each in found if isinstance(each, LOGIN_ERRORS)), None)
            if refused is not None:
                self._outage.trouble(login_reason(refused), refused=True)
            else:
                self._outage.trouble(record.getMessage())
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


class Repetitions(logging.Filter):
    """Shows a line of a client at once, and its repetitions once in LONGEST_PAUSE seconds.

    A logger that shows debug lines shows all of them. Any thread may log: a race costs a line too many.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[str, float] = {}

    def filter(self, record: logging.LogRecord, now: float | None = None) -> bool:
        """Return True if the record is shown."""
        if record.levelno < logging.WARNING or logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
            return True
        now = time.monotonic() if now is None else now
        text = record.getMessage()
        key = text if text in self._shown or len(self._shown) < MOST_TEXTS else str(record.msg)
        if now - self._shown.get(key, -LONGEST_PAUSE) < LONGEST_PAUSE:
            return False
        self._shown[key] = now
        return True


def _hide_logins(record: logging.LogRecord) -> bool:
    """Take passwords and tokens out of a line that shows the request of a login, or its answer."""
    if isinstance(record.args, tuple):
        record.args = tuple(_hidden(each) for each in record.args)
    return True


def _hidden(value: object) -> object:
    name = type(value).__name__
    return f"{name}(...)" if name.startswith(_LOGINS) else value


KAFKA: Final = Outage()
"""That of this process."""
_NOISE_FILTER: Final = ConnectionNoise(KAFKA)
_REPETITIONS: Final = Repetitions()


def quiet_clients() -> None:
    """Have `KAFKA` alone report outages in this process, and repeated lines of the client shown rarely.

    Filters go to the loggers in LOGGERS, which are aiokafka's, and to no other one. May be called again.
    """
    for name in LOGGERS:
        for each in (_NOISE_FILTER, _REPETITIONS):
            logging.getLogger(name).addFilter(each)
    logging.getLogger(CONNECTIONS).addFilter(_hide_logins)
