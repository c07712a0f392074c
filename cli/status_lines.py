"""Format of a stream for people, as `sluicegate status` prints it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from sluicegate.coordinator.telemetry.wording import duration, iso_time

SHORTEST: Final = 8
"""Minimum number of characters of a lineage."""


def lines_of(shown: Mapping[str, Any], now: int, *, verbose: bool) -> list[str]:
    """Format a stream as lines; `now` in milliseconds since the Unix epoch."""
    again = shown["read_by_restart"]
    place = f"partition {shown['partition']}" + (
        "" if again is None else f" (a restart reads {again} records)"
    )
    note = "" if shown["configured"] else "  NOT CONFIGURED HERE"
    if "regions" not in shown:
        return [f"{shown['stream']}  {shown['problem'] or 'not opened yet'}  {place}{note}"]
    snapshot = "" if shown["snapshot"] is None else f" (snapshot {shown['snapshot']})"
    commit = f"commit {shown['committed']}{snapshot}" if shown["committed"] else "no commit yet"
    files = _files(shown["pending_files"])
    pending = f", {shown['pending']} decided and not confirmed ({files})" if shown["pending"] else ""
    heading = f"{shown['stream']}  {commit}{pending}  watermark {_time(shown['watermark'])}  {place}{note}"
    lines = [heading, _source(shown, now), *_troubles(shown), *_waiting(shown)]
    regions: Mapping[str, Mapping[str, Any]] = shown["regions"]
    short = _short(each["cut"]["lineage"] for each in regions.values() if each["cut"])
    width = max((len(name) for name in regions), default=0)
    for name, region in regions.items():
        cut = region["cut"]
        lineage = "" if not cut else cut["lineage"] if verbose else short[cut["lineage"]]
        at = f"checkpoint {cut['checkpoint']} of lineage {lineage}" if cut else "nothing committed"
        facts = "; ".join([at, *_facts(shown, region, now)])
        lines.append(f"  {name:<{width}}  {_state(region):<12}  {facts}")
        if region["refused"]:
            lines.append(f"    LAST OPENING REFUSED: {region['refused']}")
    lines += [
        f"  REFUSED: a query of region {name}, which is not in the stream: {why}"
        for name, why in shown["strangers"].items()
    ]
    return lines


def _source(shown: Mapping[str, Any], now: int) -> str:
    if shown["live"]:
        reading = "" if shown["ready"] else ", which is still reading the log or waits for its table"
        return f"  as of now, by its coordinator{reading}"
    return f"  as of {_ago(shown['as_of'], now)}, by its state record"


def _troubles(shown: Mapping[str, Any]) -> Iterator[str]:
    if shown["paused"]:
        yield f"  PAUSED: {shown['paused']}. Nothing is committed; what is below is as it was then"
    if shown["stalled"]:
        yield f"  STALLED: {shown['stalled']}"
    for each in shown["retries"]:
        lasted = f" in {duration(each['lasted'] / 1000)}" if each["lasted"] >= 1000 else ""
        times = "once" if each["failures"] == 1 else f"{each['failures']} times{lasted}"
        said = each["reason"] in (shown["stalled"] or "")
        yield f"  RETRYING: {each['effect']} failed {times}: {'as above' if said else each['reason']}"
    for each in shown["notes"]:
        yield f"  NOTE: {each}"


def _waiting(shown: Mapping[str, Any]) -> Iterator[str]:
    waiting = shown["waiting"]
    if waiting["files"]:
        yield f"  WAITING: {_amount(waiting['files'], waiting['rows'], waiting['oldest'])}"
    for each in shown["waits_for"]:
        yield f"  WAITS: {each}"


def _state(region: Mapping[str, Any]) -> str:
    return "SILENT" if region["silent"] is not None else str(region["state"])


def _facts(shown: Mapping[str, Any], region: Mapping[str, Any], now: int) -> Iterator[str]:
    """Format the facts of a region other than its committed position."""
    if region["silent"] is not None:
        if region["state"] != "active":
            yield str(region["state"])
        due = duration(region["heartbeat_interval"] / 1000)
        then = "" if shown["live"] else " when that was written"
        yield (
            f"silent for {duration(region['silent'])}{then}, heartbeats are due every {due}: its query has "
            "probably ended"
        )
    elif region["heard"] is not None:
        yield f"heard of {_ago(region['heard'], now)}"
    if region["waiting_files"]:
        waits = _amount(region["waiting_files"], region["waiting_rows"], region["waiting_oldest"])
        yield f"waiting: {waits}"
    # The stall of the stream is printed above already.
    if region["reason"] is not None and region["reason"] != shown["stalled"]:
        yield str(region["reason"])


def _amount(files: int, rows: int, oldest: float) -> str:
    some = f" with {rows:,} rows" if rows else ""
    return f"{_files(files)}{some}, the oldest for {duration(oldest)}"


def _files(count: int) -> str:
    return f"{count:,} {'file' if count == 1 else 'files'}"


def _short(lineages: Iterable[str]) -> dict[str, str]:
    """Return a short form of each lineage: a unique prefix and its generation, if that is shorter."""
    parts = {each: each.rpartition(".") for each in lineages}
    heads = {head or tail for head, _, tail in parts.values()}
    found = {}
    for each, (head, dot, tail) in parts.items():
        whole = head or tail
        length = next(
            size
            for size in range(SHORTEST, SHORTEST + len(whole) + 1)
            if not any(other != whole and other.startswith(whole[:size]) for other in heads)
            or size >= len(whole)
        )
        text = f"{whole[:length]}…{dot if head else ''}{tail if head else ''}"
        found[each] = text if len(text) < len(each) else each
    return found


def _ago(millis: int, now: int) -> str:
    return f"{duration(max(0, now - millis) / 1000)} ago"


def _time(millis: int | None) -> str:
    if millis is None:
        return "-"
    return iso_time(millis - millis % 1000) or f"{millis} ms"
