"""`accelopt evaluate` and `accelopt profile`: one kernel, judged or measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .options import AsJson, Backend, KernelFile, ProblemName, ReferenceFile, Target
from .output import CommandError, byte_size, console, milliseconds, percent, print_error, print_json

if TYPE_CHECKING:
    from tools.evaluation import Evaluation


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(evaluate)
    app.command()(profile)


def evaluate(
    kernel: KernelFile,
    problem: ProblemName = None,
    reference: ReferenceFile = None,
    target: Target = "trn1",
    backend: Backend = "simulator",
    precision: Annotated[
        Literal["strict", "relaxed"],
        typer.Option(help="strict refuses element types below fp32; relaxed allows and reports them."),
    ] = "strict",
    small: Annotated[bool, typer.Option("--small", help="Use the problem's small shape.")] = False,
    timeout: Annotated[float, typer.Option(help="Hard limit, in seconds.", min=1)] = 180,
    as_json: AsJson = False,
) -> int:
    """Judge one kernel: does it compile, is it right in every input regime, how fast is it."""
    found = _evaluated(
        kernel,
        problem,
        reference,
        stage="promote",
        settings={
            "target": target,
            "backend": backend,
            "precision": precision,
            "small": small,
            "timeout_s": timeout,
        },
    )
    error = str(found.error) if found.error else None
    if as_json:
        print_json(
            {
                "kernel": str(kernel),
                "kernel_id": found.kernel_id,
                "problem": found.problem,
                "target": found.target,
                "backend": found.backend,
                "status": found.status.value,
                "error": error,
                "error_detail": found.error.model_dump(mode="json") if found.error else None,
                "latency_ms": found.latency_ms,
                "percent_of_peak": found.percent_of_peak,
                "verification": _plain(found.verification),
                "profile": _plain(found.profile),
                "bounds": _plain(found.bounds),
                "wall_s": round(found.wall_s, 3),
            }
        )
    elif found.status.value == "correct":
        _print_evaluation(found)
    if found.status.value == "correct":
        return 0
    print_error(_refusal(kernel, found))
    return 1


def profile(
    kernel: KernelFile,
    problem: ProblemName = None,
    reference: ReferenceFile = None,
    target: Target = "trn1",
    backend: Backend = "simulator",
    small: Annotated[bool, typer.Option("--small", help="Use the problem's small shape.")] = False,
    trace: Annotated[
        Path | None,
        typer.Option(help="Write the timeline of engines and queues, for a Chrome trace viewer or Perfetto."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Measure one kernel without running it on data: latency, counters, and what bounds it."""
    found = _evaluated(
        kernel,
        problem,
        reference,
        stage="profile",
        settings={"target": target, "backend": backend, "small": small},
    )
    if found.profile is None:
        error = str(found.error or found.status.value)
        if as_json:
            print_json(
                {"latency_ms": None, "target": found.target, "profile": None, "bounds": None, "error": error}
            )
        print_error(_refusal(kernel, found))
        return 1
    if trace is not None:
        from .sources import chosen_problem, read_source
        from .timeline import write_timeline

        if found.backend != "simulator":
            raise CommandError(
                "--trace shows the simulator's timeline; on a device, use neuron-profile itself"
            )
        chosen = chosen_problem(problem, reference, kernel)
        write_timeline(read_source(kernel, "kernel"), chosen, target, small, trace)
    if as_json:
        print_json(
            {
                "kernel": str(kernel),
                "kernel_id": found.kernel_id,
                "problem": found.problem,
                "latency_ms": found.latency_ms,
                "target": found.target,
                "backend": found.backend,
                "percent_of_peak": found.percent_of_peak,
                "profile": _plain(found.profile),
                "bounds": _plain(found.bounds),
                "trace": str(trace) if trace else None,
            }
        )
        return 0
    screen = console()
    screen.print(_headline(found))
    screen.print(_counters(found))
    if found.bounds is not None:
        screen.print()
        screen.print(found.bounds.digest(), markup=False)
    if trace is not None:
        screen.print(f"\ntimeline written to {trace}; open it in a Chrome trace viewer", markup=False)
    return 0


def _evaluated(
    kernel: Path, problem: str | None, reference: Path | None, stage: str, settings: dict[str, Any]
) -> Evaluation:
    from memory_store.home import find_home
    from tools.backends.neuron import choose_backend
    from tools.evaluation import EvaluationSettings, Evaluator, Stage
    from tools.kernel import Kernel

    from .sources import chosen_problem, read_source, tell_which_kernel

    source = read_source(kernel, "kernel")
    if not source.strip():
        raise CommandError(f"the kernel {kernel} is empty; write one function under @nki.jit")
    chosen = chosen_problem(problem, reference, kernel)
    tell_which_kernel(kernel, source)
    cache = find_home().cache_path / "references"
    asked = EvaluationSettings.model_validate(
        {**settings, "backend": choose_backend(settings["backend"]), "cache": cache}
    )
    with Evaluator(asked) as evaluator:
        return evaluator.evaluate(Kernel.from_source(source), chosen, Stage(stage))


def _refusal(kernel: Path, found: Evaluation) -> str:
    """The verdict and its reason in one line."""
    status = found.status.value.replace("_", " ")
    reason = str(found.error or "no reason given")
    # Some reasons are named like the verdict they lead to.
    return f"{kernel}: {status}: {reason.removeprefix(f'{found.status.value}: ')}"


def _print_evaluation(found: Evaluation) -> None:
    screen = console()
    screen.print(_headline(found))
    checked = found.verification
    if checked is not None and checked.runs:
        regimes = ", ".join(regime.value for regime in checked.regimes)
        screen.print(
            f"verified on seeds {', '.join(map(str, checked.seeds))} and inputs {regimes}: worst relative error "
            f"{checked.worst_relative_l2:.2g} (worst tile {checked.worst_tile_relative_l2:.2g}), "
            f"tolerance {checked.tolerance:.2g}"
        )
    if found.profile is not None:
        screen.print(_counters(found))


def _headline(found: Evaluation) -> str:
    color = "green" if found.status.value in ("correct", "profiled") else "red"
    parts = [
        f"[bold {color}]{found.status.value.replace('_', ' ')}[/]",
        f"{found.problem} on {found.target} ({found.backend})",
    ]
    if found.latency_ms is not None:
        parts.append(f"[bold]{milliseconds(found.latency_ms)}[/]")
    if found.percent_of_peak is not None:
        parts.append(f"{percent(found.percent_of_peak)} of peak")
    return " · ".join(parts)


def _counters(found: Evaluation) -> Any:
    from rich.table import Table

    assert found.profile is not None
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, value in found.profile.counters().items():
        if name.endswith("_bytes"):
            shown = byte_size(value)
        elif name.endswith("_percent"):
            shown = percent(100 * value)
        else:
            shown = f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"
        table.add_row(name, shown)
    return table


def _plain(model: Any) -> Any:
    return model.model_dump(mode="json") if model is not None else None
