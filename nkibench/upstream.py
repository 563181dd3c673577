"""The original NKIBench's folder: reading a checkout's problems, and writing results in its layout.

`summary.json` there maps each operator to its cases, a case to the values of its sizes and to pairs of a
`task` (the reference) and a `kernel`, both paths relative to the folder:

    {"silu": {"cases": {"1": {"values": {"M": 4096, "N": 7168}, "impls": [{"task": ..., "kernel": ...}]}}}}
"""

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from .errors import InvalidProblem
from .problem import Problem, SourceFile
from .registry import DEFAULT_TOLERANCE, load_problem, problem_names, read_problem

_FOLDER = "NKIBench"
_SUMMARY = "summary.json"


def upstream_problems(checkout: Path) -> Iterator[Problem]:
    """The problems of a checkout, one for each kernel, named as its kernel file is.

    Work formulas, tolerance and input regimes are those of our problem for the same operator; an operator
    that we do not have gets none, and its traffic is measured when its reference first runs. `checkout` is
    the repository or the folder in it that holds `summary.json`.

    Raises:
        InvalidProblem: there is no such summary, or it is not in that layout, or names files that are not
            there.
    """
    folder = _benchmark_folder(checkout)
    summary = _read_summary(folder / _SUMMARY)
    taken: set[str] = set()
    for operator, entry in summary.items():
        for values, task, kernel in _implementations(operator, entry, folder):
            name = _unused(kernel.stem, taken)
            taken.add(name)
            yield _problem(name, operator, values, task, kernel)


def import_upstream(checkout: Path, into: Path) -> list[Problem]:
    """Copies the problems of a checkout into folders under `into`, where the registry finds them as `extra`.

    Raises:
        InvalidProblem: as `upstream_problems`; nothing is written then.
        OSError: `into` cannot be written.
    """
    problems = list(upstream_problems(checkout))
    for problem in problems:
        folder = into / problem.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "reference.py").write_text(problem.reference_source(), encoding="utf-8")
        (folder / "baseline.py").write_text(problem.baseline_source(), encoding="utf-8")
        (folder / "problem.toml").write_text(_toml(problem), encoding="utf-8")
    return [read_problem(into / problem.name) for problem in problems]


def export_upstream(results: Iterable[tuple[Problem, str]], into: Path) -> Path:
    """Writes kernels (with their problems) in the layout above, and returns the path of the summary.

    Each problem's sizes are one case of its operator; several kernels of a case are numbered in the order
    given. Files of an earlier export in the same place are replaced.

    Raises:
        OSError: `into` cannot be written.
    """
    for subfolder in ("reference", "kernels"):
        shutil.rmtree(into / subfolder, ignore_errors=True)
        (into / subfolder).mkdir(parents=True)
    summary: dict[str, dict[str, Any]] = {}
    for problem, kernel in results:
        label = problem.operation or problem.name
        cases = summary.setdefault(label, {"cases": {}})["cases"]
        key = next((key for key, case in cases.items() if case["values"] == problem.shape), str(len(cases)))
        case = cases.setdefault(key, {"values": dict(problem.shape), "impls": []})
        stem = "_".join([label, *(f"{size}{value}" for size, value in problem.shape.items())])
        number = len(case["impls"])
        paths = {"task": f"./reference/{stem}_numpy_{number}.py", "kernel": f"./kernels/{stem}_{number}.py"}
        (into / paths["task"]).write_text(problem.reference_source(), encoding="utf-8")
        (into / paths["kernel"]).write_text(kernel, encoding="utf-8")
        case["impls"].append(paths)
    path = into / _SUMMARY
    path.write_text(json.dumps(summary, indent=4) + "\n", encoding="utf-8")
    return path


def _benchmark_folder(checkout: Path) -> Path:
    for folder in (checkout, checkout / _FOLDER):
        if (folder / _SUMMARY).is_file():
            return folder
    raise InvalidProblem(f"{checkout}: neither {_SUMMARY} nor {_FOLDER}/{_SUMMARY} is there")


def _read_summary(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidProblem(f"cannot read {path}: {error}") from error
    if not isinstance(summary, dict):
        raise InvalidProblem(f"{path}: operators by name are expected, not a {type(summary).__name__}")
    return summary


def _implementations(operator: str, entry: Any, folder: Path) -> Iterator[tuple[dict[str, int], Path, Path]]:
    """Sizes, reference and kernel of every implementation of an operator."""
    try:
        for case in entry["cases"].values():
            for implementation in case["impls"]:
                task, kernel = (_inside(folder, implementation[key]) for key in ("task", "kernel"))
                yield dict(case["values"]), task, kernel
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        message = f"{folder / _SUMMARY}: {operator} is not in NKIBench's layout: {what}"
        raise InvalidProblem(message) from error


def _inside(folder: Path, name: str) -> Path:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise InvalidProblem(f"{folder / _SUMMARY}: there is no file {name} in that folder")
    return path


def _unused(stem: str, taken: set[str]) -> str:
    candidates = (stem, *(f"{stem}-{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in candidates if name not in taken and name not in problem_names())


def _problem(name: str, operator: str, values: dict[str, int], task: Path, kernel: Path) -> Problem:
    fields: dict[str, Any] = {
        "name": name,
        "operation": operator,
        "title": operator,
        "operator": operator,
        "description": "As the reference from the upstream checkout defines it.",
        "tolerance": DEFAULT_TOLERANCE,
        "bound": "memory",
    }
    ours = load_problem(operator) if operator in problem_names() else None
    if ours is not None and set(ours.shape) == set(values):
        known = ("title", "operator", "description", "tolerance", "bound", "regimes")
        formulas = ("vector_flops", "matmul_flops", "min_traffic_elements")
        fields.update({field: getattr(ours, field) for field in (*known, *formulas)})
    try:
        return Problem.model_validate(
            {
                **fields,
                "shape": values,
                "small_shape": values,
                "source": "upstream",
                "reference_file": SourceFile(path=task),
                "baseline_file": SourceFile(path=kernel),
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidProblem(f"{name}: {where}: {first['msg']}") from error


def _toml(problem: Problem) -> str:
    """`problem.toml` of an imported problem. JSON's strings, numbers and lists are TOML's, too."""
    fields = problem.model_dump(
        mode="json",
        exclude_none=True,
        exclude={"shape", "small_shape", "arguments", "reference_file", "baseline_file"},
    )
    lines = [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
    for table in ("shape", "small_shape"):
        lines += ["", f"[{table}]"]
        lines += [f"{size} = {value}" for size, value in getattr(problem, table).items()]
    return "\n".join(lines) + "\n"
