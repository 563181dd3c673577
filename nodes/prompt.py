"""Prompts out of the text files in `prompts/`: sections filled, shuffled where asked, cut to a token budget.

A prompt is a system message and a task. Both are made of sections under headings; a section whose content is
missing is left out, and when the whole is too long the least important ones go first. A kernel is never cut.
"""

from __future__ import annotations

import importlib.resources
import math
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from .cards import Cards
from .facts import Facts, fenced
from .seeds import rng
from .state import Plan

CHARACTERS_PER_TOKEN = 3.5
"""Code in NKI and English prose around it; a fixed rule, so that the same prompt is cut the same way everywhere."""

REQUIRED = 0
"""Priority of what is never left out; the higher the number, the sooner a section goes."""


RULES = "# Rules"
"""How the section of a primer begins that shows code which fails and code which works."""

COSTS = "Costs are in cycles of the engine, for N elements in each partition; MIN_II is 64.\n"


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has."""
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


@dataclass(frozen=True)
class Section:
    """A part of a prompt that stays or goes as a whole."""

    text: str
    priority: int = REQUIRED


def _read_templates() -> dict[str, str]:
    folder = importlib.resources.files(__package__).joinpath("prompts")
    return {
        file.name.removesuffix(".md"): file.read_text("utf-8").strip()
        for file in folder.iterdir()
        if file.name.endswith(".md")
    }


TEMPLATES = _read_templates()
"""The text files of `prompts/` by name. Read at import: nodes must not read files on the event loop."""


def filled(
    name: str, values: Mapping[str, Any], priorities: Mapping[str, int] | None = None
) -> list[Section]:
    """The sections of a template with `$name`s replaced; those whose value is empty are left out.

    Args:
        name: of the file, without suffix.
        values: for every `$name` in it.
        priorities: of sections, by the name they contain; required where not named.
    """
    sections = []
    for part in re.split(r"\n(?=# )", TEMPLATES[name]):
        names = [match["named"] for match in string.Template.pattern.finditer(part) if match["named"]]
        body = [values[key] for key in names]
        if names and part.startswith("# ") and not all(str(value).strip() for value in body):
            continue
        text = string.Template(part).substitute(values).strip()
        wanted = [(priorities or {}).get(key, REQUIRED) for key in names]
        sections.append(Section(text, max(wanted, default=REQUIRED)))
    return sections


def fit(system: Sequence[Section], task: Sequence[Section], budget_tokens: int) -> list[BaseMessage]:
    """The two messages, without the least important sections where they would be too long."""
    kept = [*system, *task]
    while sum(estimate_tokens(section.text) for section in kept) > budget_tokens:
        least = max((section.priority for section in kept), default=REQUIRED)
        if least == REQUIRED:
            break
        last = max(index for index, section in enumerate(kept) if section.priority == least)
        del kept[last]
    chosen = {id(section) for section in kept}
    return [
        SystemMessage("\n\n".join(section.text for section in system if id(section) in chosen)),
        HumanMessage("\n\n".join(section.text for section in task if id(section) in chosen)),
    ]


def asked_again(messages: Sequence[BaseMessage], why: str) -> list[BaseMessage]:
    """The same prompt after an answer that could not be used; the task ends with what was wrong."""
    *before, task = messages
    if not isinstance(task, HumanMessage):
        # The result of a tool is no place for it.
        return list(messages)
    return [*before, HumanMessage(f"{task.content}\n\nAn earlier answer was of no use: {why}.")]


def _system(role: str, facts: Facts, cards: Cards) -> list[Section]:
    sections = filled(role, facts.values)
    primer = [replace(s, priority=2) for s in filled(_dialect_file(facts), facts.values)]
    # What a line of code must look like concerns those who write it.
    sections += [s for s in primer if role != "planner" or not s.text.startswith(RULES)]
    if role == "planner":
        sections += [replace(s, priority=3) for s in filled("counters", facts.values)]
        sections += [replace(s, priority=5) for s in filled("moves", facts.values)]
    if cards.used:
        sections.append(Section("# APIs in the kernel\n" + COSTS + "\n".join(cards.used), 1))
    if cards.usual:
        sections.append(Section("# APIs that rewrites often need\n" + "\n".join(cards.usual), 4))
    if cards.further:
        sections.append(Section("# Further APIs\n" + "\n".join(cards.further), 5))
    return sections


def _dialect_file(facts: Facts) -> str:
    return "nki_nki" if facts.dialect == "nki" else "nki_neuronxcc"


def _experience_sections(experiences: Sequence[str]) -> list[Section]:
    """One section each, so that a tight budget drops the last ones; the heading goes with the first."""
    return [
        Section(("# Experiences\n" if index == 0 else "") + text, 4) for index, text in enumerate(experiences)
    ]


def planner_prompt(
    facts: Facts,
    *,
    kernel: str,
    counters: Sequence[str],
    bounds: str,
    experiences: Sequence[str],
    tried: Sequence[str],
    cards: Cards,
    number: int,
    count: int,
    round: int,
    shuffle: int,
    budget_tokens: int,
) -> list[BaseMessage]:
    """Ask for one plan. The profile's counters stand in an order of their own for every `shuffle`."""
    lines = list(counters)
    rng(shuffle, "profile lines").shuffle(lines)
    values = facts.values | {
        "experiences": "\x00" if experiences else "",
        "tried": "\n".join(f"- {line}" for line in tried),
        "kernel": fenced(kernel),
        "profile": "\n".join([*lines, "", "Bounds:", bounds]),
        "number": number,
        "count": count,
        "round": round,
        "answer": TEMPLATES["planner_answer"],
    }
    task: list[Section] = []
    for section in filled("planner_task", values, {"reference": 3, "tried": 6}):
        task += _experience_sections(experiences) if "\x00" in section.text else [section]
    return fit(_system("planner", facts, cards), task, budget_tokens)


def plan_text(plan: Plan) -> str:
    """A plan as an executor reads it."""
    lines = [plan.title]
    if plan.bottleneck:
        lines.append(f"Bottleneck: {plan.bottleneck}")
    lines.append(f"Change: {plan.change}")
    if plan.expected:
        lines.append(f"Expected: {plan.expected}")
    if plan.rewrite:
        lines.append(f"Rewrite: {plan.rewrite}")
    return "\n".join(lines)


def executor_prompt(
    facts: Facts,
    *,
    kernel: str,
    plan: Plan,
    cards: Cards,
    number: int,
    count: int,
    budget_tokens: int,
) -> list[BaseMessage]:
    """Ask for the kernel of a plan."""
    values = facts.values | {
        "kernel": fenced(kernel),
        "plan": plan_text(plan),
        "number": number,
        "count": count,
    }
    task = filled("executor_task", values, {"reference": 4})
    return fit(_system("executor", facts, cards), task, budget_tokens)


def fixer_prompt(
    facts: Facts,
    *,
    kernel: str,
    plan: Plan,
    failing: str,
    error: str,
    cards: Cards,
    number: int,
    count: int,
    budget_tokens: int,
) -> list[BaseMessage]:
    """Ask for a repair."""
    values = facts.values | {
        "kernel": fenced(kernel),
        "plan": plan_text(plan),
        "failing": fenced(failing),
        "error": error,
        "number": number,
        "count": count,
    }
    task = filled("fixer_task", values, {"reference": 4})
    return fit(_system("fixer", facts, cards), task, budget_tokens)


def summarizer_prompt(
    facts: Facts, *, slow: str, fast: str, plan: Plan, outcome: str, budget_tokens: int
) -> list[BaseMessage]:
    """Ask for an experience."""
    values = facts.values | {
        "plan": plan_text(plan),
        "outcome": outcome,
        "slow": fenced(slow),
        "fast": fenced(fast),
        "answer": TEMPLATES["summarizer_answer"],
    }
    system = filled("summarizer", facts.values)
    # Why a change is faster can only be said by somebody who knows the machine.
    system += [replace(s, priority=1) for s in filled(_dialect_file(facts), facts.values)[:1]]
    return fit(system, filled("summarizer_task", values), budget_tokens)
