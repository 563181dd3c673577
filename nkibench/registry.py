"""Which problems there are: ours, those imported from upstream, and the one a user brings along.

A problem is a folder with `problem.toml`, `reference.py` and `baseline.py`. `extra` names further directories
of such folders; `nkibench.upstream.import_upstream` fills one from a checkout.
"""

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from .errors import InvalidProblem, UnknownProblem
from .problem import Problem, SourceFile
from .reference import demands, integer_constants

PROBLEMS = Path(__file__).parent / "problems"

# NKIBench's own tolerance for everything but scans; a user's problem gets it too.
DEFAULT_TOLERANCE = 2e-5


def _folders(extra: Iterable[Path]) -> dict[str, Path]:
    """Problem folders by name; ours win over a later directory's of the same name."""
    folders: dict[str, Path] = {}
    for directory in (PROBLEMS, *extra):
        for file in sorted(directory.glob("*/problem.toml")):
            folders.setdefault(file.parent.name, file.parent)
    return folders


def problem_names(extra: Iterable[Path] = ()) -> list[str]:
    """Names of all problems: ours in alphabetical order, then each extra directory's."""
    return list(_folders(extra))


def load_problem(name: str, extra: Iterable[Path] = ()) -> Problem:
    """The problem of that name.

    Raises:
        UnknownProblem: there is none; the error carries the nearest names.
        InvalidProblem: its folder cannot be read as a problem.
    """
    folders = _folders(extra)
    if name not in folders:
        raise UnknownProblem(name, difflib.get_close_matches(name, folders, n=3, cutoff=0.5))
    return read_problem(folders[name])


def read_problem(folder: Path) -> Problem:
    """The problem that a folder holds.

    Raises:
        InvalidProblem: a file is missing, or `problem.toml` does not describe a problem.
    """
    description = folder / "problem.toml"
    try:
        fields = tomllib.loads(description.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidProblem(f"cannot read {description}: {error}") from error
    for file in ("reference.py", "baseline.py"):
        if not (folder / file).is_file():
            raise InvalidProblem(f"{folder}: there is no {file}")
    files: dict[str, Any] = {
        "reference_file": SourceFile(path=folder / "reference.py"),
        "baseline_file": SourceFile(path=folder / "baseline.py"),
    }
    try:
        return Problem.model_validate({"source": "accelopt", **fields, **files})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise InvalidProblem(f"{description}: {where}: {first['msg']}") from error


def user_problem(
    reference: str | Path, kernel: str | Path, *, name: str = "custom", measure: bool = True
) -> Problem:
    """A problem from a user's own reference and kernel, each a path or a text.

    Its least traffic is what the reference takes and returns; its FLOPs count as none unless the reference
    says how many they are. Percent of peak then says how near the kernel comes to the memory roofline only:
    an upper bound on what can be gained.

    With `measure`, the reference runs once here to count that traffic. Without it nothing is run, as befits a
    text from a stranger: `Problem.with_measured_traffic` completes the problem with what a confined process
    computed.

    The reference may demand more or less than NKIBench does of kernels: see `reference.Demands`.

    Raises:
        InvalidReference: the reference does not parse, run, or have the functions it needs.
        InvalidProblem: a file cannot be read.
    """
    reference_file, baseline_file = SourceFile.of(reference), SourceFile.of(kernel)
    where = str(reference) if isinstance(reference, Path) else "reference"
    # Sizes of zero or below are flags or axes, not part of a shape.
    constants = integer_constants(reference_file.read(), where)
    asked = demands(reference_file.read(), where)
    shape = {constant: value for constant, value in constants.items() if value > 0}
    baseline_file.read()
    problem = Problem(
        name=name,
        title="a kernel of your own",
        operator="custom",
        description="Defined by the reference that came with it.",
        shape=shape,
        small_shape=shape,
        tolerance=asked.tolerance or DEFAULT_TOLERANCE,
        regimes=asked.regimes,
        matmul_flops=None if asked.matmul_flops is None else str(asked.matmul_flops),
        vector_flops=None if asked.vector_flops is None else str(asked.vector_flops),
        bound="memory",
        source="user",
        reference_file=reference_file,
        baseline_file=baseline_file,
    )
    if not measure:
        return problem
    loaded = problem.reference()
    inputs = loaded.inputs(0)
    return problem.with_measured_traffic(inputs, loaded.forward(inputs))
