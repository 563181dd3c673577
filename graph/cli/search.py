"""`accelopt optimize` and `accelopt resume`: the search, with what a person sees of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import AsJson, Backend, MaxKernels, MaxTime, MaxTokens, MaxUsd, ReferenceFile, Target
from .output import (
    CommandError,
    console,
    counted,
    duration,
    milliseconds,
    percent,
    print_error,
    print_json,
    program,
)

if TYPE_CHECKING:
    from rich.console import Console

    from graph.run import Result
    from memory_store.ledger import RunRecord
    from nodes.context import Caps, RunContext, Series

    from .progress import Progress

RESULT_FIELDS = (
    "problem",
    "target",
    "baseline_latency_ms",
    "best_latency_ms",
    "speedup",
    "baseline_percent_of_peak",
    "best_percent_of_peak",
    "kernels_evaluated",
    "kernels_correct",
    "iterations",
    "tokens",
    "usd",
    "wall_s",
    "best_kernel_path",
    "run_id",
)


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(optimize)
    app.command()(resume)
    app.command()(replay)


def optimize(
    problems: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROBLEM",
            help="Problems of the benchmark, or `all`; see: accelopt problems",
            show_default=False,
        ),
    ] = None,
    kernel: Annotated[
        Path | None, typer.Option(help="Your own kernel, instead of a problem; needs --reference.")
    ] = None,
    reference: ReferenceFile = None,
    target: Target = "trn1",
    preset: Annotated[
        str,
        typer.Option(help="quick: a short search to try things; paper: the published one, 2304 kernels."),
    ] = "quick",
    iterations: Annotated[int | None, typer.Option(help="T: rounds of the search.")] = None,
    beam: Annotated[int | None, typer.Option(help="B: candidates kept from round to round.")] = None,
    plans: Annotated[int | None, typer.Option(help="N: plans for each candidate.")] = None,
    samples: Annotated[int | None, typer.Option(help="K: kernels for each plan.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="The model behind every role, or ROLE=MODEL for one role; several spread the draws. "
            "`offline` is the built-in one.",
            show_default="offline",
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible endpoint, such as http://localhost:8000/v1.")
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(help="The environment variable that holds the key.", show_default="OPENAI_API_KEY"),
    ] = None,
    backend: Backend = "simulator",
    seed: Annotated[int | None, typer.Option(help="Decides every random choice.", show_default="0")] = None,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
    max_seconds: MaxTime = None,
    max_kernels: MaxKernels = None,
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL=IN/OUT",
            help="USD for a million tokens in and out, of a model we have no price for.",
        ),
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="Use the small shapes, for trying things out.")
    ] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other setting, such as fixes=2, memory=paper or planner.temperature=0.8.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Search for a faster kernel: plan, write, judge, keep the best, remember what helped.

    Whatever stops it, what it found is kept and `accelopt resume` goes on.
    """
    from .settings import run_context

    inputs = _inputs(problems or [], kernel, reference)
    context = run_context(
        preset,
        {
            "target": target,
            "backend": backend,
            "iterations": iterations,
            "beam": beam,
            "plans": plans,
            "samples": samples,
            "seed": seed,
            "small": small or None,
            "caps.usd": max_usd,
            "caps.tokens": max_tokens,
            "caps.wall_s": max_seconds,
            "caps.kernels": max_kernels,
        },
        models=model or [],
        base_url=base_url,
        api_key_env=api_key_env,
        prices=price or [],
        assignments=setting or [],
    )
    if len(inputs) > 1:
        from ..series import new_series

        return _run_series(new_series([name for name, _ in inputs], context.caps), context, as_json)
    ((name, given),) = inputs
    document, code = _run(name, context, _search(given, context), as_json)
    if as_json:
        print_json([document])
    return code


def resume(
    run: Annotated[
        str,
        typer.Argument(help="A run's id, how it begins, or `last`; see: accelopt runs", show_default=False),
    ],
    iterations: Annotated[int | None, typer.Option(min=1, help="Go on to this many rounds.")] = None,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
    max_seconds: MaxTime = None,
    max_kernels: MaxKernels = None,
    as_json: AsJson = False,
) -> int:
    """Take up a run where it stopped; nothing finished is done or paid for again.

    A run that was begun together with others (accelopt optimize all) goes on with those too.
    """
    from nodes.context import RunContext

    from .runs import open_ledger
    from .settings import other_caps

    with open_ledger() as ledger:
        if ledger is None:
            raise CommandError("there are no runs yet; accelopt optimize makes some")
        record = ledger.find_run(run)
    context = RunContext.model_validate(record.settings)
    limits = {"usd": max_usd, "tokens": max_tokens, "wall_s": max_seconds, "kernels": max_kernels}
    series = context.series
    caps = other_caps(series.caps if series else context.caps, limits)
    if series is not None:
        series = series.model_copy(update={"caps": caps})
        return _run_series(series, context, as_json, record, iterations)
    document, code = _go_on(record, as_json, iterations=iterations, caps=caps)
    if as_json:
        print_json(document)
    return code


def replay(
    run: Annotated[
        str,
        typer.Argument(help="A run's id, how it begins, or `last`; see: accelopt runs", show_default=False),
    ],
    as_json: AsJson = False,
) -> int:
    """Do a recorded run again, with its recorded answers in place of any model, and compare.

    It needs no endpoint and costs nothing. The exit code is 0 only if every kernel and verdict is the same.
    """
    from memory_store.ledger import RunStatus
    from nodes.context import RunContext

    from .runs import open_ledger

    with open_ledger() as ledger:
        if ledger is None:
            raise CommandError("there are no runs yet; accelopt optimize makes some")
        record = ledger.find_run(run)
        problems = ledger.problems(record.id)
        if not problems:
            raise CommandError(f"run {record.id} was cut off before it began: there is nothing to replay")
        (begun,) = problems
        tried = max((one.round for one in ledger.candidates(record.id)), default=0)
    given: Any = begun.definition if "kernel" in begun.definition else begun.problem
    done = begun.rounds_done
    if tried > done and record.status in (RunStatus.CAPPED, RunStatus.FAILED):
        # It ended in order within a round, and chose the best of what there was of it.
        done = tried
    settings = {**record.settings, "replay_of": record.id, "series": None, "iterations": done}
    context = RunContext.model_validate(settings)
    document, code = _run(begun.problem, context, _search(given, context), as_json)
    differences = (
        _differences(record.id, document["run_id"], done) if document["run_id"] else ["it did not run"]
    )
    if as_json:
        print_json({**document, "replay_of": record.id, "same": not differences, "differences": differences})
    elif not differences:
        console().print(f"the same as {record.id}, kernel by kernel")
    if differences and not code:
        print_error(f"differs from {record.id} in {len(differences)} places, first {differences[0]}")
    return code or int(bool(differences))


def _differences(first: str, second: str, rounds: int) -> list[str]:
    """Places of two runs, in their first `rounds` rounds, where another kernel or another verdict stands."""
    from .runs import open_ledger

    with open_ledger() as ledger:
        assert ledger is not None
        runs = [
            {
                (one.round, one.slot): (one.kernel_id, one.status, one.latency_ms)
                for one in ledger.candidates(run)
                if one.round <= rounds
            }
            for run in (first, second)
        ]
    places = sorted(set(runs[0]) | set(runs[1]))
    return [
        f"round {r}, place {slot}" for r, slot in places if runs[0].get((r, slot)) != runs[1].get((r, slot))
    ]


Search = Callable[[dict[str, Any]], "Result"]


def _search(given: str | dict[str, str], context: RunContext) -> Search:
    def search(options: dict[str, Any]) -> Result:
        from ..run import optimize as optimize_run

        return optimize_run(given, context, **options)

    return search


def _go_on(record: RunRecord, as_json: bool, **changes: Any) -> tuple[dict[str, Any], int]:
    """Take up one run, with the settings that changed."""
    from nodes.context import RunContext

    from .runs import open_ledger

    with open_ledger() as ledger:
        assert ledger is not None
        begun = ledger.problems(record.id)
        tried = [one for one in ledger.candidates(record.id) if one.round and one.kernel_id]
        best = ledger.best(record.id, begun[0].problem) if begun else None
    context = RunContext.model_validate(record.settings)

    def search(options: dict[str, Any]) -> Result:
        from ..run import resume as resume_run

        return resume_run(record.id, **changes, **options)

    facts: dict[str, Any] = {}
    if begun and begun[0].baseline_latency_ms:
        facts = {
            "problem": begun[0].problem,
            "target": record.target,
            "baseline_latency_ms": begun[0].baseline_latency_ms,
            "iterations": changes.get("iterations") or context.iterations,
            "round": begun[0].rounds_done,
            "best_latency_ms": best.latency_ms if best else None,
            "tried": [(one.round, one.slot, one.status == "correct") for one in tried],
        }
    return _run(", ".join(record.problems), context, search, as_json, facts)


def _run_series(
    series: Series,
    context: RunContext,
    as_json: bool,
    named: RunRecord | None = None,
    iterations: int | None = None,
) -> int:
    """Work through the problems of a series, whatever of them is still to do; under limits that they share.

    Args:
        series: the problems, and their limits.
        context: settings of runs that are yet to begin.
        as_json: print one document.
        named: the run that a person asked for, which comes first.
        iterations: rounds of that run, and of those yet to begin.
    """
    import asyncio

    from memory_store.ledger import RunStatus
    from nodes.prepare import check_endpoints

    from ..limits import LimitReached
    from ..series import limits_for, runs_of
    from .runs import open_ledger

    # A wrong key or name would else be told once for each problem.
    asyncio.run(check_endpoints(context))
    order = list(series.problems)
    if named is not None:
        order = [*named.problems, *(name for name in order if name not in named.problems)]
        if iterations is not None:
            context = context.model_copy(update={"iterations": iterations})
    documents: dict[str, dict[str, Any]] = {}
    code = 0
    for name in order:
        record: RunRecord | None = None
        limits: Caps | None = None
        reached = ""
        with open_ledger() as ledger:
            if ledger is not None:
                record = runs_of(ledger, series).get(name)
                try:
                    limits = limits_for(ledger, series, record.id if record else None)
                except LimitReached as limit:
                    reached = str(limit)
        if record is not None and record.status is RunStatus.FINISHED and record.id != (named and named.id):
            documents[name] = _finished(record)
            continue
        if reached:
            documents[name] = {**_document(name, context, None, None), "stopped": reached}
            continue
        if record is None:
            own = context.model_copy(update={"series": series, "caps": limits or series.caps})
            documents[name], failure = _run(name, own, _search(name, own), as_json)
        else:
            limited = bool(series.caps.model_dump(exclude_none=True))
            documents[name], failure = _go_on(
                record,
                as_json,
                series=series,
                caps=limits if limited else None,
                iterations=iterations if named and record.id == named.id else None,
            )
        code = max(code, failure)
        if failure == 130:
            break
    results = [documents[name] for name in series.problems if name in documents]
    if as_json:
        print_json(results)
    else:
        _print_summary(results, series)
    return code


def _finished(record: RunRecord) -> dict[str, Any]:
    """What a run of earlier came to."""
    from nodes.context import RunContext

    from ..run import resume as resume_run

    result = resume_run(record.id)
    return _document(result.problem, RunContext.model_validate(record.settings), result, None)


def _inputs(
    names: list[str], kernel: Path | None, reference: Path | None
) -> list[tuple[str, str | dict[str, str]]]:
    """What to search for, each with its name; every name is checked before anything starts."""
    from nodes.problems import known_names, named_problem

    from .sources import own_problem, read_source, tell_which_kernel

    if kernel or reference:
        if names or kernel is None or reference is None:
            raise CommandError(
                "a kernel of your own takes both --kernel and --reference, and no problem's name", exit_code=2
            )
        name = own_problem(reference, kernel).name
        own = {
            "name": name,
            "kernel": read_source(kernel, "kernel"),
            "reference": read_source(reference, "reference"),
        }
        tell_which_kernel(kernel, own["kernel"])
        return [(name, own)]
    if not names:
        raise CommandError(
            "name a problem (accelopt problems lists them), or give --kernel and --reference", exit_code=2
        )
    chosen = known_names() if names == ["all"] else list(dict.fromkeys(names))
    for name in chosen:
        named_problem(name)
    return [(name, name) for name in chosen]


def _run(
    name: str, context: RunContext, search: Search, as_json: bool, facts: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], int]:
    """One search: its JSON document and its exit code. A failure keeps what was found."""
    from ..run import RunPaused, RunStopped
    from .progress import Progress

    screen = console()
    hush = _quiet_console() if as_json else screen
    code = 0
    error: str | None = None
    result: Result | None = None
    with Progress(
        hush, beam=context.beam, plans=context.plans, samples=context.samples, facts=facts
    ) as progress:
        options: dict[str, Any] = {"on_event": progress, "handle_signals": True}
        if sys.stdin.isatty() and not as_json:
            options["on_question"] = _asker(screen, progress)
        try:
            result = search(options)
        except RunStopped as stopped:
            result, error, code = stopped.result, str(stopped), 130
        except RunPaused as paused:
            error, code = str(paused), 3
        except Exception as failure:
            from .entry import describe
            from .output import wants_traceback

            if wants_traceback():
                raise
            error, code = describe(failure)[0], 1
            if progress.run_id:
                error += f"; go on with: {program()} resume {progress.run_id}"
    document = _document(name, context, result, error)
    if result is not None and not as_json:
        _print_result(screen, result)
    if error is not None:
        print_error(f"{name}: {error}")
    return document, code


def _document(name: str, context: RunContext, result: Result | None, error: str | None) -> dict[str, Any]:
    if result is None:
        return {**dict.fromkeys(RESULT_FIELDS), "problem": name, "target": context.target, "error": error}
    fields = result.model_dump(mode="json")
    document = {field: fields[field] for field in RESULT_FIELDS}
    document["stopped"] = result.stopped or None
    if error is not None:
        document["error"] = error
    return document


def _print_result(screen: Console, result: Result) -> None:
    if result.speedup > 1:
        headline = f"[bold green]{result.speedup:.2f}x faster[/]"
    else:
        headline = "[bold yellow]no faster kernel found[/]"
    screen.print(
        f"\n[bold]{result.problem}[/] on {result.target}: {headline}, "
        f"{milliseconds(result.baseline_latency_ms)} to [bold]{milliseconds(result.best_latency_ms)}[/], "
        f"{percent(result.baseline_percent_of_peak)} to [bold]{percent(result.best_percent_of_peak)}[/] of peak"
    )
    cost = f", {result.tokens:,} tokens, {result.usd:.2f} USD" if result.usd else ""
    screen.print(
        f"{counted(result.kernels_evaluated, 'kernel')} tried, {result.kernels_correct} correct, "
        f"{counted(result.iterations, 'round')}, {duration(result.wall_s)}{cost}"
    )
    if result.stopped:
        screen.print(f"ended early: {result.stopped}", markup=False)
    screen.print(f"best kernel   {result.best_kernel_path}", markup=False, soft_wrap=True)
    screen.print(f"whole report  {program()} report {result.run_id}", markup=False, soft_wrap=True)


def _print_summary(documents: list[dict[str, Any]], series: Series) -> None:
    if not any(one["speedup"] for one in documents):
        return
    from math import exp, log

    from rich.table import Table

    table = Table(title="\nAll problems", title_justify="left")
    table.add_column("problem", overflow="fold")
    for column in ("baseline", "best", "speedup", "peak before", "after", "kernels"):
        table.add_column(column, justify="right", no_wrap=True)
    speedups = []
    stopped = ""
    for one in documents:
        stopped = one.get("stopped") or stopped
        if one["speedup"] is None:
            table.add_row(one["problem"], *["-"] * 6)
            continue
        speedups.append(one["speedup"])
        table.add_row(
            one["problem"],
            milliseconds(one["baseline_latency_ms"]),
            milliseconds(one["best_latency_ms"]),
            f"{one['speedup']:.2f}x",
            percent(one["baseline_percent_of_peak"]),
            percent(one["best_percent_of_peak"]),
            f"{one['kernels_correct']}/{one['kernels_evaluated']}",
        )
    screen = console()
    screen.print(table)
    if speedups:
        screen.print(f"geometric mean speedup {exp(sum(map(log, speedups)) / len(speedups)):.2f}x")
    if any(one["usd"] for one in documents):
        screen.print(f"what it cost  {program()} cost {series.id}", markup=False, soft_wrap=True)
    wanted = len(series.problems)
    if len(speedups) < wanted:
        why = f" ({stopped})" if stopped else ""
        screen.print(
            f"{wanted - len(speedups)} of {wanted} problems are still to do{why}: {program()} resume last",
            markup=False,
        )


def _asker(screen: Console, progress: Progress) -> Callable[[Mapping[str, Any]], Any]:
    def ask(question: Mapping[str, Any]) -> Any:
        from .questions import answer

        progress.pause()
        try:
            return answer(screen, question)
        finally:
            progress.go_on()

    return ask


def _quiet_console() -> Console:
    from rich.console import Console

    return Console(quiet=True)
