"""Check of a sink before its query starts. It runs in the driver and changes nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from sluicegate.lakes.port import TableRefused
from sluicegate.writer_hooks.errors import BadOption, HookError, PreflightFailed, RegistrationUnanswered
from sluicegate.writer_hooks.options import SinkOptions, log_of, table_of
from sluicegate.writer_hooks.registration import coordinator_advice
from sluicegate.writer_hooks.spark.examining import log_troubles, table_troubles, wrong_options
from sluicegate.writer_hooks.spark.incarnation import check_location, probe_query

_TIMEOUT: Final = 10.0


def preflight(options: Mapping[str, str], *, timeout: float = _TIMEOUT) -> None:
    """Raise an error unless a query with these options could start and write at present.

    `options` are those of one query's sink, `checkpointLocation` among them. Nothing is changed: a probe in
    the log asks the coordinator, and has no effect. Raises PreflightFailed with all reasons:

    - an option is wrong, or the checkpoint location belongs to another query,
    - the table cannot be opened,
    - Kafka does not respond within `timeout` seconds, or a topic is missing,
    - no coordinator answers within `timeout` seconds, or it would refuse the start.
    """
    found = list(dict.fromkeys(_troubles(options, timeout)))
    if found:
        known = {name.lower(): value for name, value in options.items()}
        region, stream = (known.get(name) or "(none given)" for name in ("region", "stream"))
        lines = "".join(f"\n- {trouble}" for trouble in found)
        raise PreflightFailed(f"region {region} of stream {stream} cannot write as things stand:{lines}")


def _troubles(options: Mapping[str, str], timeout: float) -> Iterator[str]:
    """Yield all problems. A wrong option prevents only the checks that need it."""
    wrong = wrong_options(options)
    yield from wrong
    yield from _table_troubles(options)
    unreachable = list(_log_troubles(options, timeout))
    yield from unreachable
    if wrong:
        return
    sink = SinkOptions.parse(options)
    try:
        check_location(sink)
        if not unreachable:
            # A query waits for its answer as long as its options state; this check does not.
            region = replace(sink.region, registration_timeout=timeout, publish_timeout=timeout)
            probe_query(replace(sink, region=region))
    except RegistrationUnanswered:
        yield (
            f"no coordinator answered within {timeout:g} s. {coordinator_advice(sink.region)}; start one "
            "with sluicegate run. Without one the start waits as long as registration.timeout states"
        )
    except HookError as error:
        yield str(error)


def _table_troubles(options: Mapping[str, str]) -> Iterator[str]:
    try:
        yield from table_troubles(*table_of(options))
    except (BadOption, TableRefused):
        return  # It is among the wrong options.


def _log_troubles(options: Mapping[str, str], timeout: float) -> Iterator[str]:
    try:
        yield from log_troubles(*log_of(options), timeout)
    except BadOption:
        return  # It is among the wrong options.
