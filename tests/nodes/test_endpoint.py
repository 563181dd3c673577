from __future__ import annotations

import asyncio

import pytest

from nodes.endpoint import Endpoint, EndpointError, Fault, Patience, fault_of, retry_after_s


class HttpError(Exception):
    def __init__(self, status, text="", headers=None):
        super().__init__(text or f"status {status}")
        self.status_code = status
        self.response = type("Response", (), {"headers": headers or {}})()


class Time:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.now, self.slept = 0.0, []

    def clock(self):
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def endpoint(time, **more):
    patience = more.pop("patience", Patience(pause_s=1.0, longest_pause_s=8.0, failures_to_open=3))
    return Endpoint("http://there", patience=patience, clock=time.clock, sleep=time.sleep, **more)


def scripted(*answers):
    """A request that fails or answers as the script says, and counts."""
    script = list(answers)

    async def request():
        request.made += 1
        answer = script.pop(0) if script else "fine"
        if isinstance(answer, Exception):
            raise answer
        return answer

    request.made = 0
    return request


async def call(where, request):
    return await where.call(request, timeout_s=60, time_left_s=lambda: None)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (HttpError(401), Fault.REFUSED),
        (HttpError(404, "model does not exist"), Fault.REFUSED),
        (HttpError(400, "response_format is not supported"), Fault.UNSUPPORTED),
        (HttpError(400, "prompt too long"), Fault.REJECTED),
        (HttpError(429), Fault.BUSY),
        (HttpError(503), Fault.BROKEN),
        (TimeoutError(), Fault.TIMEOUT),
        (ConnectionResetError(), Fault.UNREACHABLE),
        (ValueError("not JSON"), Fault.BROKEN),
    ],
)
def test_every_kind_of_error_has_a_name(error, fault):
    assert fault_of(error) is fault


def test_a_cause_tells_the_kind():
    try:
        try:
            raise HttpError(429)
        except HttpError as inner:
            raise RuntimeError("wrapped") from inner
    except RuntimeError as outer:
        assert fault_of(outer) is Fault.BUSY


def test_retry_after_is_read_in_seconds_and_milliseconds():
    assert retry_after_s(HttpError(429, headers={"retry-after": "7"})) == 7
    assert retry_after_s(HttpError(429, headers={"retry-after-ms": "250"})) == 0.25
    assert retry_after_s(HttpError(429, headers={"retry-after": "Tue, 01 Dec 2026"})) is None
    assert retry_after_s(ValueError()) is None


async def test_a_busy_endpoint_is_asked_again_when_it_said():
    time = Time()
    request = scripted(HttpError(429, headers={"retry-after": "7"}), "fine")
    assert await call(endpoint(time), request) == "fine"
    assert time.slept == [7] and request.made == 2


async def test_pauses_double_and_are_jittered():
    time = Time()
    request = scripted(*[HttpError(429)] * 5, "fine")
    await call(endpoint(time), request)
    longest = [1, 2, 4, 8, 8]
    assert all(most / 2 <= slept <= most for slept, most in zip(time.slept, longest, strict=True))


async def test_a_refusal_is_not_tried_again():
    request = scripted(HttpError(401, "wrong key"))
    with pytest.raises(EndpointError, match="http://there: wrong key") as refused:
        await call(endpoint(Time()), request)
    assert request.made == 1 and refused.value.fault is Fault.REFUSED


async def test_a_call_that_always_fails_ends():
    request = scripted(*[HttpError(429)] * 50)
    with pytest.raises(EndpointError, match="12 tries failed"):
        await call(endpoint(Time()), request)
    assert request.made == 12


async def test_an_endpoint_that_is_down_pauses_everybody_and_one_knocks():
    time, told = Time(), []
    where = endpoint(time, notify=lambda kind, message: told.append((kind, message)))
    in_flight = [0, 0]
    up = [False]

    async def request():
        in_flight[0] += 1
        in_flight[1] = max(in_flight[1], in_flight[0] if where.is_down else 0)
        await asyncio.sleep(0)
        in_flight[0] -= 1
        if not up[0]:
            raise ConnectionRefusedError("nobody listens")
        return "fine"

    calls = [asyncio.ensure_future(call(where, request)) for _ in range(8)]
    while not where.is_down:
        await asyncio.sleep(0)
    while any(in_flight[:1]):
        await asyncio.sleep(0)
    in_flight[1] = 0
    for _ in range(200):
        await asyncio.sleep(0)
    assert in_flight[1] <= 1, "more than one call knocked"
    up[0] = True
    assert await asyncio.gather(*calls) == ["fine"] * 8
    assert [kind for kind, _ in told] == ["paused", "resumed"]
    assert "nobody listens" in told[0][1] and "http://there" in told[0][1]


async def test_an_endpoint_that_stays_down_too_long_ends_the_call():
    time = Time()
    where = endpoint(time, patience=Patience(failures_to_open=2, outage_s=100, longest_pause_s=30))
    with pytest.raises(EndpointError, match="stayed down") as gone:
        await call(where, scripted(*[ConnectionRefusedError()] * 500))
    assert gone.value.fault is Fault.REFUSED


async def test_the_rate_limit_spaces_calls():
    time = Time()
    where = endpoint(time, requests_per_minute=30)
    started = []

    async def request():
        started.append(time.now)

    for _ in range(4):
        await call(where, request)
    assert started == [0, 2, 4, 6]


async def test_no_more_calls_than_slots_are_in_flight():
    where = endpoint(Time(), concurrency=3)
    most = [0, 0]

    async def request():
        most[0] += 1
        most[1] = max(most)
        await asyncio.sleep(0)
        most[0] -= 1

    await asyncio.gather(*(call(where, request) for _ in range(20)))
    assert most[1] == 3


async def test_no_call_starts_without_time():
    request = scripted("fine")
    with pytest.raises(EndpointError, match="wall time"):
        await endpoint(Time()).call(request, timeout_s=60, time_left_s=lambda: 0.0)
    assert request.made == 0


async def test_a_call_that_hangs_is_cut_off():
    async def request():
        await asyncio.Event().wait()

    where = endpoint(Time(), patience=Patience(attempts=2))
    with pytest.raises(EndpointError, match="2 tries failed"):
        await where.call(request, timeout_s=0.001, time_left_s=lambda: None)


async def test_pauses_and_turns_end_with_the_runs_wall_time():
    time = Time()
    where = endpoint(
        time, patience=Patience(pause_s=40.0, longest_pause_s=60.0, failures_to_open=2), requests_per_minute=2
    )
    ends = 100.0

    async def one():
        with pytest.raises(EndpointError, match="wall time is used up"):
            await where.call(
                scripted(*[HttpError(503)] * 50), timeout_s=60, time_left_s=lambda: max(0.0, ends - time.now)
            )

    await asyncio.gather(*(one() for _ in range(20)))
    assert max(time.slept) <= 60 and where.calls < 20
    assert time.now < ends + 60, "twenty calls paused one after the other, beyond the end"
