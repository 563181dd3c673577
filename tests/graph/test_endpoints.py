"""Whole runs over real HTTP, against an endpoint that behaves and one that does not."""

from __future__ import annotations

import random
import time

import pytest

from graph.run import RunError, RunStopped, aoptimize, aresume
from memory_store.ledger import Ledger
from nodes.context import Caps, Price

from .loopback import ANSWER_FAULTS, WIRE_FAULTS, Loopback
from .stand_in import StandInModel, by_hash


@pytest.fixture
def serve(stand_in, monkeypatch):
    """An endpoint with the stand-in model behind it, and a run's settings that use it."""

    from nodes.models import chat_model
    from nodes.resources import RESOURCES, Resources

    RESOURCES.set(Resources(**{**vars(stand_in.resources()), "make_model": chat_model}))
    monkeypatch.setenv("LOOPBACK_KEY", "right")
    opened = []

    def start(**options):
        endpoint = Loopback(StandInModel(write=by_hash, calls=stand_in.calls), **options).__enter__()
        opened.append(endpoint)
        return endpoint

    yield start
    for endpoint in opened:
        endpoint.__exit__()


def using(stand_in, endpoint, **more):
    return stand_in.quick.with_model(
        models=("loopback",),
        base_url=endpoint.url,
        api_key_env="LOOPBACK_KEY",
        pause_s=0.001,
        **more,
    )


def kernels(stand_in, run_id):
    with Ledger(stand_in.home.ledger_url) as ledger:
        return [(c.round, c.slot, c.kernel_id, c.status) for c in ledger.candidates(run_id)]


async def test_a_run_over_http_counts_tokens_and_dollars(stand_in, serve):
    endpoint = serve(key="right")
    context = using(stand_in, endpoint).model_copy(
        update={"prices": {"loopback": Price(input=1000, output=2000)}}
    )
    result = await aoptimize(stand_in.problem, context)
    assert result.speedup > 1.2
    assert result.tokens == endpoint.tokens > 0
    assert result.usd == pytest.approx(endpoint.requests * (10 * 1000 + 5 * 2000) / 1e6)
    with Ledger(stand_in.home.ledger_url) as ledger:
        calls = ledger.model_calls(result.run_id)
        roles = {row.role: row.calls for row in ledger.spending(result.run_id, by=("role",))}
    assert len(calls) == endpoint.requests and all(call.reasoning == "because" for call in calls)
    assert set(roles) == {"planner", "executor", "summarizer"}


@pytest.mark.parametrize("seed", [1, 2])
async def test_faults_at_three_calls_in_ten_change_nothing_but_the_count(stand_in, serve, seed):
    behaved = await aoptimize(stand_in.problem, using(stand_in, serve()))
    chance = random.Random(seed)
    script = [
        chance.choice(WIRE_FAULTS + ANSWER_FAULTS) if chance.random() < 0.3 else None for _ in range(5000)
    ]
    endpoint = serve(faults=lambda number: script[number])
    context = using(stand_in, endpoint).model_copy(update={"answer_retries": 8, "response_cache": False})
    result = await aoptimize(stand_in.problem, context)
    assert sum(endpoint.injected.values()) > 8 and len(endpoint.injected) > 6
    assert kernels(stand_in, result.run_id) == kernels(stand_in, behaved.run_id)
    assert result.best_kernel_id == behaved.best_kernel_id
    assert result.tokens == endpoint.tokens


@pytest.mark.parametrize(
    "knows",
    [
        {"json_schema", "json_object", "tools", "seed"},
        {"json_object", "tools", "seed"},
        {"json_object", "seed"},
        {"seed"},
        set(),
    ],
)
async def test_structured_answers_come_however_the_endpoint_can(stand_in, serve, knows):
    endpoint = serve(knows=frozenset(knows))
    context = using(stand_in, endpoint).model_copy(update={"iterations": 1})
    result = await aoptimize(stand_in.problem, context)
    assert result.kernels_evaluated == 6 and result.tokens == endpoint.tokens


async def test_the_same_call_is_not_paid_twice_in_another_run(stand_in, serve):
    endpoint = serve()
    context = using(stand_in, endpoint).model_copy(update={"iterations": 1})
    first = await aoptimize(stand_in.problem, context)
    asked = endpoint.requests
    second = await aoptimize(stand_in.problem, context)
    assert endpoint.requests == asked and second.tokens == 0
    assert second.best_kernel_id == first.best_kernel_id


async def test_a_wrong_key_stops_before_anything_is_spent(stand_in, serve):
    endpoint = serve(key="another")
    with pytest.raises(RunError, match="refuses the key in LOOPBACK_KEY"):
        await aoptimize(stand_in.problem, using(stand_in, endpoint))
    assert endpoint.requests == 0


async def test_an_unknown_model_stops_before_anything_is_spent(stand_in, serve):
    endpoint = serve(names=("loopback-large",))
    with pytest.raises(RunError, match="has no model 'loopback'; the nearest of its 1: loopback-large"):
        await aoptimize(stand_in.problem, using(stand_in, endpoint))
    assert endpoint.requests == 0


async def test_an_unreachable_endpoint_is_a_line(stand_in, serve):
    context = using(stand_in, serve()).with_model(base_url="http://127.0.0.1:9/v1")
    with pytest.raises(RunError, match=r"http://127.0.0.1:9/v1 cannot be reached"):
        await aoptimize(stand_in.problem, context)


async def test_a_key_refused_in_the_middle_ends_the_run_with_what_it_has(stand_in, serve):
    undisturbed = await aoptimize(stand_in.problem, using(stand_in, serve(), extra_body={"top_k": 1}))
    endpoint = serve(key="right")

    def faults(number):
        if number == 30:
            endpoint.key = "changed"
        return None

    endpoint.faults = faults
    result = await aoptimize(stand_in.problem, using(stand_in, endpoint))
    assert "wrong key" in result.stopped and result.kernels_evaluated >= 6
    with pytest.raises(RunError, match="refuses the key"):
        await aresume(result.run_id)
    endpoint.key = "right"
    endpoint.faults = lambda number: None
    resumed = await aresume(result.run_id)
    assert resumed.iterations == 3 and not resumed.stopped and resumed.tokens == endpoint.tokens
    assert kernels(stand_in, resumed.run_id) == kernels(stand_in, undisturbed.run_id), (
        "the round was not finished"
    )


async def test_an_endpoint_that_goes_down_pauses_the_run_until_it_is_back(stand_in, serve):
    endpoint = serve(faults=lambda number: "broken" if 20 <= number < 45 else None)
    events = []
    result = await aoptimize(stand_in.problem, using(stand_in, endpoint), on_event=events.append)
    kinds = [event["event"] for event in events]
    assert "paused" in kinds and kinds.index("resumed") > kinds.index("paused")
    assert result.iterations == 3 and not result.stopped


async def test_the_wall_time_ends_a_run_whose_endpoint_is_down(stand_in, serve):
    endpoint = serve(faults=lambda number: "broken" if number >= 20 else None)
    context = using(stand_in, endpoint).with_model(pause_s=30).model_copy(update={"caps": Caps(wall_s=6)})
    began = time.monotonic()
    result = await aoptimize(stand_in.problem, context)
    assert "6 s wall time" in result.stopped and time.monotonic() - began < 20
    endpoint.faults = lambda number: None
    resumed = await aresume(result.run_id, caps=Caps())
    assert resumed.iterations == 3 and not resumed.stopped


async def test_an_outage_too_long_ends_the_run_without_a_knock_for_every_call(stand_in, serve):
    endpoint = serve(faults=lambda number: "broken" if number >= 20 else None)
    context = using(stand_in, endpoint, outage_s=0.5)
    result = await aoptimize(stand_in.problem, context)
    assert "stayed down" in result.stopped
    knocked = endpoint.requests
    endpoint.faults = lambda number: None
    undisturbed = await aoptimize(stand_in.problem, using(stand_in, serve(), extra_body={"top_k": 1}))
    resumed = await aresume(result.run_id)
    assert kernels(stand_in, resumed.run_id) == kernels(stand_in, undisturbed.run_id)
    assert knocked < 20 + 40


async def test_a_cap_in_dollars_is_never_passed(stand_in, serve):
    price = {"loopback": Price(input=10, output=100)}
    context = using(stand_in, serve(), max_output_tokens=256).model_copy(
        update={"prices": price, "response_cache": False}
    )
    free = await aoptimize(stand_in.problem, context)
    with Ledger(stand_in.home.ledger_url) as ledger:
        prompts = [call.prompt for call in ledger.model_calls(free.run_id)]
    largest = max(sum(len(message["content"].encode()) for message in prompt) for prompt in prompts)
    cap = ((largest + 64) * 10 + 256 * 100) / 1e6 + free.usd / 2
    result = await aoptimize(stand_in.problem, context.model_copy(update={"caps": Caps(usd=cap)}))
    assert 0 < result.usd <= cap
    assert "USD: " in result.stopped


async def test_draws_are_spread_over_an_ensemble(stand_in, serve):
    endpoint = serve(names=("loopback", "second", "third"))
    context = using(stand_in, endpoint)
    executor = context.executor.model_copy(update={"models": ("loopback", "second", "third")})
    context = context.model_copy(update={"executor": executor, "iterations": 1})
    result = await aoptimize(stand_in.problem, context)
    with Ledger(stand_in.home.ledger_url) as ledger:
        by_model = {
            row.model: row.calls
            for row in ledger.spending(result.run_id, by=("role", "model"))
            if row.role == "executor"
        }
    assert by_model == {"loopback": 2, "second": 2, "third": 2}


async def test_a_run_resumed_after_a_drain_pays_nothing_twice(stand_in, serve):
    from langgraph.runtime import RunControl

    endpoint = serve()
    context = using(stand_in, endpoint).model_copy(update={"response_cache": False})
    control = RunControl()

    def stop(event):
        if event["event"] == "planned" and event["round"] == 2:
            control.request_drain()

    with pytest.raises(RunStopped) as stopped:
        await aoptimize(stand_in.problem, context, on_event=stop, control=control)
    result = await aresume(stopped.value.run_id)
    assert result.tokens == endpoint.tokens
    with Ledger(stand_in.home.ledger_url) as ledger:
        assert len(ledger.model_calls(result.run_id)) == endpoint.requests


async def test_an_endpoint_without_tools_gets_a_single_shot_and_a_notice(stand_in, serve, monkeypatch):
    from langchain_core.tools import tool

    from nodes.services import Services

    @tool
    def compile_kernel(source: str) -> str:
        """Compiles a kernel."""
        return "fine"

    monkeypatch.setattr(Services, "tools", lambda self: [compile_kernel])
    endpoint = serve(knows=frozenset({"json_object", "seed"}))
    context = using(stand_in, endpoint).model_copy(update={"agentic": True, "iterations": 1})
    events = []
    result = await aoptimize(stand_in.problem, context, on_event=events.append)
    assert result.kernels_evaluated == 6 and result.kernels_correct > 0
    assert any("no tool calls" in event.get("message", "") for event in events)


async def test_oddities_are_counted_by_kind(stand_in, serve):
    script = {2: "prose", 5: "null", 6: "unchanged"}
    endpoint = serve(faults=script.get)
    context = using(stand_in, endpoint).model_copy(update={"iterations": 1})
    result = await aoptimize(stand_in.problem, context)
    with Ledger(stand_in.home.ledger_url) as ledger:
        calls = ledger.model_calls(result.run_id)
        failed = ledger.total_spending(result.run_id).failed_calls
    found = [oddity for call in calls for oddity in call.extra["oddities"]]
    assert sorted(found) == ["empty", "prose_around", "unchanged"] and failed == 2
