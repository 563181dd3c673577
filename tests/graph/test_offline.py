"""The built-in model on the simulator: real kernels, at small shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from graph.run import aoptimize
from memory_store.home import Home
from memory_store.ledger import Ledger
from nodes.context import RunContext
from nodes.offline import OfflineChatModel

from .loopback import Loopback

SMALL = RunContext(
    small=True, beam=2, plans=3, samples=1, iterations=2, top_k=4, embedder="hashing", workers=2
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(root=tmp_path / "home")


@pytest.mark.parametrize("problem", ["silu", "rmsnorm_matmul"])
async def test_a_kernel_gets_faster_without_key_or_network(home, problem):
    result = await aoptimize(problem, SMALL, home=home)
    assert result.speedup > 1.01
    assert result.kernels_correct == result.kernels_evaluated > 6
    assert "@nki.jit" in Path(result.best_kernel_path).read_text()


async def test_over_http_it_finds_the_same_kernels(home, tmp_path):
    direct = await aoptimize("silu", SMALL, home=home)
    with Loopback(OfflineChatModel(), names=("offline-over-http",)) as endpoint:
        context = SMALL.with_model(models=("offline-over-http",), base_url=endpoint.url)
        served = await aoptimize("silu", context, home=Home(root=tmp_path / "other"))
        assert served.tokens == endpoint.tokens
    assert served.best_kernel_id == direct.best_kernel_id
    assert served.kernels_evaluated == direct.kernels_evaluated


async def test_an_agentic_executor_compiles_before_it_answers(home):
    context = SMALL.model_copy(update={"agentic": True, "iterations": 1})
    result = await aoptimize("silu", context, home=home)
    with Ledger(home.ledger_url) as ledger:
        calls = ledger.model_calls(result.run_id, role="executor")
    assert [call.extra["tool_calls"][0]["name"] for call in calls if call.extra["tool_calls"]] == [
        "compile_kernel"
    ] * 3
    after = [call for call in calls if not call.extra["tool_calls"]]
    assert len(after) == 3
    assert all("latency" in call.prompt[-1]["content"] for call in after)
    assert result.kernels_correct == 3


async def test_a_second_problem_starts_with_what_the_first_one_taught(home):
    context = SMALL.model_copy(update={"t_pos": 1.001, "iterations": 1})
    await aoptimize("silu", context, home=home)
    events = []
    await aoptimize("rmsnorm_matmul", context, home=home, on_event=events.append)
    first = next(event for event in events if event["event"] == "round_started")
    assert first["experiences"] > 0
