"""Plants a defect in a process of pytest: `pytest -p tests.planted.planting`, with its name in a variable."""

import ast
import inspect
import os
import textwrap
from types import CodeType, FunctionType
from typing import Any, Final

from tests.planted.plants import PLANTS, Plant

VARIABLE: Final = "SLUICEGATE_TEST_PLANT"


class DoesNotFit(Exception):
    """The text of the plant is not in its function once."""


def function_of(plant: Plant) -> FunctionType:
    """Return the function of a seam."""
    found: Any = plant.seam.fget if isinstance(plant.seam, property) else plant.seam
    found = inspect.unwrap(getattr(found, "callback", found))
    if not isinstance(found, FunctionType):
        raise DoesNotFit(f"{plant.name}: {found!r} is no function")
    return found


def wrong_code(plant: Plant) -> CodeType:
    """Return the code of the function with the wrong line. Raises DoesNotFit."""
    function = function_of(plant)
    text = textwrap.dedent(inspect.getsource(function))
    if text.count(plant.right) != 1:
        raise DoesNotFit(f"{plant.name}: {plant.right!r} is {text.count(plant.right)} times in\n{text}")
    tree = ast.parse(text.replace(plant.right, plant.wrong))
    (definition,) = tree.body
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        raise DoesNotFit(f"{plant.name}: {function} has no definition of its own")
    definition.decorator_list = []
    made: dict[str, Any] = {}
    exec(compile(tree, function.__code__.co_filename, "exec"), function.__globals__, made)  # noqa: S102
    code: CodeType = made[function.__name__].__code__
    if code.co_freevars != function.__code__.co_freevars:
        raise DoesNotFit(f"{plant.name}: {function} has variables of an outer function")
    return code


def put(plant: Plant) -> None:
    """Replace the code of the function in place, so that every reference to it has the defect."""
    function_of(plant).__code__ = wrong_code(plant)


def pytest_configure() -> None:
    """Plant the defect that the environment names."""
    name = os.environ.get(VARIABLE)
    if name is not None:
        put(next(each for each in PLANTS if each.name == name))
