"""What a prompt says, read out of its text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, ToolMessage

from tools.backends import ArrayType

_ROLE = re.compile(r"You are the (planner|executor|fixer|summarizer)\b")
_TARGET = re.compile(r"AWS Trainium \((\w+)\)")
_FENCE = re.compile(r"^(`{3,})(\w*)\s*$")
_ARRAY = re.compile(r"^- (\w[\w ]*): (\w+)\[([\d, ]*)\]$")
_SCALAR = re.compile(r"^- (\w[\w ]*): (\S+)$")
_NUMBERED = re.compile(r"^(?:Proposal|Draft|Repair) (\d+) of (\d+)", re.MULTILINE)
_EXPERIENCE = re.compile(r"^## It (helped|hurt) \(([\d.]+)x\): (.*)$", re.MULTILINE)
_REWRITE = re.compile(r"^Rewrite: ([\w-]+)$", re.MULTILINE)
_SHARE = re.compile(r"^(?:  )?(\w[\w ]*?)\s+-?[\d.]+ us\s+(-?[\d.]+) %", re.MULTILINE)
_BUSY = re.compile(r"(\w+) (\d+(?:\.\d+)?) %")


@dataclass(frozen=True)
class Lesson:
    """One experience of the prompt."""

    helped: bool
    speedup: float
    title: str
    rewrite: str | None


@dataclass(frozen=True)
class Request:
    """A prompt taken apart."""

    role: str
    target: str
    sections: dict[str, str]
    tools_used: int

    def text(self, heading: str) -> str:
        """A section's text, without a fence around it; empty if there is none."""
        body = self.sections.get(heading, "")
        lines = body.splitlines()
        opened = next((i for i, line in enumerate(lines) if _FENCE.match(line)), None)
        if opened is None:
            return body.strip()
        fence = lines[opened].split("`")[0] + re.match(r"`+", lines[opened]).group()  # type: ignore[union-attr]
        closed = next((i for i in range(opened + 1, len(lines)) if lines[i].strip() == fence), len(lines))
        return "\n".join(lines[opened + 1 : closed]) + "\n"

    @property
    def number(self) -> int:
        """Which proposal, draft or repair this is, from 1."""
        found = _NUMBERED.search(self.sections.get("Your task", ""))
        return int(found.group(1)) if found else 1

    @property
    def arguments(self) -> tuple[ArrayType | float, ...]:
        """The kernel's arguments."""
        values: list[ArrayType | float] = []
        for line in self.sections.get("Arguments of the kernel", "").splitlines():
            if array := _ARRAY.match(line):
                shape = tuple(int(size) for size in array.group(3).split(",") if size.strip())
                values.append(ArrayType(shape, array.group(2)))
            elif scalar := _SCALAR.match(line):
                number = float(scalar.group(2))
                values.append(int(number) if scalar.group(2).isdigit() else number)
        return tuple(values)

    @property
    def lessons(self) -> list[Lesson]:
        """The experiences."""
        text = self.sections.get("Experiences", "")
        marks = list(_EXPERIENCE.finditer(text))
        ends = [*(mark.start() for mark in marks[1:]), len(text)] if marks else []
        lessons = []
        for mark, end in zip(marks, ends, strict=True):
            rewrite = _REWRITE.search(text, mark.end(), end)
            name = rewrite.group(1) if rewrite else None
            lessons.append(Lesson(mark.group(1) == "helped", float(mark.group(2)), mark.group(3), name))
        return lessons

    @property
    def tried(self) -> list[str]:
        """What was tried on this kernel."""
        lines = self.sections.get("Tried before", "").splitlines()
        return [line[2:] for line in lines if line.startswith("- ")]

    @property
    def weights(self) -> dict[str, float]:
        """How much of the time each bottleneck accounts for, 0 to 1, from the bounds and the counters."""
        text = self.sections.get("Profile", "")
        shares = {match.group(1): float(match.group(2)) / 100 for match in _SHARE.finditer(text)}
        weights = {
            "memory": shares.get("memory_bound", 0.0),
            "latency": shares.get("not overlapped or idle", 0.0),
            "spill": 1.0 if _counter(text, "spill_save_bytes") else 0.0,
        }
        busy = re.search(r"^busy: (.*)$", text, re.MULTILINE)
        for match in _BUSY.finditer(busy.group(1) if busy else ""):
            weights[match.group(1).lower()] = float(match.group(2)) / 100
        return weights


def _counter(text: str, name: str) -> float:
    found = re.search(rf"^{name}: ([\d.e+-]+)$", text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def read(messages: Sequence[BaseMessage]) -> Request:
    """Take a conversation apart: the system message, the first task, and how often tools were used since."""
    system = "\n".join(str(m.content) for m in messages if isinstance(m, SystemMessage))
    task = next((str(m.content) for m in messages if isinstance(m, HumanMessage)), "")
    role, target = _ROLE.search(system), _TARGET.search(system)
    return Request(
        role=role.group(1) if role else "",
        target=target.group(1) if target else "trn1",
        sections=_sections(task),
        tools_used=sum(isinstance(message, ToolMessage) for message in messages),
    )


def _sections(text: str) -> dict[str, str]:
    """Text under each `# heading`; a `#` inside a code block is no heading."""
    sections: dict[str, list[str]] = {}
    body: list[str] = []
    fence = ""
    for line in text.splitlines():
        mark = re.match(r"`{3,}", line)
        if mark and not fence:
            fence = mark.group()
        elif fence and line.strip() == fence:
            fence = ""
        elif not fence and line.startswith("# "):
            body = sections.setdefault(line[2:].strip(), [])
            continue
        body.append(line)
    return {heading: "\n".join(lines).strip("\n") for heading, lines in sections.items()}
