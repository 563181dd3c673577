"""What a terminal shows while a search works: a live panel, or a line for each round where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .output import counted, duration, milliseconds, percent

_RECENT = 6
_LONGEST = 200
_GAP = 2
_SHORTEST_BAR, _LONGEST_BAR = 4, 28


class Progress:
    """Hears the events of one run (`nodes.events`) and shows where it stands."""

    def __init__(
        self,
        console: Console,
        *,
        beam: int,
        plans: int,
        samples: int,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Shows nothing before the run's first event.

        Args:
            console: where to show it; live only where it is a terminal.
            beam: candidates a round at most.
            plans: plans for each.
            samples: kernels for each plan.
            facts: for a run that is taken up again, what `run_started` told when it was begun, with its
                `best_latency_ms`, the `round` it has done, and what it has `tried`: round, slot, whether correct.
        """
        self._console = console
        self._beam, self._per_candidate = beam, plans * samples
        self._live: Live | None = None
        self._began = time.monotonic()
        self._facts: Mapping[str, Any] = facts or {}
        self._counted: set[tuple[int, str]] = set()
        self._titles: dict[tuple[Any, Any], str] = {}
        self._round = 0
        self._in_round = 0
        self._due_in_round = self._per_candidate
        self._tried = 0
        self._correct = 0
        self._done = 0
        self._first_done: int | None = None
        self._best_ms: float | None = None
        self._best_percent: float | None = None
        self._recent: list[str] = []
        self._note = ""
        if facts:
            self._take_up(facts)

    def __enter__(self) -> Self:
        """Take the terminal."""
        if self._console.is_terminal:
            self._live = Live(self, console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the terminal back."""
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Take one event in."""
        handler = getattr(self, f"_on_{event['event']}", None)
        if handler is not None:
            handler(event)

    @property
    def run_id(self) -> str | None:
        """A new run, once it has a kernel to start from; who resumes one knows it."""
        return self._facts.get("run_id")

    def pause(self) -> None:
        """Give the terminal back while a person is asked something."""
        if self._live is not None:
            self._live.stop()

    def go_on(self) -> None:
        """Take it again."""
        if self._live is not None:
            self._live.start()

    def __rich__(self) -> RenderableType:
        """The panel."""
        if not self._facts:
            return Text("reading the problem and timing its first kernel ...", style="dim")
        iterations = int(self._facts.get("iterations") or 0)
        where = _in_one_line(
            f"[bold]{escape(str(self._facts['problem']))}[/] on {self._facts['target']}  "
            f"round {self._round}/{iterations}"
        )
        left = Text(self._left(iterations), style="dim", no_wrap=True)
        # The bar gives way first: a line broken in two makes the panel jump.
        room = self._console.width - where.cell_len - left.cell_len - 3 * _GAP
        head = Table.grid(padding=(0, _GAP, 0, 0))
        if room >= _SHORTEST_BAR:
            bar = ProgressBar(total=1.0, completed=self._share(iterations), width=min(_LONGEST_BAR, room))
            head.add_row(where, bar, left)
        elif room >= -_GAP:
            head.add_row(where, left)
        else:
            head.add_row(where)
            head.add_row(left)
        lines: list[RenderableType] = [head, Text.from_markup(self._figures())]
        lines += [_in_one_line(line) for line in self._recent]
        if self._note:
            lines.append(Text(self._note, style="yellow"))
        return Group(*lines)

    def _take_up(self, facts: Mapping[str, Any]) -> None:
        """Begin where the run stood, not at nothing."""
        self._round = int(facts.get("round") or 0)
        self._best_ms = facts.get("best_latency_ms") or facts.get("baseline_latency_ms")
        for round, slot, correct in facts.get("tried", ()):
            self._counted.add((round, slot))
            self._tried += 1
            self._correct += correct

    def _on_run_started(self, event: Mapping[str, Any]) -> None:
        self._facts = event
        self._best_ms = event["baseline_latency_ms"]
        self._best_percent = event["baseline_percent_of_peak"]
        self._say(
            f"{event['problem']} on {event['target']}: baseline {milliseconds(self._best_ms)}, "
            f"{percent(self._best_percent)} of peak; run {event['run_id']}"
        )

    def _on_round_started(self, event: Mapping[str, Any]) -> None:
        self._facts = self._facts or {"problem": "", "target": "", **event}
        self._titles = {}
        self._round = int(event["round"])
        self._in_round = 0
        candidates = event["candidates"]
        count = candidates if isinstance(candidates, int) else len(candidates)
        self._due_in_round = max(1, count * self._per_candidate)
        self._note = ""

    def _on_planned(self, event: Mapping[str, Any]) -> None:
        self._titles[event["candidate"], event["plan"]] = str(event["title"])

    def _on_evaluated(self, event: Mapping[str, Any]) -> None:
        if self._first_done is None:
            self._first_done, self._began = self._done, time.monotonic()
        # A draft without a kernel is work done, and nothing tried; one of before a stop was counted then.
        place = (event["round"], f"{event['candidate']}.{event['plan']}.{event['sample']}")
        is_new = place not in self._counted
        self._counted.add(place)
        self._tried += is_new and event.get("kernel_id") is not None
        self._done += 1
        self._in_round += 1
        latency = event.get("latency_ms")
        good = event.get("status") == "correct" and latency is not None
        self._correct += good and is_new
        if good and latency is not None and (self._best_ms is None or latency < self._best_ms):
            self._best_ms, self._best_percent = float(latency), None
        self._remember(event, good)

    def _on_round_finished(self, event: Mapping[str, Any]) -> None:
        self._round_over(event, "")

    def _on_round_cut_short(self, event: Mapping[str, Any]) -> None:
        self._round_over(event, " cut short")

    def _round_over(self, event: Mapping[str, Any], how: str) -> None:
        self._best_ms = event["best_latency_ms"]
        self._best_percent = event["best_percent_of_peak"]
        iterations = int(self._facts.get("iterations") or self._round)
        self._in_round = self._due_in_round
        self._say(
            f"  round {event['round']}/{iterations}{how}: {self._tried} tried, {self._correct} correct, "
            f"best {milliseconds(self._best_ms)} ({self._speedup()}), {percent(self._best_percent)} of peak, "
            f"{self._left(iterations)}"
        )

    def _on_notice(self, event: Mapping[str, Any]) -> None:
        self._note = str(event.get("message", ""))
        self._say(f"  {self._note}")

    _on_paused = _on_notice
    _on_resumed = _on_notice
    _on_draining = _on_notice

    def _say(self, line: str) -> None:
        """A line for whoever reads this in a file."""
        if self._live is None:
            self._console.print(line, markup=False, soft_wrap=True)

    def _remember(self, event: Mapping[str, Any], good: bool) -> None:
        title = escape(self._titles.get((event["candidate"], event["plan"]), "")[:_LONGEST])
        if good:
            gain = event.get("speedup") or 0.0
            color = "green" if gain > 1 else "default"
            what, detail = f"[{color}]{gain:.3f}x[/]", title
        else:
            why = (str(event.get("error") or "").splitlines() or [""])[0]
            status = str(event.get("status") or "no kernel").replace("_", " ")
            what, detail = f"[red]{status}[/]", f"{title}: {escape(why[:_LONGEST])}" if why else title
        self._recent = [*self._recent, f"  {what} [dim]{detail}[/]"][-_RECENT:]

    def _figures(self) -> str:
        peak = f", {percent(self._best_percent)} of peak" if self._best_percent else ""
        return (
            f"  {counted(self._tried, 'kernel')} tried, {self._correct} correct, "
            f"best [bold green]{milliseconds(self._best_ms)}[/] ({self._speedup()}{peak})"
        )

    def _speedup(self) -> str:
        base = self._facts.get("baseline_latency_ms")
        return f"{base / self._best_ms:.2f}x" if base and self._best_ms else "-"

    def _share(self, iterations: int) -> float:
        if not iterations or not self._round:
            return 0.0
        inside = min(1.0, self._in_round / self._due_in_round)
        return min(1.0, (self._round - 1 + inside) / iterations)

    def _left(self, iterations: int) -> str:
        """Time left, from the pace so far and the kernels that a full beam still means."""
        done = self._done - (self._first_done or 0)
        if done < 2 or not self._round:
            return "time left: not known yet"
        remaining = max(0, self._due_in_round - self._in_round)
        remaining += max(0, iterations - self._round) * self._beam * self._per_candidate
        pace = (time.monotonic() - self._began) / done
        return f"about {duration(pace * remaining)} left" if remaining else "done soon"


def _in_one_line(markup: str) -> Text:
    """Cut where the terminal ends."""
    text = Text.from_markup(markup, overflow="ellipsis")
    text.no_wrap = True
    return text
