"""The state diagrams of the documents are those of the core's tables."""

from pathlib import Path

import pytest

from sluicegate.coordinator.diagrams import DEFAULT_FILE, TABLES, diagram, main, render

ROOT = Path(__file__).parents[2]


def test_the_document_is_current() -> None:
    text = (ROOT / DEFAULT_FILE).read_text(encoding="utf-8")
    assert "```mermaid\nstateDiagram-v2\n" in text.partition("<!-- states: region -->\n")[2]
    assert render(text) == text, "run python -m sluicegate.coordinator.diagrams"


@pytest.mark.parametrize("kind", TABLES)
def test_every_transition_is_drawn_or_listed(kind: str) -> None:
    text = diagram(kind)
    words = " ".join(text.split())
    for each in TABLES[kind]:
        assert each.cause.replace(": ", ", ") in words or each.cause in words
        assert str(each.event) in text
    arrows = [line for line in text.splitlines() if "-->" in line]
    assert all(line.count(":") == 1 for line in arrows), "a label with a colon is no Mermaid"
    assert "    [*] --> live: region.registered (its first incarnation, or a new one)" in arrows


def test_an_old_diagram_is_found_and_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- states: region -->\nold\n<!-- end -->\nafter\n")
    assert main(["--check", str(page)]) == 1
    assert "is stale" in capsys.readouterr().out
    assert main([str(page)]) == 0
    assert main(["--check", str(page)]) == 0
    assert page.read_text() == f"before\n<!-- states: region -->\n{diagram('region')}<!-- end -->\nafter\n"


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(KeyError, match="nothing"):
        render("<!-- states: nothing -->\n<!-- end -->\n")
