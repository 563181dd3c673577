from graph.run import aoptimize


async def test_a_search_ends_with_a_faster_kernel(stand_in):
    events = []
    result = await aoptimize(stand_in.problem, stand_in.quick, on_event=events.append, home=stand_in.home)
    print(result)
    print([e["event"] for e in events])
    assert result.speedup > 1.2
    assert result.kernels_evaluated == 6 + 18 + 18
