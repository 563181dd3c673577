"""The agents' tools answer in text, and never raise for what a kernel does."""

from collections.abc import Iterator

import pytest
from langchain_core.tools import BaseTool

from nkibench import load_problem
from tools.evaluation import EvaluationSettings, Evaluator
from tools.nki import kernel_tools

SILU = load_problem("silu")
SOURCE = SILU.baseline_source()


@pytest.fixture(scope="module")
def tools() -> Iterator[dict[str, BaseTool]]:
    with Evaluator(EvaluationSettings(small=True, memory_mb=2048)) as evaluator:
        yield {tool.name: tool for tool in kernel_tools(evaluator, SILU)}


def test_there_are_six_with_descriptions_and_schemas(tools: dict[str, BaseTool]) -> None:
    assert set(tools) == {
        *("compile_kernel", "verify_kernel", "profile_kernel"),
        *("lookup_api", "list_rewrites", "apply_rewrite"),
    }
    for tool in tools.values():
        assert tool.description
        assert all("description" in field for field in tool.args.values())


def test_compiling_gives_a_latency_or_the_line_at_fault(tools: dict[str, BaseTool]) -> None:
    assert "latency:" in tools["compile_kernel"].invoke({"source": SOURCE})
    answer = tools["compile_kernel"].invoke({"source": SOURCE.replace("nl.exp(", "nl.expo(")})
    assert "compile_error" in answer and "did you mean" in answer and "line" in answer


def test_verifying_gives_the_error(tools: dict[str, BaseTool]) -> None:
    assert "status: correct" in tools["verify_kernel"].invoke({"source": SOURCE})
    answer = tools["verify_kernel"].invoke({"source": SOURCE.replace("exponential, 1.0", "exponential, 1.1")})
    assert "status: incorrect" in answer and "relative L2" in answer


def test_profiling_gives_bounds_and_counters(tools: dict[str, BaseTool]) -> None:
    answer = tools["profile_kernel"].invoke({"source": SOURCE})
    assert "memory_bound_ideal" in answer and "hbm_read_bytes" in answer


def test_an_api_is_looked_up_by_any_of_its_names(tools: dict[str, BaseTool]) -> None:
    card = tools["lookup_api"].invoke({"name": "nki.isa.activation"})
    assert card == tools["lookup_api"].invoke({"name": "activation"})
    assert "scale" in card
    assert "nl.load" in tools["lookup_api"].invoke({"name": ""})
    assert "did you mean" in tools["lookup_api"].invoke({"name": "nl.laod"})


async def test_rewrites_are_listed_applied_and_right(tools: dict[str, BaseTool]) -> None:
    listed = await tools["list_rewrites"].ainvoke({"source": SOURCE})
    number = next(line.split(".")[0] for line in listed.splitlines() if "use-fused-function" in line)
    rewritten = await tools["apply_rewrite"].ainvoke({"source": SOURCE, "number": int(number)})
    assert "@nki.jit" in rewritten and rewritten != SOURCE
    assert "status: correct" in await tools["verify_kernel"].ainvoke({"source": rewritten})


def test_rewriting_what_is_no_kernel_says_why(tools: dict[str, BaseTool]) -> None:
    assert "no_kernel" in tools["list_rewrites"].invoke({"source": "x = 1"})
    assert "unknown_option" in tools["apply_rewrite"].invoke({"source": SOURCE, "number": 10_000})
