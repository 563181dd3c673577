"""The answers of the built-in model, role by role, as text or as fields."""

from __future__ import annotations

import difflib
import itertools
from typing import Any

from .ideas import THEN, Idea, Workshop, proposals, subject
from .reading import Request

MOST_LINES = 15
"""Lines of pseudocode in a summary."""


def plan(request: Request, workshop: Workshop) -> dict[str, Any]:
    """The proposal whose number the prompt asks for."""
    number = request.number
    found = list(itertools.islice(proposals(request, workshop), number))
    if len(found) < number:
        # More proposals are asked for than there are: begin again from the first.
        found = found or [_nothing()]
        number = (number - 1) % len(found) + 1
    idea = found[number - 1]
    return {
        "bottleneck": _bottleneck(request),
        "title": idea.title,
        "change": f"{idea.title}. {idea.summary}",
        "expected": f"Less time where the profile shows it: {', '.join(idea.targets) or 'none'}.",
        "rewrite": idea.rewrite or None,
    }


def _nothing() -> Idea:
    return Idea("Leave the kernel as it is.", "", "No known rewrite applies.", ())


def _bottleneck(request: Request) -> str:
    weights = request.weights
    if not any(weights.values()):
        return "unknown"
    name = max(weights, key=lambda one: weights[one])
    return f"{name}: {100 * weights[name]:.0f} % of the time"


def kernel(request: Request, workshop: Workshop) -> str:
    """The kernel after the planned step; further drafts take the step's other options."""
    given = subject(request)
    steps = _steps(request, workshop)
    if not steps:
        return given.source
    *before, last = steps
    start = workshop.carried_out(given, before) if before else given
    if start is None:
        return given.source
    variants = _variants(workshop.ideas(start), last)
    chosen = variants[(request.number - 1) % len(variants)] if variants else last
    return (workshop.carried_out(start, [chosen]) or given).source


def _steps(request: Request, workshop: Workshop) -> list[str]:
    """The sentences of a plan; of a plan in other words, the rewrite nearest to them."""
    title = request.text("Plan").splitlines()[0] if request.text("Plan") else ""
    found = workshop.ideas(subject(request))
    first, _, second = title.partition(THEN)
    if any(idea.sentence == first for idea in found):
        return [first, second] if second else [first]
    words = set(request.text("Plan").lower().replace("-", " ").split())

    def likeness(idea: Idea) -> float:
        own = set(f"{idea.rewrite} {idea.sentence}".lower().replace("-", " ").split())
        return len(own & words) / len(own)

    best = max(found, key=likeness, default=None)
    return [best.sentence] if best is not None and likeness(best) >= 0.5 else []


def _variants(found: tuple[Idea, ...], sentence: str) -> list[str]:
    """The planned option, then the other options of the same rewrite."""
    planned = next((idea for idea in found if idea.sentence == sentence), None)
    if planned is None:
        return []
    others = [idea.sentence for idea in found if idea.rewrite == planned.rewrite]
    return [sentence, *(other for other in others if other != sentence)]


def repair(request: Request, workshop: Workshop) -> str:
    """The planned step made anew from the kernel before the change; then its other options."""
    return kernel(request, workshop)


def summary(request: Request) -> dict[str, Any]:
    """What the two kernels differ in."""
    slow, fast = request.text("Slow kernel"), request.text("Fast kernel")
    slow_lines, fast_lines = _differing(slow, fast)
    planned = request.text("What was planned").splitlines()
    title = planned[0] if planned else "A change"
    name = next((line[9:] for line in planned if line.startswith("Rewrite: ")), "")
    outcome = request.text("What came of it").split(":")[0]
    about = next((line[8:] for line in planned if line.startswith("Change: ")), title)
    return {
        "found": bool(slow_lines or fast_lines),
        "title": name.replace("-", " ").capitalize() if name else title,
        "description": f"{about.removeprefix(title).strip(' .') or about}. {outcome}.",
        "slow_code": "\n".join(slow_lines[:MOST_LINES]),
        "fast_code": "\n".join(fast_lines[:MOST_LINES]),
    }


def _differing(slow: str, fast: str) -> tuple[list[str], list[str]]:
    """The lines that only one of them has."""
    before, after = slow.splitlines(), fast.splitlines()
    gone: list[str] = []
    come: list[str] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            gone += filter(_is_telling, before[a:b])
            come += filter(_is_telling, after[c:d])
    return gone, come


def _is_telling(line: str) -> bool:
    """Whether a line does something, as against imports, comments and checks of sizes."""
    text = line.strip()
    return bool(text) and not text.startswith(("#", '"""', "@", "import ", "from ", "assert ", "def "))
