"""An hour on a REST catalog whose keys and tokens end all the time, while coordinators are killed.

    python -m tools.bench.vended_keys [--minutes 60] [--kills 20] [--key-life 60] [--token-life 20] [--seed 1]
        [--limit 30] [--keep DIR] [--json]

Nessie hands out keys of S3, and lets in nobody without a token of an OpenID provider (client credentials). It
names no end of its keys, so the store refuses keys before anybody renews them. A gate before Nessie ends all
tokens at once, which no token of its own does. Nobody has keys in the environment.

Two regions of plain Python, each a process, complete a checkpoint every second. A coordinator is killed
(SIGKILL) at any moment, or at a failpoint of a commit, in turns, and started again at once. All keys are
ended at once twice, and all tokens twice. Half of the coordinators renew tokens by time, half after a
refusal. So do the regions, whose writers ask for keys with each checkpoint.

At the end the table must have each row once, for pyiceberg and for Iceberg's Java library. A pause is the
time between two commits without the time in which no process of a coordinator ran; the start of one counts.
Neither a pause nor the way of a checkpoint to its commit may be longer than `--limit` seconds. No token, key
or secret may be in a log, an event, a record of Redis, a page or the output of a command. The result names
what failed, and the exit status is 1 then.
"""

import argparse
import asyncio
import base64
import http.client
import json
import logging
import os
import sys
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import psutil
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from redis import Redis

from sluicegate.cli.local.process import ChildProcess
from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey
from sluicegate.events.envelope import EventType
from sluicegate.events.notifications import Committed
from sluicegate.failpoints.points import VARIABLE
from sluicegate.lakes.iceberg.rest import nested
from sluicegate.lakes.iceberg.vended import OPTION, VENDED
from sluicegate.lakes.port import LakeError
from sluicegate.writer_hooks import OpenCheckpoint, RegionDriver, WriterResult
from sluicegate.writer_hooks.options import TABLE_PREFIX
from tests.doubles.proxy import Proxy
from tests.faults.iceberg_tables import LACKING
from tests.faults.lives import Deployment, Life
from tests.faults.rolling import COMMIT
from tests.faults.tallies import Tally, tally_of
from tests.iceberg_java.java import IcebergJava
from tests.integration.job import read_records
from tests.integration.waiting import until
from tests.nessie import Nessie
from tests.oidc import CLIENT, Provider, provider
from tests.s3proxy import SECRET_KEY, S3Proxy
from tests.security.leaks import STREAM, answers, command, leaks
from tests.vending import KeyGuard
from tools.bench.common import machine, read_log, read_notifications, report

ROOT: Final = Path(__file__).parents[2]
REGIONS: Final = ("r1", "r2")
ROWS: Final = 2
"""Of a checkpoint."""
ROWS_OF_A_REGION: Final = 10_000_000
"""Ids of regions must not overlap."""
PACE: Final = 1.0
"""Seconds between two checkpoints of a region."""
MARGIN: Final = 5
"""Seconds before their end at which tokens are renewed by time."""
LOOKING: Final = 10.0
"""Seconds between two looks at the pages and at the records of Redis."""
PATIENCE: Final = 30.0
"""Seconds for a coordinator to come to a place."""
HEAP: Final = 1024
"""MiB. Nessie keeps the history in memory, and each state names all before it."""
PLACES: Final = tuple(point for point in COMMIT if point not in LACKING)
COMMANDS: Final = (
    ("status",),
    ("check",),
    ("dead-letters", "list"),
    ("replay", "verify", "--stream", STREAM),
)
RETRIED: Final = "not written: "
"""Begins a line of a region's log."""
WRITER: Final = [sys.executable, "-c", "from tools.bench.vended_keys import write_region; write_region()"]


class TokenGate(Proxy):
    """A proxy before the catalog, which alone judges tokens, but for those that were all ended at once."""

    def __init__(self, target: str, issuer: Provider) -> None:
        super().__init__(target)
        self._issuer = issuer
        self._ended: frozenset[str] = frozenset()
        self.refused: Counter[str] = Counter()
        """Requests with a token, by who refused it: `gate` or `catalog`."""

    def expire(self) -> None:
        """Let in no token that was given until now."""
        self._ended = frozenset(self._issuer.issued)

    def refusal(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, bytes] | None:
        if _token(headers) not in self._ended:
            return None
        self.refused["gate"] += 1
        error = {"message": "the token is ended", "type": "NotAuthorizedException", "code": 401}
        return HTTPStatus.UNAUTHORIZED, json.dumps({"error": error}).encode()

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        # The catalog tells clients the address by which they asked, and they would pass the gate by.
        headers = {**headers, "Host": urlsplit(self.uri).netloc}
        answer = super().forward(method, path, headers, body)
        self.refused["catalog"] += answer[0] == HTTPStatus.UNAUTHORIZED and bool(_token(headers))
        return answer


def _token(headers: Mapping[str, str]) -> str:
    found = {name.lower(): value for name, value in headers.items()}
    return found.get("authorization", "").removeprefix("Bearer ")


class Servers(NamedTuple):
    """Everything that gives keys and tokens, and asks for them."""

    store: S3Proxy
    guard: KeyGuard
    issuer: Provider
    nessie: Nessie
    gate: TokenGate

    @classmethod
    def start(cls, stack: ExitStack, key_life: float, token_life: float) -> "Servers":
        store = stack.enter_context(S3Proxy(is_open=True))
        guard = stack.enter_context(KeyGuard(store.endpoint))
        issuer = stack.enter_context(provider())
        guard.life, issuer.life = key_life, token_life
        nessie = stack.enter_context(Nessie(guard, issuer, HEAP))
        gate = stack.enter_context(TokenGate(nessie.uri, issuer))
        return cls(store, guard, issuer, nessie, gate)

    def options(self, *, by_time: bool) -> dict[str, str]:
        """Return options of the catalog. `by_time`: tokens are renewed before they end, and else after."""
        tokens = f"{self.issuer.url}/token"
        timed = {
            "auth.type": "oauth2",
            "auth.oauth2.client_id": CLIENT,
            "auth.oauth2.client_secret": self.issuer.secret,
            "auth.oauth2.token_url": tokens,
            "auth.oauth2.refresh_margin": str(MARGIN),
        }
        refused = {"credential": f"{CLIENT}:{self.issuer.secret}", "oauth2-server-uri": tokens}
        return {
            "type": "rest",
            "uri": f"{self.gate.uri}/iceberg",
            OPTION: VENDED,
            **(timed if by_time else refused),
        }

    def library(self) -> RestCatalog:
        """Return the catalog as another program sees it."""
        return RestCatalog("default", **nested(self.options(by_time=True)))

    def secrets(self) -> set[str]:
        """Return all secrets until now. A token is known by its signature, too."""
        issued = tuple(self.issuer.issued)
        keys = {text for each in tuple(self.guard.given.values()) for text in each[:2]}
        signatures = {token.rpartition(".")[2] for token in issued}
        # As the header of a question for a token has it.
        basic = base64.b64encode(f"{CLIENT}:{self.issuer.secret}".encode()).decode()
        return {*keys, *issued, *signatures, self.issuer.secret, basic, SECRET_KEY}


@dataclass
class Vended(Deployment):
    """The stream's deployment, with one table of the catalog."""

    streams: tuple[str, ...] = ()
    lake: str = "iceberg"
    servers: Servers | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.servers is None:
            raise ValueError("the servers of the catalog are missing")
        self.given = self.servers
        self.tickets = self.folder / "tickets"
        self.tickets.mkdir()
        library = self.given.library()
        library.create_namespace((self.prefix,))
        made = library.create_table(self.identifier, schema=pa.schema([("id", pa.int64())]))
        self.table = str(made.location())

    @property
    def identifier(self) -> str:
        return f"{self.prefix}.numbers"

    def settings(self, port: int) -> str:
        options = {**self.given.options(by_time=bool(self.lives % 2)), "identifier": self.identifier}
        lines = [f"[streams.{STREAM}]", 'format = "iceberg"', f'table = "{self.table}"']
        lines += [f"[streams.{STREAM}.options]"]
        lines += [f'"{name}" = {json.dumps(value)}' for name, value in options.items()]
        return super().settings(port) + "\n".join(lines) + "\n"

    def driver_options(self, region: str) -> dict[str, str]:
        """Return the options of a region's driver."""
        of_table = {
            **self.given.options(by_time=region == REGIONS[0]),
            "identifier": self.identifier,
        }
        return {
            "stream": STREAM,
            "region": region,
            "regions": ",".join(REGIONS),
            "assignment": "1",
            "format": "iceberg",
            "table": self.table,
            **{f"{TABLE_PREFIX}{name}": value for name, value in of_table.items()},
            "kafka.bootstrap.servers": self.bootstrap,
            "topic.prefix": self.prefix,
            "registration.timeout": "900",
            "publish.timeout": "900",
        }

    def ticket(self, place: str) -> Path:
        """Return the file that sends a coordinator to its end at a place."""
        return self.tickets / place

    def begin(self) -> Life:
        """Begin a life that is killed where a ticket says so."""
        return self.start(";".join(f"{point}=kill?{self.ticket(point)}" for point in PLACES))


# --- writers ------------------------------------------------------------------------------------------


class Region:
    """The process of one region."""

    def __init__(self, where: Vended, name: str) -> None:
        self.name = name
        self.first = REGIONS.index(name) * ROWS_OF_A_REGION
        self.settings = where.folder / f"region-{name}.json"
        self.log_file = self.settings.with_suffix(".log")
        given = {"options": where.driver_options(name), "first": self.first}
        self.settings.write_text(json.dumps(given), encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        self.process = ChildProcess(
            [*WRITER, str(self.settings)], log_file=self.log_file, cwd=ROOT, env=environment
        )

    def finish(self) -> None:
        """Let it complete its last checkpoint, and wait for the commit."""
        self.settings.with_suffix(".done").touch()

    def ids(self) -> range:
        """Return the ids of all completed checkpoints."""
        counted = self.settings.with_suffix(".rows")
        return range(self.first, self.first + int(counted.read_text() if counted.exists() else 0))

    def retries(self) -> int:
        """Return how often a checkpoint had to be written again."""
        lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        return sum(line.startswith(RETRIED) for line in lines)


def write_region() -> None:
    """Write checkpoint after checkpoint, and wait for the commit of the last one. The process of a region."""
    settings = Path(sys.argv[1])
    given = json.loads(settings.read_text(encoding="utf-8"))
    # What is written for a bug report has no secrets either.
    logging.basicConfig(level=logging.DEBUG)
    done, counted = settings.with_suffix(".done"), settings.with_suffix(".rows")
    rows = 0
    with RegionDriver(given["options"], heartbeat_interval=1.0) as driver:
        while True:
            is_last, began = done.exists(), time.monotonic()
            checkpoint = driver.begin()
            first = given["first"] + rows
            written = _written(checkpoint, pa.table({"id": pa.array(range(first, first + ROWS), pa.int64())}))
            driver.complete(checkpoint, [written], source_offsets={"next": rows + ROWS})
            rows += ROWS
            # Read while the campaign runs, so it is never half written.
            settings.with_suffix(".draft").write_text(str(rows))
            settings.with_suffix(".draft").rename(counted)
            if is_last:
                break
            time.sleep(max(0.0, PACE - (time.monotonic() - began)))  # time: the pace of a region
        driver.await_commit(checkpoint)


def _written(checkpoint: OpenCheckpoint, rows: pa.Table) -> WriterResult:
    """Write the rows of a checkpoint, as another attempt after each failure."""
    while True:
        try:
            return checkpoint.write("w0", rows)
        except LakeError as error:
            print(f"{RETRIED}{error}", flush=True)
            time.sleep(0.2)  # time: the pace of attempts


# --- what happens -------------------------------------------------------------------------------------


class Incident(NamedTuple):
    """Something that was done on purpose."""

    time: float
    """Seconds since the Unix epoch, as all times here."""
    what: str


@dataclass
class Campaign:
    """The coordinators of the stream, and what happens to them."""

    where: Vended
    chance: Random
    life: Life = field(init=False)
    incidents: list[Incident] = field(default_factory=list)
    absences: list[tuple[float, float]] = field(default_factory=list)
    """Times from the end of a coordinator to the beginning of the process of the next one."""
    starts: list[tuple[float, float]] = field(default_factory=list)
    """Of each coordinator, the beginning of its process and its first answer."""
    kills: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    """Places to which a coordinator did not come in time. It was killed elsewhere."""
    seen: set[tuple[str, str]] = field(default_factory=set)
    """Secrets in pages and in records of Redis, by the place."""
    looks: int = 0

    def __post_init__(self) -> None:
        self.life = self._begin()

    def _begin(self) -> Life:
        life = self.where.begin()
        self._answering = asyncio.create_task(self._first_answer(life, time.time()))
        return life

    async def _first_answer(self, life: Life, began: float) -> None:
        while await life.get("/status") is None:
            if life.over:
                return
            await asyncio.sleep(0.02)  # time: the resolution of a measurement
        self.starts.append((began, time.time()))

    async def kill(self, place: str) -> None:
        """Kill the coordinator at a place, or now if it is empty, and start another one."""
        if place:
            ticket = self.where.ticket(place)
            ticket.touch()
            if not await self.life.killed_meanwhile(PATIENCE):
                ticket.unlink(missing_ok=True)
                self.missed.append(place)
                place = ""
        self.life.kill()
        ended = time.time()
        await self._answering
        self.life = self._begin()
        self.absences.append((ended, time.time()))
        self.kills[place or "at random"] += 1
        self.incidents.append(Incident(ended, f"kill {place or 'at random'}"))

    async def end_keys(self) -> None:
        """End all keys. A coordinator that has just begun has none, so this waits for its first answer."""
        await self._answering
        self.where.given.guard.end_all()
        self.incidents.append(Incident(time.time(), "all keys ended"))

    async def end_tokens(self) -> None:
        """End all tokens, in the same way."""
        await self._answering
        self.where.given.gate.expire()
        self.incidents.append(Incident(time.time(), "all tokens ended"))

    async def run(self, seconds: float, kills: int, regions: Sequence[Region]) -> None:
        """Let everything happen in this time. Raises Died for a coordinator that ends by itself."""
        await until(lambda: all(each.ids() for each in regions), by=self.life, log=self.life.log_file)
        begun = time.monotonic()
        for at, what in schedule(self.chance, seconds, kills):
            while (left := begun + at - time.monotonic()) > 0:
                await asyncio.sleep(min(left, 1.0))  # time: the pace of the campaign
                self._check(regions)
            print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
            if what == "keys":
                await self.end_keys()
            elif what == "tokens":
                await self.end_tokens()
            elif what != "over":
                await self.kill(what.removeprefix("kill").strip())

    def _check(self, regions: Sequence[Region]) -> None:
        self.life.check()
        for each in regions:
            if (status := each.process.poll()) is not None:
                raise RuntimeError(f"region {each.name} ended with {status}; see {each.log_file}")

    def end(self) -> None:
        """End the coordinator of the moment."""
        self.life.end()

    async def look(self) -> None:
        """Look for secrets in the pages and in Redis, again and again."""
        while True:
            await asyncio.to_thread(self._look_once)
            await asyncio.sleep(LOOKING)  # time: the interval of looks

    def _look_once(self) -> None:
        said = {"redis": records(self.where)}
        with suppress(OSError, http.client.HTTPException):
            said |= answers(self.life.port)
            self.looks += 1
        self.seen |= {(place, _kind(secret)) for place, secret in leaks(said, self.where.given.secrets())}


def schedule(chance: Random, seconds: float, kills: int) -> list[tuple[float, str]]:
    """Return what happens when: kills, every other one at a place, two ends of keys and two of tokens."""
    places = iter(chance.sample(PLACES, len(PLACES)) * kills)
    found = [
        ((number + chance.uniform(0.3, 0.9)) * seconds / kills, f"kill {'' if number % 2 else next(places)}")
        for number in range(kills)
    ]
    for number, what in enumerate(("keys", "tokens") * 2):
        found.append(((number + chance.uniform(0.2, 0.8)) * seconds / 4, what))
    return sorted([*found, (seconds, "over")])


def records(where: Deployment) -> str:
    """Return all records of the deployment in Redis."""
    with Redis.from_url(str(where.redis)) as redis:
        readers = {b"hash": redis.hgetall, b"set": redis.smembers, b"string": redis.get}
        found = []
        for key in redis.scan_iter(f"{where.prefix}*"):
            kind = redis.type(key)
            # A record may end between two questions.
            found.append((key, readers[kind](key) if kind != b"none" else None))
    return repr(found)


def _kind(secret: str) -> str:
    """Return a name of a secret that does not show it."""
    return f"{secret[:4]}… of {len(secret)} characters"


# --- the judgement ------------------------------------------------------------------------------------


class Times(NamedTuple):
    """Times of the log, in seconds."""

    completed: Mapping[tuple[str, int], float]
    """By region and number of a checkpoint."""
    commits: Sequence[tuple[float, int, Mapping[str, int]]]
    """The first news of each decision: its time, its id, and the newest checkpoint of each region."""


async def read_times(where: Deployment) -> Times:
    completed: dict[tuple[str, int], float] = {}
    async for record in read_log(where.bootstrap, where.topics):
        if record.envelope.type is EventType.CHECKPOINT_COMPLETED:
            place = record.envelope.region, record.envelope.checkpoint
            completed.setdefault(place, record.time / 1000)
    commits: dict[int, tuple[float, int, Mapping[str, int]]] = {}
    async for at, told in read_notifications(where.bootstrap, where.topics):
        if isinstance(told.body, Committed):
            cut = {name: each.checkpoint for name, each in told.body.cut.items()}
            commits.setdefault(told.body.decision, (at / 1000, told.body.decision, cut))
    return Times(completed, [*commits.values()])


def uptime(start: float, end: float, absences: Sequence[tuple[float, float]]) -> float:
    """Return the seconds between two moments in which a process of a coordinator ran."""
    return end - start - sum(max(0.0, min(end, to) - max(start, since)) for since, to in absences)


def pauses(times: Times, campaign: Campaign, end: float) -> dict[str, Any]:
    """Return the longest time between two commits, with its causes, and the longest without any."""
    moments = [*(at for at, _, _ in times.commits), end]
    found = []
    for before, after in pairwise(moments):
        # A kill before the notification of a commit counts for the pause after it, too.
        causes = [each.what for each in campaign.incidents if before - 1.0 <= each.time <= after]
        found.append((uptime(before, after, campaign.absences), before, after, causes))
    longest = max(found, default=(0.0, end, end, []))
    started = [(began, first) for began, first in campaign.starts if longest[1] <= began <= longest[2]]
    return {
        "longest_pause_s": round(longest[0], 1),
        "longest_pause_causes": longest[3],
        "longest_pause_starting_s": round(sum(min(first, longest[2]) - began for began, first in started), 1),
        "longest_pause_without_cause_s": round(
            max((each[0] for each in found if not each[3]), default=0.0), 1
        ),
    }


def ways(times: Times, absences: Sequence[tuple[float, float]]) -> tuple[float, list[tuple[str, int]]]:
    """Return the longest way of a checkpoint to its commit, and all checkpoints without one."""
    longest, lacking = 0.0, []
    moments = [at for at, _, _ in times.commits]
    for name in REGIONS:
        newest = [cut.get(name, -1) for _, _, cut in times.commits]
        for (region, number), at in times.completed.items():
            if region != name:
                continue
            place = bisect_left(newest, number)
            if place < len(newest):
                longest = max(longest, uptime(at, moments[place], absences))
            else:
                lacking.append((region, number))
    return longest, lacking


async def find_leaks(where: Vended, campaign: Campaign, logs: Sequence[Path]) -> list[str]:
    """Return each place where a secret is, with its kind."""
    secrets, found = where.given.secrets(), set(campaign.seen)
    for log in logs:
        text = await asyncio.to_thread(log.read_text, encoding="utf-8", errors="replace")
        said = {log.name: text}
        found |= {(name, _kind(each)) for name, each in await asyncio.to_thread(leaks, said, secrets)}
    topics = where.topics
    for topic in (topics.events, topics.commits, topics.state, topics.dead_letters):
        said = {topic: repr(await read_records(where.bootstrap, topic))}
        found |= {(name, _kind(each)) for name, each in await asyncio.to_thread(leaks, said, secrets)}
    config = where.folder / f"sluicegate-{where.lives}.toml"
    said = {" ".join(each): await command(config, *each) for each in COMMANDS}
    found |= {(name, _kind(each)) for name, each in leaks(said, where.given.secrets())}
    return sorted(f"{kind} in {name or '/'}" for name, kind in found)


async def tallies(where: Vended, regions: Sequence[Region], times: Times) -> dict[str, Tally]:
    """Read the table with two libraries."""
    where.given.guard.life = where.given.issuer.life = 3600.0
    table = await asyncio.to_thread(where.given.library().load_table, where.identifier)
    rows = (await asyncio.to_thread(table.scan().to_arrow))["id"].to_pylist()
    with IcebergJava() as java:
        by_java = await asyncio.to_thread(
            java.read, table.metadata_location, ["id"], None, where.given.store.environment()
        )
    wanted = [each for region in regions for each in region.ids()]
    decisions = [decision for _, decision, _ in times.commits]
    given = (wanted, where.user(STREAM), decisions, len(decisions))
    found = {"pyiceberg": rows, "java": [int(str(row[0])) for row in by_java]}
    return {name: tally_of(ids, *given) for name, ids in found.items()}


async def finish(regions: Sequence[Region], limit: float) -> list[str]:
    """Let the regions end; return what failed."""
    for each in regions:
        each.finish()
    failures = []
    for each in regions:
        try:
            async with asyncio.timeout(2 * limit):  # time: a stall is what is measured
                status = await until(each.process.poll, lambda found: found is not None)
        except TimeoutError:
            status = None
            each.process.kill()
        if status != 0:
            failures.append(
                f"region {each.name} did not end with the commit of its last checkpoint: {status}"
            )
    return failures


async def measure(root: Path, wanted: argparse.Namespace) -> dict[str, Any]:
    """Run the hour, and judge it."""
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        del os.environ[name]
    os.environ |= {"AWS_ALLOW_HTTP": "true", "SLUICEGATE_LOG__LEVEL": "debug"}
    before = machine()
    with ExitStack() as stack:
        kafka, valkey = stack.enter_context(EmbeddedKafka()), stack.enter_context(EmbeddedValkey())
        servers = Servers.start(stack, wanted.key_life, wanted.token_life)
        where = Vended(kafka.bootstrap, root, redis=valkey.url, servers=servers)
        await where.prepare()
        campaign = Campaign(where, Random(wanted.seed))
        stack.callback(campaign.end)
        regions = [Region(where, name) for name in REGIONS]
        for each in regions:
            stack.callback(each.process.kill)
        looking = asyncio.create_task(campaign.look())
        failures: list[str] = []
        try:
            await campaign.run(wanted.minutes * 60, wanted.kills, regions)
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}")
        failures += await finish(regions, wanted.limit)
        over = time.time()
        looking.cancel()
        (fault,) = await asyncio.gather(looking, return_exceptions=True)
        if isinstance(fault, Exception):
            failures.append(f"the looks at pages: {fault!r}")
        await asyncio.to_thread(campaign._look_once)
        times = await read_times(where)
        # The last checkpoint of each region has its commit after this, or none.
        pause = pauses(times, campaign, max(times.completed.values(), default=over))
        longest, lacking = ways(times, campaign.absences)
        logs = [
            *where.folder.glob("*.log"),
            *(each.log_file for each in (kafka, valkey, servers.store, servers.nessie)),
        ]
        leaked = await find_leaks(where, campaign, logs)
        found = await tallies(where, regions, times)
        failures += [f"{name}: {each}" for name, each in found.items() if not each.exact]
        failures += [f"a secret: {each}" for each in leaked]
        if pause["longest_pause_s"] > wanted.limit:
            failures.append(f"no commit for {pause['longest_pause_s']} s")
        if longest > wanted.limit or lacking:
            failures.append(
                f"a checkpoint was not committed within {wanted.limit:g} s; never: {lacking[:10]}"
            )
        if servers.guard.seen["unknown"]:
            failures.append("a request had keys of nobody")
        if not (servers.guard.seen["ended"] and servers.gate.refused["gate"]):
            failures.append("nobody came with ended keys, or with ended tokens: the run proves nothing")
        return {
            "minutes": wanted.minutes,
            "key_life_s": wanted.key_life,
            "token_life_s": wanted.token_life,
            "seed": wanted.seed,
            "kills": campaign.kills.total(),
            "by_place": dict(sorted(campaign.kills.items())),
            "missed": campaign.missed,
            "checkpoints": len(times.completed),
            "commits": len(times.commits),
            "rows": found["pyiceberg"].rows,
            "exact": all(each.exact for each in found.values()),
            **pause,
            "longest_way_s": round(longest, 1),
            "start_s": round(max((first - began for began, first in campaign.starts), default=0.0), 1),
            "keys": len(servers.guard.given),
            "requests_by_keys": dict(servers.guard.seen),
            "tokens": len(servers.issuer.issued),
            "requests_with_ended_tokens": dict(servers.gate.refused),
            "written_again": {each.name: each.retries() for each in regions},
            "secrets": len(servers.secrets()),
            "nessie_rss_mib": round(psutil.Process(servers.nessie.pid).memory_info().rss / 2**20),
            "searched_mb": round(sum(each.stat().st_size for each in logs) / 1e6),
            "looks": campaign.looks,
            "leaks": leaked,
            "failures": failures,
            "before": before,
            "after": machine(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--key-life", type=float, default=60.0, help="seconds")
    parser.add_argument("--token-life", type=float, default=20.0, help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=30.0, help="seconds that a stall may last")
    parser.add_argument("--keep", help="folder in which settings and logs stay")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    with nullcontext(wanted.keep) if wanted.keep else tempfile.TemporaryDirectory() as root:
        found = asyncio.run(measure(Path(root), wanted))
    report(found, as_json=wanted.json)
    if found["failures"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
