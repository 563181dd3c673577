"""What a run asks a person, asked at a terminal. `nodes.review` says what questions and answers look like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.prompt import Confirm, Prompt


def answer(screen: Console, question: Mapping[str, Any]) -> Any:
    """Ask, and return the answer in the form the graph takes."""
    if question.get("ask") == "budget":
        spent, cap = question["spent_usd"], question["soft_usd"]
        screen.print(f"{spent:.4f} USD are spent, more than the {cap:g} USD after which to ask.")
        return "continue" if Confirm.ask("Go on?", console=screen) else "stop"
    return _plans(screen, question)


def _plans(screen: Console, question: Mapping[str, Any]) -> Any:
    plans = [dict(plan) for plan in question["plans"]]
    screen.print(f"\n[bold]Plans of round {question['round']}[/]")
    _show(screen, plans)
    kept = set(range(1, len(plans) + 1))
    while True:
        text = Prompt.ask(
            "Enter carries them out; d 1 3 drops, k 2 keeps only these, e 2 edits, l lists",
            console=screen,
            default="",
            show_default=False,
        )
        if not text.strip():
            chosen = [plan for number, plan in enumerate(plans, 1) if number in kept]
            return "approve" if chosen == question["plans"] else chosen
        command, *rest = text.split()
        numbers = {int(one) for one in rest if one.isdigit() and 1 <= int(one) <= len(plans)}
        if command == "d" and numbers:
            kept -= numbers
        elif command == "k" and numbers:
            kept = numbers
        elif command == "e" and len(numbers) == 1:
            plan = plans[numbers.pop() - 1]
            for field in ("title", "change"):
                plan[field] = Prompt.ask(field, console=screen, default=plan[field])
        elif command != "l":
            screen.print("that is none of d, k, e, l with the numbers of plans", style="yellow")
            continue
        _show(screen, plans, kept)


def _show(screen: Console, plans: list[dict[str, Any]], kept: set[int] | None = None) -> None:
    for number, plan in enumerate(plans, 1):
        dropped = kept is not None and number not in kept
        style = "dim strike" if dropped else "none"
        screen.print(f"{number:3}  candidate {plan['candidate']}: {escape(plan['title'])}", style=style)
        if not dropped:
            screen.print(f"     {escape(plan['change'])}", style="dim")
