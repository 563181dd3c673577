from __future__ import annotations

import asyncio

import pytest

from nodes.budget import PRICES, Budget, CapReached, Spent, Usage, cost_usd, price_of
from nodes.context import OFFLINE, Caps, Price


def test_cached_and_reasoning_tokens_have_their_own_price():
    usage = Usage(
        input_tokens=1_000_000, cached_tokens=400_000, output_tokens=500_000, reasoning_tokens=100_000
    )
    price = Price(input=2, output=10, cached_input=0.5, reasoning=20)
    assert cost_usd(usage, price) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.4 * 10 + 0.1 * 20)
    assert cost_usd(usage, Price(input=2, output=10)) == pytest.approx(2 + 5)


def test_usage_comes_from_langchains_metadata():
    usage = Usage.of(
        {
            "input_tokens": 7,
            "output_tokens": 5,
            "total_tokens": 12,
            "input_token_details": {"cache_read": 3},
            "output_token_details": {"reasoning": 2},
        }
    )
    assert (usage.total, usage.cached_tokens, usage.reasoning_tokens) == (12, 3, 2)
    assert Usage.of(None) == Usage()


def test_the_table_has_the_papers_prices():
    prices = PRICES
    assert (prices["gpt-oss-120b"].input, prices["gpt-oss-120b"].output) == (0.15, 0.60)
    assert price_of("accounts/x/models/GPT-OSS-120B", {}) == prices["gpt-oss-120b"]
    assert price_of("claude-sonnet-4", {}).output == 15
    assert price_of("nobody-knows", {}) is None
    assert price_of(OFFLINE, {}).output == 0


def test_an_own_price_goes_before_the_table():
    own = {"gpt-oss-120b": Price(input=1, output=1)}
    assert price_of("gpt-oss-120b", own).input == 1


def budget(clock=lambda: 0.0, spent=None, prices=None, **caps):
    return Budget(Caps(**caps), prices or {"m": Price(input=0, output=1)}, spent, clock=clock)


async def test_a_call_whose_worst_case_breaks_the_cap_does_not_start():
    purse = budget(tokens=1000)
    with pytest.raises(CapReached, match="1000 tokens"):
        await purse.reserve("m", ["x" * 600], 400)
    assert purse.stop and purse.spent.tokens == 0


async def test_what_was_spent_before_counts():
    purse = budget(usd=1.0, spent=Spent(usd=0.9))
    with pytest.raises(CapReached, match="1 USD"):
        await purse.reserve("m", ["x"], 200_000)


async def test_a_call_waits_for_another_one_to_settle_before_it_is_refused():
    purse = budget(tokens=1200)
    first = await purse.reserve("m", ["x" * 100], 800)
    second = asyncio.ensure_future(purse.reserve("m", ["x" * 100], 800))
    await asyncio.sleep(0)
    assert not second.done()
    await purse.settle(first, Usage(input_tokens=20, output_tokens=30))
    assert (await second).tokens == 100 + 64 + 800
    assert purse.spent.tokens == 50 and not purse.stop


async def test_once_a_cap_is_reached_nothing_more_starts():
    purse = budget(tokens=1000)
    with pytest.raises(CapReached):
        await purse.reserve("m", ["x" * 2000], 400)
    with pytest.raises(CapReached):
        await purse.reserve("m", ["x"], 1)
    with pytest.raises(CapReached):
        purse.admit_kernel("1/0.0.0/0")


async def test_a_model_without_a_price_cannot_run_under_a_cap_in_usd():
    purse = budget(usd=1.0)
    with pytest.raises(CapReached, match="no price is known for model other"):
        await purse.reserve("other", ["x"], 10)


async def test_wall_time_of_earlier_periods_counts():
    now = [0.0]
    purse = budget(clock=lambda: now[0], wall_s=100, spent=Spent(wall_s=60))
    assert purse.remaining_s() == 40
    now[0] = 41
    with pytest.raises(CapReached, match="100 s wall time"):
        await purse.reserve("m", ["x"], 10)


def test_a_kernel_admitted_before_is_free():
    purse = Budget(Caps(kernels=2), {}, None, ["1/0.0.0/0"])
    purse.admit_kernel("1/0.0.0/0")
    purse.admit_kernel("1/0.0.1/0")
    with pytest.raises(CapReached, match="2 kernels"):
        purse.admit_kernel("1/0.1.0/0")


def test_promised_kernels_are_room_taken_until_they_are_forgone():
    purse = Budget(Caps(kernels=2), {})
    assert purse.promise_kernels(["1/0.0.0/0", "1/0.0.1/0", "1/0.0.2/0"]) == ["1/0.0.0/0", "1/0.0.1/0"]
    assert purse.promise_kernels(["1/0.0.0/0"]) == ["1/0.0.0/0"], "promised before"
    with pytest.raises(CapReached, match="2 kernels"):
        purse.promise_kernels(["1/0.1.0/0"])
    with pytest.raises(CapReached):
        purse.admit_kernel("1/0.1.0/0")
    purse.forgo_kernels(["1/0.0.1/0"])
    purse.admit_kernel("1/0.1.0/0")
    assert not purse.no_more_kernels()
    purse.admit_kernel("1/0.0.0/0")
    assert "2 kernels" in purse.no_more_kernels()


async def test_many_calls_at_once_never_pass_the_cap():
    purse = budget(tokens=20_000)

    async def call():
        try:
            held = await purse.reserve("m", ["x" * 500], 1000)
        except CapReached:
            return
        await asyncio.sleep(0)
        await purse.settle(held, Usage(input_tokens=500, output_tokens=1000))
        assert purse.spent.tokens <= 20_000

    await asyncio.gather(*(call() for _ in range(100)))
    assert 15_000 < purse.spent.tokens <= 20_000
