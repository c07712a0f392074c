"""The benchmarks behind docs/benchmarks.md, with their commands."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

RESULTS: Final = Path(__file__).parents[2] / ".bench-results"
"""Folder of the newest results; it is not committed."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark: a module of this folder with its arguments. Its output is lines of JSON."""

    name: str
    """Of the result and of the table."""
    module: str
    full: tuple[str, ...] = ()
    """Arguments for the figures of the docs."""
    short: tuple[str, ...] = ()
    """Arguments for a run that only shows that the benchmark works."""
    optional: bool = False
    """Run on request only, as it takes long."""

    def command(self, *, short: bool = False) -> tuple[str, ...]:
        """Return the command without the interpreter."""
        return ("-m", f"tools.bench.{self.module}", *(self.short if short else self.full))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_FORMATS: Final = "paimon,iceberg,delta"
_STORES: Final = "local,s3proxy,hdfs"
_MERGING: Final = "paimon,iceberg"
"""Formats with manifests."""


def _faults(lake: str, store: str, kills: int) -> Benchmark:
    """Return a campaign of kills, whose parts depend on the store."""
    where, name = f"--format {lake} --store {store}", f"faults_{lake}"
    full, short = f"{where} --kills {kills}", f"{where} --kills 3 --parts none"
    if store == "local":
        full += " --parts first,spark,executors --spark 30 --executors 30"
    elif store == "s3proxy":
        full, name = f"{full} --parts none", f"{name}_s3"
    else:
        short, name = f"{where} --kills 3 --parts cluster --cluster 2", f"{name}_{store}"
    return Benchmark(name, "faults", _words(full), _words(short), optional=True)


def _way_in(way: str, lake: str, kills: str = "") -> Benchmark:
    """Return a campaign of faults for a way into a table."""
    where = f"--way {way} --format {lake}"
    short = f"{where} --rounds 1 --kills 8 --executors 3"
    return Benchmark(f"{way}_{lake}", "ways_in", _words(f"{where} {kills}"), _words(short), optional=True)


def _table_kills(catalog: str) -> Benchmark:
    """Return the campaign of kills while a stream writes several tables of a catalog."""
    where = f"--catalog {catalog} --json"
    short = f"--minutes 0.2 {where}"
    return Benchmark(f"table_kills_{catalog}", "table_kills", _words(where), _words(short), optional=True)


WAYS_IN: Final = (
    ("foreach", "paimon", "--kills 40"),
    ("python", "iceberg"),
    ("uploads", "delta", "--rounds 5"),
    ("jobs", "paimon", "--rounds 7"),
)

BENCHMARKS: Final = (
    Benchmark("latency", "latency", _words("--json"), _words("--checkpoints 40 --json")),
    Benchmark("ingest", "ingest", _words("--json"), _words("--events 12000 --pairs 1 --json")),
    Benchmark("cadence", "cadence", _words("--json"), _words("--seconds 4 --interval 1 --json")),
    Benchmark("paimon_commit", "paimon_commit", (), _words("--ages 0 --sizes 10,1000 --samples 8")),
    Benchmark(
        "visible",
        "visible",
        _words(f"--formats {_FORMATS} --rounds 100 --json"),
        _words(f"--formats {_FORMATS} --warm-up 0.1 --rounds 20 --sizes 10,1000 --aged 50 --json"),
    ),
    Benchmark(
        "last_event",
        "last_event",
        _words(f"--formats {_FORMATS} --json"),
        _words(f"--formats {_FORMATS} --files 10 1000 --rounds 5 --json"),
    ),
    Benchmark(
        "last_event_hdfs", "last_event_hdfs", _words("--json"), _words("--rounds 3 --warm-up 1 --json")
    ),
    Benchmark(
        "kafka_connect",
        "kafka_connect",
        _words("--json"),
        _words("--files 2 --rounds 2 --warm-up 1 --json"),
    ),
    Benchmark("several_tables", "several_tables", _words("--json"), _words("--rounds 2 --json")),
    Benchmark(
        "merging",
        "merging",
        _words(f"--formats {_MERGING} --json"),
        _words(f"--formats {_MERGING} --commits 120 --rounds 1 --json"),
    ),
    Benchmark("ageing", "ageing", _words("--json"), _words("--commits 40 --json")),
    Benchmark("file_sizes", "file_sizes", _words("--json"), _words("--rows 20000 --rounds 1 --json")),
    Benchmark("hook_rates", "hook_rates", _words("--json"), _words("--formats paimon --rounds 1 --json")),
    Benchmark("hook_batches", "hook_batches", _words("--json"), _words("--tasks 1,4 --rounds 1 --json")),
    Benchmark("absence", "absence", _words("--json"), _words("--checkpoints 4 --json")),
    Benchmark(
        "carried",
        "carried",
        _words("--json"),
        _words("--checkpoints 2000 --pairs 1 --driven 4 --json"),
    ),
    Benchmark("begin", "begin", _words("--json"), _words("--rounds 30 --json")),
    Benchmark(
        "python_writers",
        "python_writers",
        (),
        _words("--processes 4 --rate 8 --appends 20 --kills 3 --patience 30"),
    ),
    Benchmark("uploads", "uploads", (), _words("--short")),
    Benchmark("slow_nodes", "slow_nodes", _words("--json"), _words("--short --json"), optional=True),
    Benchmark("freeze", "freeze", _words("--json"), _words("--batches 10 --rounds 1 --json")),
    Benchmark(
        "slow_region",
        "slow_region",
        _words("--runs 3 --full --json"),
        _words("--runs 1 --rows 100000 --json"),
    ),
    Benchmark("replay", "replay", _words("--commits 100 --json"), _words("--commits 5 --json")),
    Benchmark(
        "scale",
        "scale",
        _words(f"--formats {_FORMATS} --json"),
        _words(f"--formats {_FORMATS} --files 1000 10000 --json"),
    ),
    Benchmark(
        "streams",
        "streams",
        _words("--rounds 3 --json"),
        _words("--streams 10 --rounds 1 --turns 1 --rate 5 --json"),
    ),
    Benchmark(
        "streams_stuck",
        "streams",
        _words("--stuck 8 --rounds 2 --turns 1 --seconds 10 --json"),
        _words("--streams 10 --stuck 8 --rounds 1 --turns 1 --seconds 5 --rate 5 --json"),
    ),
    Benchmark(
        "many_streams",
        "many_streams",
        _words("--json"),
        _words("--many 40 --rate 5 --seconds 5 --rounds 1 --json"),
        optional=True,
    ),
    Benchmark("flood", "flood", _words("--json"), _words("--commits 5 --kinds garbage --json")),
    Benchmark("restart", "restart", _words("--json"), _words("--events 500 --rounds 1 --json")),
    Benchmark(
        "takeover",
        "takeover",
        _words("--json"),
        _words("--streams 20 --rate 5 --minutes 0.5 --every 10 --json"),
        optional=True,
    ),
    *(_table_kills(catalog) for catalog in ("sqlite", "postgres")),
    Benchmark("soak", "soak", _words("--json"), _words("--minutes 2 --every 8 --json"), optional=True),
    Benchmark(
        "mark_done",
        "mark_done",
        _words(f"--formats {_FORMATS} --json"),
        _words(f"--formats {_FORMATS} --kills 2 --json"),
    ),
    Benchmark(
        "metrics_page", "metrics_page", _words("--json"), _words("--streams 100 --scrapes 3 --runs 1 --json")
    ),
    Benchmark("live_page", "live_page", _words("--json"), _words("--runs 1 --rounds 20 --json")),
    Benchmark("doubling", "doubling"),
    Benchmark("demo", "demo", (), _words("--rows 20000")),
    Benchmark(
        "kills",
        "demo",
        _words("--runs 20 --kill-coordinator --kills 10"),
        _words("--runs 1 --rows 100000 --kill-coordinator"),
        optional=True,
    ),
    Benchmark(
        "races",
        "races",
        _words(f"--formats {_FORMATS} --stores {_STORES}"),
        _words(f"--formats {_FORMATS} --stores {_STORES} --ids 10 --rounds 1"),
    ),
    *(_faults(lake, "local", 200) for lake in _FORMATS.split(",")),
    *(_faults(lake, store, 50) for store in ("s3proxy", "hdfs") for lake in _FORMATS.split(",")),
    *(_way_in(*each) for each in WAYS_IN),
    Benchmark("simulator", "simulator", _words("--seeds 1000"), _words("--seeds 60")),
)
