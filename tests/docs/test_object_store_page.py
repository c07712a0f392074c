"""The store of docs/formats/object-stores.md starts with the page's settings, and takes a conditional put."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from sluicegate.lakes.storages import open_storage
from tests.s3proxy import MAIN, S3Proxy, command

PAGE: Final = Path(__file__).parents[2] / "docs" / "formats" / "object-stores.md"
ADDRESS: Final = "http://127.0.0.1:9000"


def section() -> str:
    return PAGE.read_text(encoding="utf-8").partition("\n### A store for a trial\n")[2].partition("\n### ")[0]


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", section(), re.DOTALL | re.MULTILINE)
    return str(found)


class StoreOfThePage(S3Proxy):
    """The server with the page's file of settings, at another port."""

    def _prepare(self) -> Sequence[str]:
        self.bucket.mkdir(parents=True, exist_ok=True)
        path = self.data_dir / "s3proxy.conf"
        text = block("properties").replace(ADDRESS, self.endpoint)
        path.write_text(text.replace("=objects", f"={self.bucket.parent}"), encoding="utf-8")
        return command(path)


def variables(address: str) -> Mapping[str, str]:
    words = shlex.split(block("sh").replace(ADDRESS, address).replace("export ", ""))
    return dict(word.split("=", 1) for word in words)


@pytest.mark.s3
def test_the_store_of_the_page_takes_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAIN in section()
    with StoreOfThePage() as server:
        for name, value in variables(server.endpoint).items():
            monkeypatch.setenv(name, value)
        storage = open_storage(f"s3://{server.bucket.name}/flights")
        assert storage.put_if_absent("snapshot/1", b"one")
        assert not storage.put_if_absent("snapshot/1", b"two")
        assert (server.bucket / "flights" / "snapshot" / "1").read_bytes() == b"one"
