"""A search without a simulator: kernels whose text says how fast they are, and a model that changes that number."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult

from memory_store.home import Home
from nkibench.problem import Problem
from nodes.context import RunContext
from nodes.offline.reading import read
from nodes.resources import Resources
from tools.backends import ArrayType
from tools.evaluation import Evaluation, EvaluationError, Stage, Status
from tools.kernel import Kernel
from tools.profile import Bounds, Profile

LATENCY = re.compile(r"# latency (\S+)")


class StandInEvaluator:
    """Takes the latency from a comment: `# latency 1.25`, or `# latency compile_error`."""

    def __init__(self) -> None:
        self.evaluated: list[tuple[str, Stage]] = []
        self.only_on_full_check: set[str] = set()

    async def aevaluate(self, kernel: Kernel, problem: Problem, stage: Stage | None = None) -> Evaluation:
        stage = stage or Stage.promote
        self.evaluated.append((kernel.id, stage))
        found = LATENCY.search(kernel.source)
        word = found.group(1) if found else "1.0"
        status = Status.correct
        if word in Status.__members__:
            status, latency = Status(word), None
        else:
            latency = float(word)
        if stage is Stage.promote and kernel.id in self.only_on_full_check:
            status = Status.incorrect
        error = None
        if status is not Status.correct:
            error = EvaluationError(name=f"err_{status.value}", message="as the text says", line=1)
        common = {"backend": "simulator", "target": "trn1"}
        counters = dict.fromkeys(
            ["hbm_read_bytes", "hbm_write_bytes", "psum_read_bytes", "psum_write_bytes"], 0
        ) | dict.fromkeys(["sbuf_read_bytes", "sbuf_write_bytes"], 0)
        profile = bounds = None
        if latency is not None:
            profile = Profile(latency_ms=latency, **common, **counters)
            names = [
                name for name in Bounds.model_fields if name.endswith("_ms") and name != "engine_busy_ms"
            ]
            bounds = Bounds(**dict.fromkeys(names, latency / 2) | {"total_ms": latency})
        return Evaluation(
            kernel_id=kernel.id,
            problem=problem.name,
            stage=stage,
            status=status,
            error=error,
            profile=profile,
            bounds=bounds,
            latency_ms=latency,
            percent_of_peak=None if latency is None else 10.0 / latency,
            wall_s=0.0,
            **common,
        )

    def argument_types(self, problem: Problem) -> list[ArrayType | float]:
        return [ArrayType((4, 4), "float32")]

    def close(self) -> None:
        pass


class StandInModel(BaseChatModel):
    """Answers at once: a plan by number, a kernel whose latency follows from plan and parent, a summary."""

    write: Any = None
    calls: Any = None
    silent: bool = False

    @property
    def _llm_type(self) -> str:
        return "stand-in"

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        request = read(messages)
        self.calls.append(request.role)
        if request.role == "planner":
            kernel = hashlib.sha256(request.text("Kernel").encode()).hexdigest()[:6]
            text = f'{{"title": "Step {request.number} on {kernel}", "change": "do it"}}'
        elif request.role == "summarizer":
            text = '{"found": true, "title": "A lesson", "description": "what it says"}'
        else:
            parent = request.text("Kernel")
            planned = request.text("Plan")
            latency = self.write(parent, planned, request.number)
            # No comment: kernels that differ in comments only are the same.
            mark = f"MADE = {f'{planned.splitlines()[0]}, {request.role} {request.number}'!r}"
            text = f"```python\n{LATENCY.sub(f'# latency {latency}', parent)}{mark}\n```"
        if self.silent:
            text = ""
        answer = AIMessage(
            text, usage_metadata=UsageMetadata(input_tokens=10, output_tokens=5, total_tokens=15)
        )
        return ChatResult(generations=[ChatGeneration(message=answer)])


def by_hash(parent: str, planned: str, number: int) -> str:
    """Somewhere between a quarter slower and a quarter faster than the parent; one in six fails."""
    digest = hashlib.sha256(f"{parent}|{planned}|{number}".encode()).digest()
    if digest[0] % 6 == 0:
        return "compile_error"
    found = LATENCY.search(parent)
    return f"{float(found.group(1)) * (0.75 + digest[1] / 512):.6f}" if found else "1.0"


class StandIn:
    """What a test sees of the stand-ins."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.evaluator = StandInEvaluator()
        self.calls: list[str] = []
        self.write: Callable[[str, str, int], str] = by_hash
        self.remembered: list[Any] = []
        self.say_nothing = False

    def resources(self) -> Resources:
        return Resources(
            home=self.home,
            make_evaluator=lambda settings, workers, home: self.evaluator,
            make_memory=lambda context, home: _NoMemory(self.remembered),
            make_model=lambda settings, name, cache: StandInModel(
                write=self._write, calls=self.calls, silent=self.say_nothing
            ),
        )

    def _write(self, parent: str, planned: str, number: int) -> str:
        return self.write(parent, planned, number)

    problem = {
        "kernel": "from neuronxcc import nki\n# latency 1.0\n@nki.jit\ndef kernel(x):\n    return x\n",
        "reference": "import numpy as np\nN = 4\ndef get_inputs():\n    return [np.zeros((N, N), np.float32)]\n"
        "def forward(x):\n    return x\n",
        "name": "stand-in",
    }
    quick = RunContext(beam=3, plans=3, samples=2, iterations=3, capacity=4, top_k=4)


class _NoMemory:
    def __init__(self, remembered: list[Any]) -> None:
        self._remembered = remembered

    def add(self, experiences: Any, *, run_id: str | None = None) -> None:
        self._remembered += list(experiences)

    def query(self, text: str, k: int, where: Any = None) -> Sequence[Any]:
        return []

    def close(self) -> None:
        pass
