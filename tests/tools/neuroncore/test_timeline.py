"""The Trace Event Format, and times that add up to the profile."""

import json
from collections import defaultdict

import pytest

from tools.neuroncore import estimate
from tools.neuroncore.machine import TRN1
from tools.neuroncore.timeline import chrome_trace


def busy_ms_by_track(trace):
    names = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    found = defaultdict(float)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            found[names[event["tid"]]] += event["args"].get("busy_us", event["dur"]) / 1e3
    return found


@pytest.fixture(params=["silu_chunked", "bmm_softmax_two_pass", "matmul_blocked", "mamba_states_outside"])
def profiled(request, kernel_of):
    found = estimate(kernel_of(request.param), with_timeline=True)
    return found, chrome_trace(found.timeline, TRN1, request.param)


def test_it_is_a_valid_trace(profiled):
    _, trace = profiled
    parsed = json.loads(json.dumps(trace))
    assert set(parsed) >= {"traceEvents", "displayTimeUnit"}
    for event in parsed["traceEvents"]:
        assert event["ph"] in ("X", "M") and isinstance(event["pid"], int) and event["name"]
        if event["ph"] == "X":
            assert isinstance(event["tid"], int)
            assert event["ts"] >= 0 and event["dur"] >= 0 and isinstance(event["args"], dict)


def test_engine_times_add_up_to_the_counters(profiled):
    found, trace = profiled
    busy = busy_ms_by_track(trace)
    tracks = {"tensor": "TensorE", "vector": "VectorE", "scalar": "ScalarE", "gpsimd": "GpSimdE"}
    for engine, track in tracks.items():
        assert busy[track] == pytest.approx(found.engine_busy_ms[engine], rel=5e-3, abs=1e-6)
    queues = sum(v for name, v in busy.items() if name.startswith("DMA queue")) / 16
    assert queues == pytest.approx(found.engine_busy_ms["dma"], rel=5e-3)


def test_there_is_a_track_for_every_engine_and_queue(profiled):
    _, trace = profiled
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"]
    assert names == ["TensorE", "VectorE", "ScalarE", "GpSimdE", *(f"DMA queue {k}" for k in range(16))]


def test_slices_name_their_source_line_and_spills_are_marked(kernel_of):
    found = estimate(kernel_of("bmm_softmax_two_pass"), with_timeline=True)
    slices = [e for e in chrome_trace(found.timeline, TRN1)["traceEvents"] if e["ph"] == "X"]
    assert any("(line " in e["name"] for e in slices)
    spills = [e for e in slices if e["cat"] == "spill"]
    assert spills and all(e["cname"] for e in spills)
    assert {e["args"]["instruction"] for e in spills} == {"DMA"}


def test_an_engine_runs_one_instruction_at_a_time(kernel_of):
    found = estimate(kernel_of("mamba_states_outside"), with_timeline=True)
    by_lane = defaultdict(list)
    for event in found.timeline:
        if event.op is not None and event.op.transfer is None:
            by_lane[event.lane].append((event.start_ns, event.end_ns))
    for spans in by_lane.values():
        spans.sort()
        assert all(a[1] <= b[0] + 1e-6 for a, b in zip(spans, spans[1:], strict=False))
