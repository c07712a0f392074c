"""The plots of the pages have the figures of their tables, and can be read in light and dark."""

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from tools.bench.plots import DARK, IMAGES, LIGHT, PAGE, PLOTS, render

SVG = "{http://www.w3.org/2000/svg}"


def test_each_plot_is_that_of_its_table() -> None:
    """After a change of a table: `python -m tools.bench.plots`."""
    made = render(PAGE.read_text(encoding="utf-8"))
    assert {name: (IMAGES / name).read_text(encoding="utf-8") for name in made} == made


def test_each_plot_is_on_a_page() -> None:
    pages = "".join(
        (PAGE.with_name(name)).read_text(encoding="utf-8") for name in ("benchmarks.md", "sizing.md")
    )
    assert {*re.findall(r"\(images/([\w-]+)\.svg\)", pages)} == {*PLOTS}


def test_another_figure_makes_another_plot_and_a_missing_table_none() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.count("| paimon | 1,000,000 | 617 MiB |") == 1
    changed = render(page.replace("617 MiB", "1,234 MiB"))
    root = ElementTree.fromstring(changed["memory.svg"])  # noqa: S314
    figures = [each.text for each in root.iter(f"{SVG}text") if each.get("text-anchor") is None][1:]
    assert figures == ["23", "217", "1,234", "42", "289", "729", "73", "400", "818"]
    widths = [float(each.attrib["width"]) for each in root.iter(f"{SVG}rect") if each.get("class") == "b0"]
    assert max(widths) == widths[2]
    assert widths[8] / widths[2] == pytest.approx(818 / 1234, abs=0.01)
    with pytest.raises(ValueError, match="no table scale with the columns format, files, memory above"):
        render(page.replace("memory above idle, peak", "memory"))


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_colours_have_the_contrast_that_readers_need(colours: dict[str, Any]) -> None:
    """By WCAG 2.2: 4.5 for text, 3 for graphics."""

    def contrast(colour: str) -> float:
        light, dark = sorted((luminance(colour), luminance(colours["page"])), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    assert contrast(colours["text"]) >= 4.5
    assert all(contrast(each) >= 3 for each in colours["bars"])
