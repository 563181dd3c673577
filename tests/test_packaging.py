"""The project as it is handed out: what it declares, and what a wheel of it would hold."""

import importlib
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS = ("graph", "nodes", "tools", "memory_store", "nkibench")


def declared() -> list[Requirement]:
    project = PROJECT["project"]
    lines = [*project["dependencies"], *PROJECT["dependency-groups"]["dev"]]
    for extra in project["optional-dependencies"].values():
        lines += extra
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("requirement", declared(), ids=str)
def test_every_dependency_has_a_lower_and_an_upper_bound(requirement):
    operators = {one.operator for one in requirement.specifier}
    assert ">=" in operators and "<" in operators


def test_the_constraints_fit_what_is_declared():
    pins = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if found := re.match(r"([a-z0-9._-]+)==([^ ;]+)", line):
            pins.setdefault(found.group(1), []).append(found.group(2))
    on_the_device = {Requirement(line).name for line in PROJECT["project"]["optional-dependencies"]["neuron"]}
    for requirement in declared():
        if requirement.name not in on_the_device:
            pinned = pins[canonicalize_name(requirement.name)]
            assert all(requirement.specifier.contains(version, prereleases=True) for version in pinned), (
                requirement
            )


def test_committed_files_name_no_machine_and_no_registry():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    # Spelled so that this file does not name them either.
    named = re.compile(
        "/wo" + "rk/|/ro" + "ot/|--(extra-)?index-url +http|pythonho" + "sted|registry[.]np" + "mjs"
    )
    found = []
    for name in listed.stdout.splitlines():
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        found += [f"{name}: {hit.group()}" for hit in named.finditer(text)]
    assert found == []


def test_a_wheel_holds_the_data_files_and_nothing_beside_the_rooms(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for needed in (
        "graph/report/style.css",
        "nkibench/problems/silu/problem.toml",
        "nkibench/problems/silu/baseline.py",
        "nkibench/problems/silu/reference.py",
        "nodes/prices.toml",
    ):
        assert needed in names
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == set(ROOMS)


def test_the_server_file_names_things_that_exist():
    settings = json.loads((ROOT / "langgraph.json").read_text(encoding="utf-8"))
    paths = [one["path"] for one in settings["graphs"].values()]
    paths += [settings["http"]["app"], settings["checkpointer"]["path"]]
    for path in paths:
        module, _, name = path.replace(":", ".").rpartition(".")
        assert hasattr(importlib.import_module(module), name), path


def test_the_rooms_are_cheap_to_import():
    heavy = ("chromadb", "openai", "langchain_openai", "plotly", "onnxruntime")
    code = f"import sys, {', '.join(ROOMS)}, graph.run, graph.workflow\nprint([n for n in {heavy} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_ci_runs_what_people_run():
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
