"""Fetching jars from a repository of small stand-ins, which may not answer, or have other files."""

import hashlib
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate.cli.local.errors import FetchError
from sluicegate.cli.local.jars import KAFKA_VERSION, REPOSITORY, fetched_jars, kafka_jars
from sluicegate.cli.local.process import LOOPBACK, free_port
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.cli.local.up import log_fetches
from tests.integration.waiting import BACKSTOP
from tests.repository.test_layout import ROOT

LISTS = sorted(path for folder in ("cli", "tests", "tools") for path in (ROOT / folder).rglob("*.jars"))
_FETCH = """
import sys
from pathlib import Path
from sluicegate.cli.local.jars import fetched_jars
print(*(jar.name for jar in fetched_jars("Things 1", Path(sys.argv[1]))))
"""
_PATHS = ("org/things/thing/1/thing-1.jar", "org/others/other/2/other-2.jar")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "cache"
    monkeypatch.setenv("SLUICEGATE_CACHE", str(directory))
    return directory


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder of a repository with two files."""
    folder = tmp_path / "repository"
    for path in _PATHS:
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_bytes(path.encode() * 100)
    monkeypatch.setenv(REPOSITORY, f"{folder.as_uri()}/")
    return folder


@pytest.fixture
def listed(tmp_path: Path, repository: Path) -> Path:
    """Give the list of the files."""
    contents = {path: (repository / path).read_bytes() for path in _PATHS}
    lines = [f"{hashlib.sha256(each).hexdigest()} {len(each)} {path}" for path, each in contents.items()]
    (tmp_path / "things.jars").write_text("\n".join(["# org.things:thing:1", *lines, ""]), encoding="utf-8")
    return tmp_path / "things.jars"


def folders(cache: Path) -> list[Path]:
    return [entry for entry in cache.iterdir() if entry.is_dir()]


@pytest.mark.slow
def test_two_processes_fetch_into_one_empty_cache(cache: Path, listed: Path) -> None:
    command = [sys.executable, "-c", _FETCH, str(listed)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=BACKSTOP)[0].split() for process in processes]
    assert answers == [["other-2.jar", "thing-1.jar"]] * 2
    assert len(folders(cache)) == 1


def test_the_log_tells_how_far_it_is(cache: Path, listed: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sluicegate.cli.local.jars")
    fetched_jars("Things 1", listed)
    passing = [each.getMessage() for each in caplog.records if getattr(each, "passing", False)]
    assert [text.rpartition(", ")[2] for text in passing] == ["50%", "100%"]
    assert [each.getMessage() for each in caplog.records if not hasattr(each, "passing")] == [
        f"fetching Things 1 (0 MB, once per user) into {cache}"
    ]
    caplog.clear()
    fetched_jars("Things 1", listed)
    assert not caplog.records, "they are in the cache"


@pytest.mark.parametrize("terminal", [False, True])
def test_a_command_shows_the_download(
    cache: Path,
    listed: Path,
    terminal: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line when it begins. On a terminal another one follows, and is gone at the end."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    log = logging.getLogger("sluicegate.cli.local")
    monkeypatch.setattr(log, "handlers", log.handlers)
    monkeypatch.setattr(log, "level", log.level)
    log_fetches()
    fetched_jars("Things 1", listed)
    begin = f"fetching Things 1 (0 MB, once per user) into {cache}\n"
    passing = "\r\x1b[Kfetching Things 1: 0.0 of 0.0 MB, 50%\r\x1b[K"
    assert capsys.readouterr().err == begin + (passing if terminal else "")


@pytest.mark.parametrize("content", [b"another file", b"x" * 10_000_000])
def test_another_file_is_refused(cache: Path, repository: Path, listed: Path, content: bytes) -> None:
    (repository / _PATHS[1]).write_bytes(content)
    with pytest.raises(
        FetchError, match=r"other-2\.jar: it is another file: its SHA-256 is not [0-9a-f]{64}"
    ):
        fetched_jars("Things 1", listed)
    assert not folders(cache)


def test_a_missing_file_is_named(cache: Path, repository: Path, listed: Path) -> None:
    (repository / _PATHS[0]).unlink()
    with pytest.raises(FetchError, match=r"could not fetch Things 1 from .*: thing-1\.jar: "):
        fetched_jars("Things 1", listed)
    assert not folders(cache)


def test_a_repository_out_of_reach_is_one_sentence(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPOSITORY, f"http://{LOOPBACK}:{free_port()}/")
    with pytest.raises(FetchError) as raised:
        EmbeddedKafka(tmp_path / "data").start()
    message = str(raised.value)
    assert message.startswith(
        f"could not fetch Apache Kafka {KAFKA_VERSION} from the repository of {REPOSITORY}"
    )
    assert "Connection refused" in message
    assert "to the address of a mirror" in message
    assert "\n" not in message
    assert not folders(cache)


def test_without_a_repository_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REPOSITORY, raising=False)
    monkeypatch.setitem(sys.modules, "maven_artifact.resolver", None)
    with pytest.raises(
        FetchError, match=rf"set {REPOSITORY} to the address of one, or run pip install .*embedded"
    ):
        kafka_jars()


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_list_names_each_file_once(path: Path) -> None:
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    files = [line for line in lines if line[0] != "#"]
    names = [name.rpartition("/")[2] for _, _, name in files]
    assert files
    assert all(len(digest) == 64 and int(size) > 0 for digest, size, _ in files)
    assert len({*names}) == len(names)
    for name in (line[1].removesuffix("!").split(":") for line in lines if line[0] == "#"):
        folder = "/".join((name[0].replace(".", "/"), *name[1:3]))
        assert any(file.startswith(f"{folder}/") for _, _, file in files), name


def test_the_list_of_kafka_has_its_version() -> None:
    text = (ROOT / "cli" / "local" / "kafka.jars").read_text(encoding="utf-8")
    assert f"/kafka_2.13-{KAFKA_VERSION}.jar\n" in text
