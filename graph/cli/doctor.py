"""`accelopt doctor`: what works on this machine, one line each, with the fix where something does not."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import typer

from .options import AsJson, Backend
from .output import console, counted, print_json

State = Literal["ok", "absent", "failed"]


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's."""

    name: str
    state: State
    """`absent`: an option that is not there, without which everything else works."""
    detail: str
    fix: str = ""


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(doctor)


def doctor(
    model: Annotated[str | None, typer.Option(help="See that this model answers.")] = None,
    base_url: Annotated[str | None, typer.Option(help="The OpenAI-compatible endpoint it is at.")] = None,
    api_key_env: Annotated[
        str, typer.Option(help="The environment variable that holds the key.")
    ] = "OPENAI_API_KEY",
    backend: Backend = "auto",
    as_json: AsJson = False,
) -> int:
    """See what works on this machine: stores, simulator, confinement, models, device; with the fix if not."""
    checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("python", _python),
        ("home", _home),
        ("ledger", _ledger),
        ("memory", _memory),
        ("confinement", _confinement),
        ("simulator", _simulator),
        ("models", lambda: _models(model, base_url, api_key_env)),
        ("neuron", lambda: _neuron(required=backend == "neuron")),
        ("server", _server),
    ]
    findings: list[Finding] = []
    screen = console()
    for name, check in checks:
        for finding in _guarded(name, check):
            findings.append(finding)
            if not as_json:
                screen.print(_line(finding))
    healthy = all(finding.state != "failed" for finding in findings)
    if as_json:
        print_json({"ok": healthy, "checks": [asdict(finding) for finding in findings]})
    return 0 if healthy else 1


def _guarded(name: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings of a check; one that itself fails is a finding, so that the others are still made."""
    try:
        yield from check()
    except Exception as failure:
        yield Finding(name, "failed", " ".join(str(failure).split()) or type(failure).__name__)


def _line(finding: Finding) -> str:
    from rich.markup import escape

    mark = {"ok": "[green]ok[/]    ", "absent": "[yellow]absent[/]", "failed": "[red]failed[/]"}[
        finding.state
    ]
    fix = f"\n         -> {escape(finding.fix)}" if finding.fix else ""
    return f"{mark}  [bold]{finding.name}[/]: {escape(finding.detail)}{fix}"


def _python() -> Iterator[Finding]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        product = f"accelopt {version('accelopt')}"
    except PackageNotFoundError:
        product = "accelopt, not installed, run from its folder"
    yield Finding("python", "ok", f"{product}, Python {platform.python_version()} at {sys.prefix}")


def _home() -> Iterator[Finding]:
    from memory_store.home import HOME_VARIABLE, find_home

    home = find_home().prepare()
    free = shutil.disk_usage(home.root).free / 2**30
    yield Finding(
        "home",
        "ok" if free > 1 else "failed",
        f"{home.root} can be written, {free:.0f} GiB free",
        "" if free > 1 else f"free some space, or set {HOME_VARIABLE} to a folder on a larger disk",
    )


def _ledger() -> Iterator[Finding]:
    from memory_store.home import find_home
    from memory_store.ledger import Ledger

    with Ledger(find_home().prepare().ledger_url) as ledger:
        yield Finding("ledger", "ok", f"{ledger.place}, {counted(len(ledger.runs()), 'run')}")


def _memory() -> Iterator[Finding]:
    from memory_store.chroma import ExperienceStore
    from memory_store.home import find_home

    with ExperienceStore.open(find_home().prepare().chroma_path) as store:
        yield Finding("memory", "ok", f"{store.count()} experiences, embedded by {store.embedder.name}")


def _confinement() -> Iterator[Finding]:
    from tools.pool import PoolSettings, WorkerPool
    from tools.sandbox import Confinement

    with (
        WorkerPool(PoolSettings(workers=1)) as pool,
        pool.lease("tools.kernel_service", timeout_s=30, memory_bytes=1 << 30) as lease,
    ):
        found = Confinement.model_validate(lease.call("confinement").fields)
    yield Finding(
        "confinement",
        "ok" if found.complete else "failed",
        found.statement(),
        "" if found.complete else "until then, run only kernels from models and people that you trust",
    )


def _simulator() -> Iterator[Finding]:
    yield _judged("simulator", "simulator", "trn1")


def _judged(name: str, backend: Literal["simulator", "neuron"], target: str) -> Finding:
    """A small kernel taken through the whole pipeline."""
    from nkibench.registry import load_problem
    from tools.evaluation import EvaluationSettings, Evaluator
    from tools.kernel import Kernel

    problem = load_problem("silu")
    settings = EvaluationSettings(small=True, backend=backend, target=target)
    with Evaluator(settings) as evaluator:
        found = evaluator.evaluate(Kernel.from_source(problem.baseline_source()), problem)
    if found.status.value != "correct":
        return Finding(name, "failed", f"a small silu kernel is {found.status.value}: {found.error}")
    return Finding(name, "ok", f"a small silu kernel is compiled, checked and timed in {found.wall_s:.1f} s")


def _models(model: str | None, base_url: str | None, api_key_env: str) -> Iterator[Finding]:
    import asyncio

    from nodes.context import RoleModel
    from nodes.models import check_endpoint

    yield Finding("model offline", "ok", "built in, needs nothing")
    if model is None:
        return
    settings = RoleModel(models=(model,), base_url=base_url, api_key_env=api_key_env)
    asyncio.run(check_endpoint(settings))
    yield Finding(f"model {model}", "ok", f"{base_url or 'the OpenAI API'} answers and knows it")


def _neuron(required: bool) -> Iterator[Finding]:
    from tools.backends.neuron import inspect_host

    missing: State = "failed" if required else "absent"
    host = inspect_host()
    for problem in host.problems:
        what, _, fix = problem.partition(": ")
        yield Finding("neuron", missing, what, fix)
    if not host.usable:
        return
    yield Finding(
        "neuron",
        "ok",
        f"{len(host.devices)} devices of {host.target or 'an unknown generation'}, neuronx-cc {host.compiler}, "
        f"{host.profiler}, torch-neuronx {host.torch or 'absent (needed for the later nki dialect only)'}",
    )
    if required:
        yield _judged("neuron kernel", "neuron", host.target or "trn1")


def _server() -> Iterator[Finding]:
    if importlib.util.find_spec("langgraph_api") is None:
        yield Finding("langgraph dev", "absent", "not installed", "make dev")
    else:
        yield Finding("langgraph dev", "ok", "installed; start it with: make serve")
