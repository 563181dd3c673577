"""The report's HTML: one page a run, everything inside, readable without a network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from memory_store.experience import Experience
from memory_store.ledger import Spending

from . import figures
from .difference import difference
from .markup import Markup, joined, tag
from .story import Measured, ProblemStory, Story

_BACKENDS = {
    "simulator": "Latencies come from the built-in model of a NeuronCore, not from a device.",
    "neuron": "Latencies were measured on a Neuron device.",
}
_COUNTER_UNITS = {"bytes": "MiB", "flops": "GFLOP", "percent": "%"}


def write_report(story: Story, path: Path) -> Path:
    """Write the report of a run as one HTML file that needs nothing else.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report_page(story), encoding="utf-8")
    return path


def report_page(story: Story, *, plotly_url: str | None = None, refresh_s: int | None = None) -> str:
    """The report of a run as one HTML page.

    Args:
        story: what to tell.
        plotly_url: where plotly's JavaScript lies; unset, it is put into the page (4.7 MB).
        refresh_s: reload the page after that many seconds, for a run at work.
    """
    body = joined(
        _head(story),
        *(_problem(story, problem) for problem in story.problems),
        tag("h2", "Settings"),
        tag(
            "details",
            tag("summary", "Every setting of the run"),
            tag("pre", json.dumps(story.run.settings, indent=2)),
        ),
    )
    return page(f"{', '.join(story.run.problems)} · AccelOpt", body, plotly_url, refresh_s)


def page(title: str, body: Markup, plotly_url: str | None = None, refresh_s: int | None = None) -> str:
    """A whole document around a body.

    Args:
        title: for the browser's tab.
        body: what stands in it.
        plotly_url: where plotly's JavaScript lies; unset, it is put into the page.
        refresh_s: reload the page after that many seconds.
    """
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="refresh", content=str(refresh_s)) if refresh_s else None,
        tag("title", title),
        tag("style", Markup(files(__package__).joinpath("style.css").read_text(encoding="utf-8"))),
        tag("script", src=plotly_url) if plotly_url else tag("script", Markup(plotly_javascript())),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', body), lang='en')}\n"


def plotly_javascript() -> str:
    """The JavaScript of plotly, as the Python package carries it."""
    from plotly.offline import get_plotlyjs

    text: str = get_plotlyjs()
    return text


def _head(story: Story) -> Markup:
    run = story.run
    facts = [
        f"run {run.id}",
        run.status.value,
        f"{run.target}, {run.backend}",
        f"models: {', '.join(story.models) or '-'}",
        f"seed {run.seed}",
        f"started {run.started_at:%Y-%m-%d %H:%M} UTC",
        f"worked {_duration(story.wall_s)}",
    ]
    backend = _BACKENDS.get(run.backend)
    return joined(
        tag("h1", f"{', '.join(run.problems)} on {run.target}"),
        tag("p", " · ".join(facts), class_="quiet"),
        tag("p", backend, class_="notice") if backend else None,
        tag("p", run.note, class_="notice") if run.note else None,
    )


def _problem(story: Story, problem: ProblemStory) -> Markup:
    charts = [
        ("Roofline", figures.roofline(problem, story.run.target)),
        ("Where the time goes", figures.bounds(problem)),
        ("Busy engines", figures.engines(problem)),
    ]
    return joined(
        tag("h2", problem.name),
        tag("p", problem.title, class_="quiet") if problem.title else None,
        _tiles(problem),
        tag("h3", "Search"),
        Markup(figures.to_html(figures.progress(problem))),
        tag("h3", "The way to the best kernel"),
        _lineage(problem),
        tag(
            "div",
            *(
                tag("div", tag("h3", heading), Markup(figures.to_html(chart)))
                for heading, chart in charts
                if chart is not None
            ),
            class_="columns",
        ),
        _counters(problem),
        _sources(problem),
        _experiences("What the run learned", problem.learned),
        _experiences("What it was told by earlier rounds, problems and runs", problem.recalled),
        _cost(problem),
        _all_kernels(problem),
    )


def _tiles(problem: ProblemStory) -> Markup:
    def tile(value: str, caption: str, good: bool = False) -> Markup:
        return tag("div", tag("b", value), tag("span", caption), class_="tile good" if good else "tile")

    base, best = problem.baseline, problem.best
    faster = bool(problem.speedup and problem.speedup > 1)
    return tag(
        "div",
        tile(f"{problem.speedup:.2f}×" if problem.speedup else "-", "faster than the baseline", faster),
        tile(f"{_ms(base)} → {_ms(best)}", "latency, ms"),
        tile(f"{_percent(base)} → {_percent(best)}", "% of the roofline's peak"),
        tile(f"{problem.counts.correct} / {problem.counts.evaluated}", "kernels correct / tried"),
        tile(str(problem.rounds_done), "rounds"),
        tile(f"{problem.spending.tokens:,}", "tokens"),
        tile(f"${problem.spending.usd:.2f}", "for model calls"),
        class_="tiles",
    )


def _lineage(problem: ProblemStory) -> Markup:
    if len(problem.lineage) < 2:
        return tag("p", "No kernel faster than the baseline was found.", class_="quiet")
    rows = []
    for before, step in zip([None, *problem.lineage], problem.lineage, strict=False):
        old = problem.sources.get(before.kernel_id or "") if before else None
        new = problem.sources.get(step.kernel_id or "")
        more = _beyond(step.title, step.change)
        change = joined(
            tag("b", _prose(step.title or "unnamed step")),
            tag("div", _prose(more), class_="quiet") if more else None,
            tag("details", tag("summary", "difference"), difference(old, new)) if old and new else None,
        )
        rows.append(
            (
                step.round,
                change,
                f"{step.latency_ms:.4g}" if step.latency_ms else "-",
                f"{step.speedup:.3f}×" if step.speedup and before else "",
                f"{step.percent_of_peak:.1f}" if step.percent_of_peak else "",
            )
        )
    return _table(("round", "step", "#latency, ms", "#over its parent", "#% of peak"), rows, kind="steps")


def _counters(problem: ProblemStory) -> Markup | None:
    base, best = problem.baseline, problem.best
    if base is None or best is None or base.profile is None or best.profile is None:
        return None
    before, after = base.profile.counters(), best.profile.counters()
    rows = [(name, *_scaled(name, before[name], after[name])) for name in before]
    return joined(
        tag("h3", "Profile counters"),
        tag(
            "details",
            tag("summary", "Baseline and best, under neuron-profile's names"),
            _table(("counter", "#baseline", "#best", "unit"), rows),
        ),
    )


def _sources(problem: ProblemStory) -> Markup | None:
    if problem.baseline is None or problem.best is None:
        return None
    parts: list[Markup] = [tag("h3", "Kernel")]
    if problem.best.kernel_id != problem.baseline.kernel_id:
        changes = difference(problem.baseline.source, problem.best.source)
        parts.append(tag("details", tag("summary", "Difference from the baseline"), changes))
    parts.append(
        tag(
            "details",
            tag("summary", f"The best kernel, {problem.best.kernel_id}"),
            tag("pre", problem.best.source),
            open=True,
        )
    )
    return joined(*parts)


def _experiences(heading: str, experiences: Sequence[Experience]) -> Markup | None:
    if not experiences:
        return None
    items = []
    for one in experiences:
        kind = "helped" if one.kind.value == "positive" else "hurt"
        code = "\n\n".join(
            f"# {name}\n{text}" for name, text in (("slow", one.slow_code), ("fast", one.fast_code)) if text
        )
        items.append(
            tag(
                "details",
                tag(
                    "summary",
                    tag(
                        "span",
                        f"{kind} {one.speedup:.2f}×",
                        class_="correct" if kind == "helped" else "failed",
                    ),
                    f"  {one.title.strip('* ')} ",
                    tag("span", f"({one.problem}, {one.target})", class_="quiet"),
                ),
                tag("p", _prose(one.description)),
                tag("pre", code) if code else None,
            )
        )
    return joined(tag("h3", heading), *items)


def _cost(problem: ProblemStory) -> Markup:
    def cells(one: Spending) -> tuple[str, ...]:
        return (
            f"{one.calls:,}",
            f"{one.failed_calls:,}",
            f"{one.input_tokens:,}",
            f"{one.output_tokens:,}",
            f"{one.usd:.4f}",
            _duration(one.latency_s),
        )

    columns = ("#calls", "#unusable", "#tokens in", "#tokens out", "#USD", "#time waited")
    rows = [(f"{one.role} · {one.model}", *cells(one)) for one in problem.by_role]
    rows.append(("all", *cells(problem.spending)))
    return joined(
        tag("h3", "Model calls"),
        _table(("role and model", *columns), rows),
        tag(
            "details",
            tag("summary", "By round"),
            _table(("round", *columns), [(one.round, *cells(one)) for one in problem.by_round]),
        ),
    )


def _all_kernels(problem: ProblemStory) -> Markup:
    rows = [
        (
            step.round,
            step.slot,
            tag("span", step.status.replace("_", " "), class_="correct" if step.is_correct else "failed"),
            f"{step.latency_ms:.4g}" if step.latency_ms else "",
            f"{step.speedup:.3f}×" if step.speedup else "",
            "kept" if step.selected else "",
            joined(_prose(step.title), tag("div", step.error, class_="quiet") if step.error else None),
        )
        for step in problem.steps
    ]
    columns = ("round", "place", "verdict", "#latency, ms", "#over its parent", "", "plan")
    return joined(
        tag("h3", "Every kernel"),
        tag(
            "details",
            tag("summary", f"{len(rows)} kernels, the baseline among them"),
            tag("div", _table(columns, rows), class_="scroll"),
        ),
    )


def _beyond(title: str, change: str) -> str:
    """What a plan says beyond its title, with which many a plan begins."""
    rest = change.removeprefix(title)
    return rest.lstrip(". ") if rest[:1] in ("", ".") else change


def _prose(text: str) -> Markup:
    """A sentence whose `names` are set as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        # One of them has no partner, so none of them means anything.
        return joined(text)
    return joined(*(tag("code", part) if index % 2 else part for index, part in enumerate(parts)))


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[Markup | str | int | None]], kind: str | None = None
) -> Markup:
    """A table; columns whose name begins with # hold numbers, and name them where there is no room for a head."""
    labels = [column.lstrip("#") if column.startswith("#") else None for column in columns]
    classes = ["number" if column.startswith("#") else None for column in columns]
    head = tag(
        "tr",
        *(
            tag("th", column.lstrip("#"), class_=number)
            for column, number in zip(columns, classes, strict=True)
        ),
    )
    body = [
        tag(
            "tr",
            *(
                tag("td", cell, class_=number, data_label=label)
                for cell, number, label in zip(row, classes, labels, strict=True)
            ),
        )
        for row in rows
    ]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body), class_=kind), class_="wide")


def _scaled(name: str, before: float, after: float) -> tuple[str, str, str]:
    kind = name.rpartition("_")[2]
    factor = {"bytes": 1 / 2**20, "flops": 1e-9, "percent": 100.0}.get(kind, 1.0)
    return f"{before * factor:,.2f}", f"{after * factor:,.2f}", _COUNTER_UNITS.get(kind, "")


def _ms(one: Measured | None) -> str:
    return f"{one.latency_ms:.4g}" if one else "-"


def _percent(one: Measured | None) -> str:
    return f"{one.percent_of_peak:.1f}" if one and one.percent_of_peak else "-"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
