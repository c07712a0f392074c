"""Mutation score of one product folder: the share of small defects that its fast tests see.

    python -m tools.mutants lakes --mutants 100 --seed 1 --resume lakes.jsonl > lakes.json

The tool draws N statements of the folder with a fixed seed, and one edit for each: a comparison, a
boolean operator, a constant, arithmetic, a negated condition, a removed statement, or another return. It
runs the tests of that folder against each edit, and prints one line of JSON with the share that was seen
and its 95 % interval (Wilson).

A test that calls no function with the edit cannot see it. So a first run of all tests notes who calls what
(`tools/called.py`), and each edit meets its own tests alone. If a fixture calls the function, these are all
tests of the file. An edit outside of functions meets all tests of the folder.

The tests run in a copy of the tracked files, so the clone is never changed. `--resume FILE` keeps each
result as it comes; the same command continues there. The unchanged copy must pass first, since a failing
test sees everything.

Two limits of the score:

- Sentences are not changed. A constant is a number, a truth value, or a string without white space.
- The limit is 60 s of CPU, since a wall clock would count a busy machine as seen. A single test that
  waits for 60 s, and a run of ten minutes, count as seen, too. The line of JSON counts these timeouts.
"""

import argparse
import ast
import contextlib
import itertools
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

FAST: Final = "not (servers or slow or long or matrix)"
CPU_LIMIT: Final = 60
"""Seconds of CPU for the tests of one mutant, and seconds that one test may wait."""
WALL_LIMIT: Final = 600

TESTS: Final = {
    "cli": ["tests/cli"],
    "coordinator": ["tests/coordinator", "tests/golden", "tests/replay"],
    "demo": ["tests/demo"],
    "embedded": ["tests/embedded"],
    "events": ["tests/events"],
    "failpoints": ["tests/failpoints"],
    "kafka": ["tests/kafka"],
    "lakes": ["tests/lakes", "tests/contracts/lakes", "tests/contracts/storages"],
    "listeners": ["tests/listeners"],
    "replay": ["tests/replay"],
    "simulator": ["tests/simulation"],
    "state_store": ["tests/contracts/state_store"],
    "writer_hooks": ["tests/hooks"],
}

COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, list[str]]]] = {
    ast.Eq: (r"==", ["!="]),
    ast.NotEq: (r"!=", ["=="]),
    ast.Lt: (r"<", ["<=", ">="]),
    ast.LtE: (r"<=", ["<", ">"]),
    ast.Gt: (r">", [">=", "<="]),
    ast.GtE: (r">=", [">", "<"]),
    ast.Is: (r"\bis\b", ["is not"]),
    ast.IsNot: (r"\bis\s+not\b", ["is"]),
    ast.In: (r"\bin\b", ["not in"]),
    ast.NotIn: (r"\bnot\s+in\b", ["in"]),
}
ARITHMETIC: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: (r"-", "+"),
    ast.Mult: (r"\*", "//"),
    ast.Div: (r"/", "*"),
    ast.FloorDiv: (r"//", "*"),
    ast.Mod: (r"%", "*"),
    ast.Pow: (r"\*\*", "*"),
    ast.LShift: (r"<<", ">>"),
    ast.RShift: (r">>", "<<"),
    ast.BitAnd: (r"&", "|"),
    ast.BitOr: (r"\|", "&"),
    ast.BitXor: (r"\^", "&"),
}
REMOVED: Final = (
    ast.Expr,
    ast.Assign,
    ast.AugAssign,
    ast.Raise,
    ast.Delete,
    ast.Assert,
    ast.Continue,
    ast.Break,
)


@dataclass(frozen=True)
class Mutant:
    """One edit: the bytes from `start` to `end` of a file become `new`."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    old: str
    new: str


class Source:
    """A file with its statements and the edits of each."""

    def __init__(self, path: str, text: bytes) -> None:
        """Parse the file."""
        self.path = path
        self.text = text
        self.tree = ast.parse(text)
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def statements(self) -> Iterator[list[Mutant]]:
        """Yield the possible edits of each statement that has any. Some may be no Python."""
        for statement, function in _statements(self.tree.body, None):
            edits = list(self._edits(statement, function))
            if edits:
                yield edits

    def changed(self, mutant: Mutant) -> bytes:
        """Return the text with the edit."""
        return self.text[: mutant.start] + mutant.new.encode() + self.text[mutant.end :]

    def is_valid(self, mutant: Mutant) -> bool:
        """Return True if an edit gives other code."""
        try:
            return ast.dump(ast.parse(self.changed(mutant))) != ast.dump(self.tree)
        except SyntaxError:
            return False

    def _edits(self, statement: ast.stmt, function: ast.FunctionDef | None) -> Iterator[Mutant]:
        if isinstance(statement, REMOVED):
            yield self._edit(statement, "removed", "pass")
        if isinstance(statement, ast.AugAssign):
            yield from self._operator(statement.target, statement.value, statement.op)
        if isinstance(statement, ast.Return):
            yield from self._returns(statement, function)
        for node in _expressions(statement):
            yield from self._of_expression(node, inside=function is not None)
        if isinstance(statement, ast.If | ast.While | ast.Assert):
            yield self._negated(statement.test)

    def _returns(self, statement: ast.Return, function: ast.FunctionDef | None) -> Iterator[Mutant]:
        value = statement.value
        if value is None:
            yield self._edit(statement, "removed", "pass")
        elif isinstance(value, ast.Tuple) and len(value.elts) == 2 and self._text(value).startswith("("):
            first, second = map(self._text, value.elts)
            yield self._edit(value, "return", f"({second}, {first})")
        elif isinstance(value, ast.Tuple) and len(value.elts) == 2:
            first, second = map(self._text, value.elts)
            yield self._edit(value, "return", f"{second}, {first}")
        elif (
            function is not None and isinstance(function.returns, ast.Name) and function.returns.id == "bool"
        ):
            yield self._edit(value, "return", f"not ({self._text(value)})")
        elif not (isinstance(value, ast.Constant) and value.value is None):
            yield self._edit(value, "return", "None")

    def _of_expression(self, node: ast.AST, *, inside: bool) -> Iterator[Mutant]:
        match node:
            case ast.Compare():
                yield from self._comparisons(node)
            case ast.BoolOp():
                words = (r"\band\b", "or") if isinstance(node.op, ast.And) else (r"\bor\b", "and")
                for left, right in itertools.pairwise(node.values):
                    yield from self._between(left, right, *words, "boolean")
            case ast.UnaryOp(op=ast.Not()):
                yield self._edit(node, "boolean", f"({self._text(node.operand)})")
            case ast.BinOp() if inside or not isinstance(node.op, ast.BitOr):
                yield from self._operator(node.left, node.right, node.op)
            case ast.IfExp():
                yield self._negated(node.test)
            case ast.comprehension():
                yield from map(self._negated, node.ifs)
            case ast.Constant():
                other = _other_constant(node.value)
                if other is not None:
                    yield self._edit(node, "constant", other)

    def _comparisons(self, node: ast.Compare) -> Iterator[Mutant]:
        pairs = itertools.pairwise([node.left, *node.comparators])
        for (left, right), op in zip(pairs, node.ops, strict=True):
            pattern, others = COMPARISONS[type(op)]
            for other in others:
                yield from self._between(left, right, pattern, other, "comparison")

    def _operator(self, left: ast.expr, right: ast.expr, op: ast.operator) -> Iterator[Mutant]:
        if type(op) in ARITHMETIC:
            yield from self._between(left, right, *ARITHMETIC[type(op)], "arithmetic")

    def _negated(self, test: ast.expr) -> Mutant:
        return self._edit(test, "condition", f"(not ({self._text(test)}))")

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str, kind: str) -> Iterator[Mutant]:
        """Replace the operator that stands between two expressions."""
        start, end = self._span(left)[1], self._span(right)[0]
        found = re.search(old.encode(), self.text[start:end])
        if found:
            at = start + found.start(), start + found.end()
            yield Mutant(self.path, left.end_lineno or 0, kind, *at, self.text[slice(*at)].decode(), new)

    def _edit(self, node: ast.stmt | ast.expr, kind: str, new: str) -> Mutant:
        start, end = self._span(node)
        return Mutant(self.path, node.lineno, kind, start, end, self.text[start:end].decode(), new)

    def _text(self, node: ast.expr) -> str:
        return self.text[slice(*self._span(node))].decode()

    def _span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        """Return the bytes of a node; columns of `ast` are bytes."""
        assert node.end_lineno is not None  # noqa: S101
        assert node.end_col_offset is not None  # noqa: S101
        start = self._lines[node.lineno - 1] + node.col_offset
        return start, self._lines[node.end_lineno - 1] + node.end_col_offset


def _statements(
    body: list[ast.stmt], function: ast.FunctionDef | None
) -> Iterator[tuple[ast.stmt, ast.FunctionDef | None]]:
    """Yield each statement with its function, but no imports, docstrings and blocks for type checkers."""
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass | ast.Global | ast.Nonlocal):
            continue
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test):
            continue
        yield statement, function
        # An async function has the same fields.
        named: Any = statement if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) else function
        for name in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, name, []), named)
        for part in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
            yield from _statements(part.body, named)


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions of a statement, without those of nested statements, and without annotations."""
    left_out = {"annotation", "returns", "body", "orelse", "finalbody", "handlers", "cases", "decorator_list"}
    waiting: list[ast.AST] = [
        part
        for name, value in ast.iter_fields(statement)
        if name not in left_out
        for part in (value if isinstance(value, list) else [value])
        if isinstance(part, ast.AST)
    ]
    while waiting:
        node = waiting.pop(0)
        # Positions within f-strings are wrong before Python 3.12.
        if isinstance(node, ast.JoinedStr):
            continue
        yield node
        for name, value in ast.iter_fields(node):
            if name != "annotation":
                parts = value if isinstance(value, list) else [value]
                waiting.extend(part for part in parts if isinstance(part, ast.AST))


def _other_constant(value: object) -> str | None:
    match value:
        case bool():
            return str(not value)
        case int() | float():
            return repr(value + 1)
        case str() if value and not re.search(r"\s", value):
            return repr(value + "x")
        case bytes() if value:
            return repr(value + b"x")
    return None


def draw(sources: list[Source], number: int, seed: int) -> list[Mutant]:
    """Draw statements without repetition, and one edit of each."""
    # The seed makes a draw repeatable; it protects nothing.
    generator = random.Random(seed)
    statements = [(source, edits) for source in sources for edits in source.statements()]
    drawn: list[Mutant] = []
    for source, edits in generator.sample(statements, len(statements)):
        edit = next(filter(source.is_valid, generator.sample(edits, len(edits))), None)
        if edit is not None:
            drawn.append(edit)
        if len(drawn) == number:
            break
    return drawn


def wilson(seen: int, number: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    if number == 0:
        return 0.0, 1.0
    z, share = 1.959964, seen / number
    middle = share + z * z / (2 * number)
    half = z * math.sqrt(share * (1 - share) / number + z * z / (4 * number * number))
    return (middle - half) / (1 + z * z / number), (middle + half) / (1 + z * z / number)


def _functions(root: Path, mutants: Iterable[Mutant]) -> Iterator[tuple[Mutant, int]]:
    """Yield the edits inside of functions, each with the first line of the innermost, or its decorator."""
    for mutant in mutants:
        inside = [
            node
            for node in ast.walk(ast.parse((root / mutant.path).read_bytes()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body[0].lineno <= mutant.line <= (node.end_lineno or 0)
        ]
        if inside:
            innermost = max(inside, key=lambda node: node.lineno)
            yield mutant, min([innermost.lineno, *(each.lineno for each in innermost.decorator_list)])


class Copy:
    """A copy of the tracked files of a clone, whose package `sluicegate` comes before the installed one."""

    def __init__(self, clone: Path, folder: Path, paths: list[str]) -> None:
        """Copy the files, and lay the packages out as pyproject.toml maps them."""
        self.clone = clone
        self.root = folder / "tree"
        self._packages = folder / "packages"
        self._examples = folder / "hypothesis"
        for path in paths:
            if (clone / path).is_file():
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(clone / path, self.root / path)
        settings = tomllib.loads((clone / "pyproject.toml").read_text("utf-8"))
        places: dict[str, str] = settings["tool"]["setuptools"]["package-dir"]
        top = self._packages / "sluicegate"
        top.mkdir(parents=True)
        for each in (self.root / places["sluicegate"]).iterdir():
            (top / each.name).symlink_to(each)
        for name, place in places.items():
            if name.count(".") == 1:
                (top / name.partition(".")[2]).symlink_to(self.root / place)

    def write(self, path: str, text: bytes) -> None:
        """Write a file. Its bytecode goes, since a new file may have the same size and second."""
        target = self.root / path
        target.write_bytes(text)
        for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
            compiled.unlink()

    def callers(self, tests: list[str], marks: str, mutants: list[Mutant]) -> dict[Mutant, list[str]]:
        """Return the tests that call the function of each edit, by a run of all tests that must pass.

        Edits outside of functions are left out.
        """
        places = {
            mutant: f"{self.root.resolve() / mutant.path}:{line}"
            for mutant, line in _functions(self.root, mutants)
        }
        targets, notes = self.root.parent / "targets", self.root.parent / "notes"
        targets.write_text("".join(f"{place}\n" for place in places.values()), "utf-8")
        notes.mkdir(exist_ok=True)
        tracer = self._packages / "sitecustomize.py"
        shutil.copy(Path(__file__).with_name("called.py"), tracer)
        traced = {"CALLED_TARGETS": str(targets), "CALLED_NOTES": str(notes)}
        result, by = self.test(tests, marks, traced)
        tracer.unlink()
        if result != "passed":
            raise SystemExit(f"the tests fail without a mutant: {result}, {by}")
        found: dict[str, set[str]] = {}
        for each in notes.iterdir():
            for line in each.read_text("utf-8").splitlines():
                place, _, test = line.partition("\t")
                name, _, phase = test.rpartition(" ")
                # A fixture may be of the whole file, and no test's own.
                found.setdefault(place, set()).add(name if phase == "(call)" else name.partition("::")[0])
        everything = {""}
        return {
            mutant: tests if found.get(place, set()) & everything else sorted(found.get(place, set()))
            for mutant, place in places.items()
        }

    def test(self, tests: list[str], marks: str, traced: Mapping[str, str] | None = None) -> tuple[str, str]:
        """Run tests. Return `passed`, `failed` or `timeout`, and the first test that failed.

        `unusable`: pytest has refused the names, or could not begin.
        `traced`: variables of the tracer. It has no limits.
        """
        named = self.root.parent / "tests"
        named.write_text("".join(f"{each}\n" for each in tests), "utf-8")
        shutil.rmtree(self._examples, ignore_errors=True)
        python = str(self.clone / ".venv/bin/python")
        command = f"{python} -m pytest -x -q -n0 -p no:cacheprovider --no-header --tb=no".split()
        timeout = WALL_LIMIT if traced else CPU_LIMIT
        command += [f"--timeout={timeout}", "--hypothesis-seed=0", "-m", marks, f"@{named}"]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environment |= {
            "PYTHONPATH": str(self._packages),
            "PYTHONHASHSEED": "0",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self._examples),
            **(traced or {}),
        }
        process = subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=None if traced else _limit,  # noqa: PLW1509
        )
        try:
            output, _ = process.communicate(timeout=None if traced else WALL_LIMIT)
        except subprocess.TimeoutExpired:
            return "timeout", "the whole run"
        finally:
            _end(process)
        if process.returncode == -signal.SIGXCPU:
            return "timeout", "CPU"
        if process.returncode in (-signal.SIGTERM, -signal.SIGINT, -signal.SIGKILL):
            raise SystemExit(
                f"the tests were stopped by signal {-process.returncode}; continue with --resume"
            )
        if process.returncode == 4:
            return "unusable", output.strip()[-200:]
        if process.returncode == 5:
            raise SystemExit(f"no tests: {' '.join(tests)} with the marks {marks!r}")
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        by = failed.group(1) if failed else output.strip()[-200:]
        waited = "Timeout (>" in output or "Failed: Timeout" in output
        return ("passed", "") if process.returncode == 0 else ("timeout" if waited else "failed", by)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT, CPU_LIMIT + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end(process: subprocess.Popen[str]) -> None:
    """End the process group, with what the tests left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _git(clone: Path, *words: str) -> str:
    command = ["git", *words]
    return subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True).stdout.strip()


def measure(clone: Path, folder: str, number: int, seed: int, marks: str, resume: Path) -> dict[str, Any]:
    """Test all mutants that have no result yet. Return the figures, and the survivors under `survivors`."""
    paths = _git(clone, "ls-files").splitlines()
    commit = _git(clone, "rev-parse", "HEAD") + ("+" if _git(clone, "status", "--porcelain") else "")
    product = sorted(path for path in paths if path.startswith(f"{folder}/") and path.endswith(".py"))
    sources = {path: Source(path, (clone / path).read_bytes()) for path in product}
    mutants = draw(list(sources.values()), number, seed)
    head = {"folder": folder, "mutants": len(mutants), "seed": seed, "marks": marks, "commit": commit}
    rows = [json.loads(line) for line in resume.read_text("utf-8").splitlines()] if resume.exists() else []
    if rows and rows[0] != head:
        raise SystemExit(f"{resume} is of another run: {rows[0]}, not {head}")
    tests = [path for path in TESTS[folder] if (clone / path).exists()]
    with tempfile.TemporaryDirectory(prefix="mutants-") as made, resume.open("a", encoding="utf-8") as notes:
        copy = Copy(clone, Path(made), paths)
        left = mutants[max(0, len(rows) - 1) :]
        callers = copy.callers(tests, marks, left) if left else {}
        if not rows:
            rows.append(head)
            print(json.dumps(head), file=notes, flush=True)
        for mutant in left:
            source = sources[mutant.path]
            chosen = callers.get(mutant, tests)
            copy.write(mutant.path, source.changed(mutant))
            result, by = copy.test(chosen, marks) if chosen else ("passed", "")
            if result == "unusable" and chosen is not tests:
                # Not every name of a test is an argument of pytest.
                result, by = copy.test(tests, marks)
            result = "failed" if result == "unusable" else result
            copy.write(mutant.path, source.text)
            rows.append({**asdict(mutant), "result": result, "by": by})
            print(json.dumps(rows[-1]), file=notes, flush=True)
    results = rows[1:]
    survivors = [row for row in results if row["result"] == "passed"]
    seen = len(results) - len(survivors)
    interval = wilson(seen, len(results))
    return {
        "folder": folder,
        "mutants": len(results),
        "seen": seen,
        "score": round(seen / max(1, len(results)), 3),
        "interval": [round(each, 3) for each in interval],
        "timeouts": sum(row["result"] == "timeout" for row in results),
        "seed": seed,
        "marks": marks,
        "commit": commit,
        "survivors": survivors,
    }


def main() -> None:
    """Measure one folder, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", choices=sorted(TESTS))
    parser.add_argument("--mutants", type=int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--marks", default=FAST, help="the tests to run, as pytest's -m")
    parser.add_argument(
        "--clone", type=Path, default=Path(__file__).parents[1], help="with an environment in .venv"
    )
    parser.add_argument(
        "--resume", type=Path, help="results so far; by default a new file in the folder for them"
    )
    parser.add_argument("--survivors", type=Path, help="list of survivors (by default beside --resume)")
    given = parser.parse_args()
    resume = given.resume or Path(tempfile.mkdtemp(prefix="mutants-")) / f"{given.folder}.jsonl"
    figures = measure(
        given.clone.resolve(), given.folder, given.mutants, given.seed, given.marks, resume.resolve()
    )
    survivors = given.survivors or resume.with_suffix(".survivors")
    lines = [
        f"{each['path']}:{each['line']}: {each['kind']}: {each['old']!r} -> {each['new']!r}\n"
        for each in figures.pop("survivors")
    ]
    survivors.write_text("".join(sorted(lines)), encoding="utf-8")
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
