"""The charts of a report, as plotly figures."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from nkibench.roofline import PEAKS

from .story import Measured, ProblemStory, Step

BASELINE = "#8a8f98"
OURS = "#2f7de1"
BEST = "#12a150"
TRIED = "#a9b4c4"
LIMIT = "#d9480f"
INK = "#7d838c"
GRID = "rgba(125,131,140,0.22)"

STATUS_COLORS = {
    "correct": BEST,
    "incorrect": "#e8590c",
    "suspect": "#ae3ec9",
    "compile_error": "#f0b429",
    "runtime_error": "#d6336c",
    "timeout": "#7048e8",
    "rejected": "#495057",
}


def progress(story: ProblemStory) -> go.Figure:
    """Latency of every correct kernel by round, the way to the best, and below what became of the others."""
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.74, 0.26], vertical_spacing=0.05)
    places = _places(story)
    _add_edges(figure, story, places)
    _add_kernels(figure, story, places)
    _add_lineage(figure, story, places)
    best = story.best_by_round
    figure.add_scatter(
        x=list(best),
        y=list(best.values()),
        mode="lines",
        line={"color": BEST, "width": 2, "shape": "hv", "dash": "dot"},
        name="best so far",
        hoverinfo="skip",
        row=1,
        col=1,
    )
    for value, text, color in (
        (story.baseline.latency_ms if story.baseline else None, "baseline", BASELINE),
        (story.peak_ms, "roofline", LIMIT),
    ):
        if value:
            figure.add_hline(
                y=value,
                line={"color": color, "width": 1, "dash": "dash"},
                annotation={"text": f"{text} {value:.4g} ms", "font": {"color": color}},
                row=1,
                col=1,
            )
    _add_outcomes(figure, story)
    figure.update_yaxes(title="latency, ms", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title="kernels", row=2, col=1)
    figure.update_xaxes(title="round", dtick=1, row=2, col=1)
    figure.update_layout(barmode="stack")
    return _styled(figure, height=520)


def roofline(story: ProblemStory, target: str) -> go.Figure | None:
    """The kernels of the lineage under the machine's roof; None where the problem's work is not known."""
    if story.work is None:
        return None
    peak = PEAKS[target]
    kinds = {
        "matmul": (story.work.matmul_flops, peak.matmul_flops_per_s),
        "vector": (story.work.vector_flops, peak.vector_flops_per_s),
    }
    kind = max(kinds, key=lambda name: kinds[name][0] / kinds[name][1])
    flops, ceiling = kinds[kind]
    points = [
        (name, one, color) for name, one, color in _ends(story) if one.profile and one.profile.hbm_bytes
    ]
    if not flops or not points:
        return None
    figure = go.Figure()
    ideal = flops / story.work.min_traffic_bytes
    intensities = [flops / one.profile.hbm_bytes for _, one, _ in points if one.profile] + [ideal]
    knee = ceiling / peak.memory_bytes_per_s
    low, high = min(*intensities, knee) / 4, max(*intensities, knee) * 4
    figure.add_scatter(
        x=[low, knee, high],
        y=[low * peak.memory_bytes_per_s / 1e9, ceiling / 1e9, ceiling / 1e9],
        mode="lines",
        line={"color": LIMIT, "width": 2},
        name=f"{target} roof: {peak.memory_bytes_per_s / 1e9:.0f} GB/s, {ceiling / 1e9:,.0f} GFLOP/s {kind}",
    )
    lowest = min(flops / one.latency_ms / 1e6 for _, one, _ in points) / 2
    figure.add_scatter(
        x=[ideal, ideal],
        y=[lowest, min(ideal * peak.memory_bytes_per_s, ceiling) / 1e9],
        mode="lines",
        line={"color": INK, "width": 1, "dash": "dash"},
        name="every input and output once",
    )
    for name, one, color in points:
        assert one.profile is not None
        figure.add_scatter(
            x=[flops / one.profile.hbm_bytes],
            y=[flops / one.latency_ms / 1e6],
            mode="markers+text",
            marker={"size": 13, "color": color},
            text=[name],
            textposition="bottom right",
            name=f"{name}: {one.latency_ms:.4g} ms",
        )
    figure.update_xaxes(type="log", title=f"{kind} FLOP per byte of HBM traffic")
    figure.update_yaxes(type="log", title=f"{kind} GFLOP/s")
    return _styled(figure, height=420)


def bounds(story: ProblemStory) -> go.Figure | None:
    """Where the time goes, before and after: the total beside what each resource alone would take."""
    rows = (
        ("total_ms", "total"),
        ("memory_bound_ms", "transfers alone"),
        ("memory_bound_ideal_ms", "same bytes, full bandwidth"),
        ("memory_bound_no_reloads_ms", "every input and output once"),
        ("compute_bound_ms", "busiest engine alone"),
        ("compute_bound_ideal_ms", "same matmuls at peak"),
        ("compute_bound_useful_ms", "without transposes, at peak"),
    )
    ends = [one.bounds for _, one, _ in _ends(story) if one.bounds]
    # Without a matmul, what matmuls take is no bound but an empty row.
    told = [row for row in rows if any(getattr(one, row[0]) for one in ends)]
    return _bars(story, [(field, text, lambda one, f=field: getattr(one.bounds, f)) for field, text in told])


def engines(story: ProblemStory) -> go.Figure | None:
    """How long each engine and the DMA queues are busy, before and after."""
    names: list[str] = []
    for _, one, _ in _ends(story):
        names += [name for name in (one.bounds.engine_busy_ms if one.bounds else {}) if name not in names]
    return _bars(
        story, [(name, name, lambda one, n=name: one.bounds.engine_busy_ms.get(n, 0.0)) for name in names]
    )


def to_html(figure: go.Figure) -> str:
    """The figure as a `div`, which expects plotly's JavaScript on the page."""
    html: str = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        config={"displayModeBar": False, "responsive": True},
    )
    return html


def _bars(story: ProblemStory, rows: list[tuple[str, str, Any]]) -> go.Figure | None:
    measured = [(name, one, color) for name, one, color in _ends(story) if one.bounds]
    if not measured or not rows:
        return None
    figure = go.Figure()
    longest = 0.0
    for name, one, color in measured:
        values = [float(value(one)) for _, _, value in rows]
        longest = max(longest, *values)
        figure.add_bar(
            y=[text for _, text, _ in rows],
            x=values,
            orientation="h",
            name=name,
            marker={"color": color},
            text=[f"{value:.4g}" for value in values],
            textposition="outside",
            textangle=0,
            cliponaxis=False,
        )
    figure.update_yaxes(autorange="reversed")
    # Room for the figure at the end of the longest bar, on a phone too.
    figure.update_xaxes(title="ms", range=[0, 1.3 * longest] if longest else None)
    figure.update_layout(barmode="group", bargap=0.3)
    return _styled(figure, height=90 + 46 * len(rows))


def _ends(story: ProblemStory) -> list[tuple[str, Measured, str]]:
    ends = [("baseline", story.baseline, BASELINE), ("best", story.best, BEST)]
    return [(name, one, color) for name, one, color in ends if one is not None]


def _places(story: ProblemStory) -> dict[str, tuple[float, Step]]:
    """Where each kernel stands on the axis of rounds, the kernels of a round spread around it in order."""
    rounds: dict[int, list[Step]] = {}
    seen: dict[str, tuple[float, Step]] = {}
    for step in story.steps:
        if step.is_correct and step.kernel_id and step.kernel_id not in seen:
            seen[step.kernel_id] = (float(step.round), step)
            rounds.setdefault(step.round, []).append(step)
    for number, steps in rounds.items():
        for index, step in enumerate(steps):
            assert step.kernel_id is not None
            offset = 0.0 if len(steps) == 1 else 0.5 * (index / (len(steps) - 1) - 0.5)
            seen[step.kernel_id] = (number + offset, step)
    return seen


def _add_edges(figure: go.Figure, story: ProblemStory, places: dict[str, tuple[float, Step]]) -> None:
    xs: list[float | None] = []
    ys: list[float | None] = []
    for place, step in places.values():
        parent = places.get(step.parent_id or "")
        if parent is not None:
            xs += [parent[0], place, None]
            ys += [parent[1].latency_ms, step.latency_ms, None]
    figure.add_scatter(
        x=xs,
        y=ys,
        mode="lines",
        line={"color": "rgba(125,131,140,0.28)", "width": 1},
        hoverinfo="skip",
        showlegend=False,
        row=1,
        col=1,
    )


def _add_kernels(figure: go.Figure, story: ProblemStory, places: dict[str, tuple[float, Step]]) -> None:
    for kept, name, color, size in (
        (False, "correct, not kept", TRIED, 7),
        (True, "kept in the beam", OURS, 9),
    ):
        here = [(place, step) for place, step in places.values() if step.selected == kept]
        figure.add_scatter(
            x=[place for place, _ in here],
            y=[step.latency_ms for _, step in here],
            mode="markers",
            marker={"color": color, "size": size},
            name=name,
            text=[_hover(step) for _, step in here],
            hovertemplate="%{text}<extra></extra>",
            row=1,
            col=1,
        )


def _add_lineage(figure: go.Figure, story: ProblemStory, places: dict[str, tuple[float, Step]]) -> None:
    way = [places[step.kernel_id] for step in story.lineage if step.kernel_id in places]
    figure.add_scatter(
        x=[place for place, _ in way],
        y=[step.latency_ms for _, step in way],
        mode="lines+markers",
        line={"color": BEST, "width": 3},
        marker={"color": BEST, "size": 11},
        name="the way to the best",
        text=[_hover(step) for _, step in way],
        hovertemplate="%{text}<extra></extra>",
        row=1,
        col=1,
    )


def _add_outcomes(figure: go.Figure, story: ProblemStory) -> None:
    rounds = sorted({step.round for step in story.steps})
    tally = Counter((step.status, step.round) for step in story.steps)
    statuses = sorted({step.status for step in story.steps}, key=_status_order)
    for status in statuses:
        figure.add_bar(
            x=rounds,
            y=[tally[status, number] for number in rounds],
            name=status.replace("_", " "),
            marker={"color": STATUS_COLORS.get(status, INK)},
            row=2,
            col=1,
        )


def _status_order(status: str) -> int:
    order = list(STATUS_COLORS)
    return order.index(status) if status in order else len(order)


def _hover(step: Step) -> str:
    speedup = f", {step.speedup:.3f}x its parent" if step.speedup else ""
    return f"<b>{escape(step.title or step.slot)}</b><br>{step.latency_ms:.4g} ms{speedup}<br>kernel {step.kernel_id}"


def _styled(figure: go.Figure, height: int) -> go.Figure:
    figure.update_layout(
        height=height,
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13, "color": INK},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hoverlabel={"align": "left"},
    )
    figure.update_xaxes(gridcolor=GRID, zeroline=False, automargin=True)
    figure.update_yaxes(gridcolor=GRID, zeroline=False, automargin=True)
    return figure
