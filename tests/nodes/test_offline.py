"""The built-in model, asked as any model is: by prompts."""

from __future__ import annotations

import contextlib
import json

import pytest
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage

from nkibench.registry import load_problem
from nodes.answers import read_code, read_fields
from nodes.calls import _options, _Way
from nodes.cards import Cards
from nodes.context import AnswerMode, RunContext
from nodes.facts import facts_of
from nodes.offline import OfflineChatModel, Workshop
from nodes.offline.ideas import THEN
from nodes.offline.reading import read
from nodes.planner import PlanAnswer, _plan
from nodes.prompt import executor_prompt, planner_prompt, summarizer_prompt
from nodes.summarizer import SummaryAnswer
from tools.backends import ArrayType
from tools.neuroncore import ArraySpec, trace
from tools.pool import WorkerLost

MODEL = OfflineChatModel()
NO_CARDS = Cards((), ())

MEMORY_BOUND = """total                 1200.0 us  100.0 %
memory_bound          1100.0 us   91.7 %  its transfers alone
compute_bound          300.0 us   25.0 %  its busiest engine alone
gaps, largest first:
  not overlapped or idle      100.0 us    8.3 %
busy: dma 92 %, vector 25 %, scalar 10 %
limited by: memory"""

VECTOR_BOUND = """total                 1200.0 us  100.0 %
memory_bound           300.0 us   25.0 %  its transfers alone
compute_bound         1100.0 us   91.7 %  its busiest engine alone
gaps, largest first:
  not overlapped or idle      100.0 us    8.3 %
busy: vector 92 %, dma 25 %, scalar 10 %
limited by: compute"""


@pytest.fixture(scope="module")
def problem():
    return load_problem("silu")


@pytest.fixture(scope="module")
def facts(problem):
    return facts_of(problem, RunContext(), [ArrayType((4096, 7168))])


def ask_plan(facts, kernel, *, number=1, bounds=MEMORY_BOUND, experiences=(), tried=(), **options):
    prompt = planner_prompt(
        facts,
        kernel=kernel,
        counters=["latency: 1.2 ms", "spill_save_bytes: 0"],
        bounds=bounds,
        experiences=experiences,
        tried=tried,
        cards=NO_CARDS,
        number=number,
        count=12,
        round=1,
        shuffle=0,
        budget_tokens=24000,
    )
    answer = read_fields(MODEL.invoke(prompt, **options), PlanAnswer).value
    assert answer is not None
    return _plan(answer)


def ask_kernel(facts, kernel, plan, number=1, **options):
    prompt = executor_prompt(
        facts, kernel=kernel, plan=plan, cards=NO_CARDS, number=number, count=2, budget_tokens=24000
    )
    return MODEL.invoke(prompt, **options), prompt


def test_every_proposal_is_another_one(facts, problem):
    kernel = problem.baseline_source()
    titles = [ask_plan(facts, kernel, number=number).title for number in range(1, 25)]
    assert len(set(titles)) == 24
    assert any(THEN in title for title in titles), "single steps ran out, and no pairs were proposed"


def test_the_same_prompt_gives_the_same_answer(facts, problem):
    kernel = problem.baseline_source()
    assert ask_plan(facts, kernel, number=5) == ask_plan(facts, kernel, number=5)


def test_what_limits_the_kernel_decides_what_comes_first(facts, problem):
    kernel = problem.baseline_source()
    memory = [ask_plan(facts, kernel, number=n, bounds=MEMORY_BOUND).rewrite for n in (1, 2)]
    vector = [ask_plan(facts, kernel, number=n, bounds=VECTOR_BOUND).rewrite for n in range(1, 5)]
    assert memory == ["widen-tile", "coarsen-dma"]
    assert {"use-fused-function", "fold-into-activation"} & set(vector)


def test_what_was_tried_is_not_proposed_again(facts, problem):
    kernel = problem.baseline_source()
    first = ask_plan(facts, kernel)
    assert ask_plan(facts, kernel, tried=[f"{first.title}: 1.10x"]).title != first.title


def test_what_hurt_before_comes_later_and_what_helped_sooner(facts, problem):
    kernel = problem.baseline_source()
    hurt = "## It hurt (0.40x): Wide tiles\nThey did.\nRewrite: widen-tile"
    helped = "## It helped (2.00x): One activation\nIt did.\nRewrite: use-fused-function"
    assert ask_plan(facts, kernel).rewrite == "widen-tile"
    assert ask_plan(facts, kernel, experiences=[hurt]).rewrite != "widen-tile"
    assert ask_plan(facts, kernel, experiences=[helped]).rewrite == "use-fused-function"


@pytest.mark.parametrize("number", [1, 4, 20])
def test_a_plan_is_carried_out_as_written(facts, problem, number):
    kernel = problem.baseline_source()
    plan = ask_plan(facts, kernel, number=number)
    code = read_code(ask_kernel(facts, kernel, plan)[0])
    assert code.source is not None and code.source != kernel and code.oddities == ()
    assert trace(code.source, [ArraySpec((4096, 7168), "float32")], target="trn1").name == "kernel"


def test_further_drafts_take_other_options_of_the_same_rewrite(facts, problem):
    kernel = problem.baseline_source()
    plan = ask_plan(facts, kernel)
    sources = {read_code(ask_kernel(facts, kernel, plan, number)[0]).source for number in (1, 2, 3)}
    assert len(sources) == 3


def test_a_plan_in_other_words_finds_the_nearest_rewrite(facts, problem):
    kernel = problem.baseline_source()
    plan = ask_plan(facts, kernel).model_copy(
        update={
            "title": "Use a fused function",
            "change": "Compute result with one silu activation",
            "rewrite": None,
        }
    )
    source = read_code(ask_kernel(facts, kernel, plan)[0]).source
    assert "nl.silu" in source


def test_a_plan_that_it_cannot_carry_out_leaves_the_kernel(facts, problem):
    kernel = problem.baseline_source()
    plan = ask_plan(facts, kernel).model_copy(
        update={"title": "Paint it blue", "change": "Blue.", "rewrite": None}
    )
    assert read_code(ask_kernel(facts, kernel, plan)[0]).source.split() == kernel.split()


def test_a_kernel_that_the_gate_refuses_is_not_traced(facts):
    kernel = "import os\nimport neuronxcc.nki as nki\nos.abort()\n@nki.jit\ndef kernel(x):\n    return x\n"
    assert ask_plan(facts, kernel).title == "Leave the kernel as it is."


class LosingPool:
    """Workers that always die."""

    @contextlib.contextmanager
    def lease(self, service, **limits):
        raise WorkerLost("killed for memory")
        yield


def test_kernels_are_traced_by_workers_alone_and_a_lost_one_costs_an_idea(facts, problem, monkeypatch):
    kernel = problem.baseline_source()
    plan = ask_plan(facts, kernel)
    monkeypatch.setitem(globals(), "MODEL", MODEL.working_in(Workshop(LosingPool())))
    assert ask_plan(facts, kernel).title == "Leave the kernel as it is."
    assert read_code(ask_kernel(facts, kernel, plan)[0]).source.split() == kernel.split()


def test_a_summary_shows_the_lines_that_differ(facts, problem):
    kernel = problem.baseline_source()
    plan = ask_plan(facts, kernel)
    fast = read_code(ask_kernel(facts, kernel, plan)[0]).source
    prompt = summarizer_prompt(
        facts, slow=kernel, fast=fast, plan=plan, outcome="The plan helped: 2 ms, 1 ms.", budget_tokens=24000
    )
    answer = read_fields(MODEL.invoke(prompt), SummaryAnswer).value
    assert answer.found and answer.title == "Widen tile"
    assert "The plan helped." in answer.description
    assert answer.slow_code and answer.fast_code and "import" not in answer.fast_code
    same = summarizer_prompt(facts, slow=kernel, fast=kernel, plan=plan, outcome="x", budget_tokens=24000)
    assert not read_fields(MODEL.invoke(same), SummaryAnswer).value.found


@pytest.mark.parametrize("mode", [mode for mode in AnswerMode if mode is not AnswerMode.AUTO])
def test_it_answers_however_it_is_asked(facts, problem, mode):
    options = _options(_Way(mode, seeded=True), 7, PlanAnswer, ())
    plan = ask_plan(facts, problem.baseline_source(), **options)
    assert plan.rewrite == "widen-tile"


def test_with_a_compiler_at_hand_it_compiles_before_it_answers(facts, problem):
    kernel = problem.baseline_source()
    plan = ask_plan(facts, kernel)
    tool = {
        "type": "function",
        "function": {"name": "compile_kernel", "parameters": {"type": "object", "required": ["source"]}},
    }
    first, prompt = ask_kernel(facts, kernel, plan, tools=[tool])
    (call,) = first.tool_calls
    assert call["name"] == "compile_kernel" and "@nki.jit" in call["args"]["source"]
    second = MODEL.invoke([*prompt, first, ToolMessage("fine", tool_call_id=call["id"])], tools=[tool])
    assert read_code(second).source == call["args"]["source"]


def test_it_counts_tokens_by_a_fixed_rule(facts, problem):
    answer, prompt = ask_kernel(facts, problem.baseline_source(), ask_plan(facts, problem.baseline_source()))
    characters = sum(len(message.content) for message in prompt)
    assert answer.usage_metadata["input_tokens"] == -(-characters // 4)
    assert answer.usage_metadata["output_tokens"] == -(-len(answer.content) // 4)


def test_anything_else_is_declined():
    answer = MODEL.invoke([SystemMessage("You are a poet."), HumanMessage("Write.")])
    assert "only know" in answer.content


def test_bottlenecks_are_read_off_the_bounds():
    request = read([HumanMessage(f"# Profile\nspill_save_bytes: 4096\n\nBounds:\n{MEMORY_BOUND}")])
    weights = request.weights
    assert weights["memory"] == pytest.approx(0.917) and weights["latency"] == pytest.approx(0.083)
    assert weights["vector"] == 0.25 and weights["spill"] == 1.0


def test_answers_are_plain_json(facts, problem):
    prompt_answer = MODEL.invoke(
        [
            SystemMessage("You are the planner of a team on AWS Trainium (trn1)."),
            HumanMessage("# Kernel\nnone"),
        ],
        response_format={"type": "json_object"},
    )
    assert set(json.loads(prompt_answer.content)) == {"bottleneck", "title", "change", "expected", "rewrite"}
