"""Lists of jars: each file of a product in a Maven repository, with its size and SHA-256.

python -m tools.jars LIST...

Writes lists again by the coordinates at their heads, `group:name:version[:classifier]`. What a package needs
comes with it; a `!` after the coordinates leaves that out. PySpark's copy of Ivy resolves.
"""

import argparse
import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

import pyspark

from sluicegate.cli.local.jars import find_java

_PATTERN: Final = "[orgPath]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"


def heads(listed: Path) -> list[str]:
    """Return the coordinates of a list."""
    lines = listed.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("# ") for line in lines if line.startswith("# ")]


def module(coordinates: list[str]) -> str:
    """Return the file of Ivy that asks for these packages."""
    packages: dict[tuple[str, str, str, bool], list[str]] = {}
    for each in coordinates:
        group, name, version, *more = each.removesuffix("!").split(":")
        packages.setdefault((group, name, version, each.endswith("!")), []).append(more[0] if more else "")
    lines = []
    for (group, name, version, alone), classifiers in packages.items():
        how = 'transitive="false"' if alone else 'conf="default"'
        lines.append(
            f"<dependency org={quoteattr(group)} name={quoteattr(name)} rev={quoteattr(version)} {how}>"
        )
        for each in classifiers if any(classifiers) else ():
            named = f" m:classifier={quoteattr(each)}" if each else ""
            lines.append(f'<artifact name={quoteattr(name)} type="jar" ext="jar"{named}/>')
        lines.append("</dependency>")
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="sluicegate" module="jars"/>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def resolve(coordinates: list[str], folder: Path) -> None:
    """Fetch all files into a folder, with their paths in the repository. Raises CalledProcessError."""
    (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
    (folder / "ivy.xml").write_text(module(coordinates), encoding="utf-8")
    command = [str(find_java().executable), "-cp", str(ivy), "org.apache.ivy.Main", "-warn"]
    command += ["-cache", str(folder / "cache"), "-ivy", str(folder / "ivy.xml"), "-types", "jar", "bundle"]
    subprocess.run([*command, "-retrieve", f"{folder}/made/{_PATTERN}"], check=True)


def renew(listed: Path) -> None:
    """Write one list again."""
    coordinates = heads(listed)
    with tempfile.TemporaryDirectory() as name:
        made = Path(name, "made")
        resolve(coordinates, made.parent)
        lines = [f"# {each}" for each in coordinates]
        for path in sorted(made.rglob("*.jar")):
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            lines.append(f"{digest} {len(content)} {path.relative_to(made).as_posix()}")
    listed.write_text("\n".join([*lines, ""]), encoding="utf-8")


def main() -> None:
    """Renew the lists that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("lists", nargs="+", type=Path, metavar="LIST")
    for each in parser.parse_args().lists:
        renew(each)


if __name__ == "__main__":
    main()
