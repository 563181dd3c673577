"""How much of its inputs a kernel reads."""

import pytest

from tools.neuroncore.footprint import read_bytes

BODY = """
out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
{read}
nl.store(out, t)
return out
"""

READS = {
    "t = nl.load(x[0:128, 0:64])": 128 * 64,
    "t = nl.load(x[384:512, 64:128])": 128 * 64,
    "t = nl.load(x[4 * p, f])": 128 * 64,
    "t = nl.load(x[4 * p + 3, 2 * f])": 128 * 64,
    "t = nl.zeros((128, 64), dtype=x.dtype)\nfor i in nl.sequential_range(4):\n"
    "    t += nl.load(x[128 * i + p, f])": 512 * 64,
    "t = nl.zeros((128, 64), dtype=x.dtype)\nfor i in nl.static_range(4):\n"
    "    t += nl.load(x[128 * i + p, f])": 512 * 64,
    "t = nl.zeros((128, 64), dtype=x.dtype)\nfor i in nl.sequential_range(3):\n"
    "    t[p, f] = nl.load(x[200 * i + p, f], mask=(200 * i + p < 512))": 512 * 64,
    "i = nl.load(ids)\nt = nl.load(x[i[p, 0], f])": 64,
    "i = nl.load(ids)\nt = nl.load(x[i[p, 0], f])\nu = nl.load(x[0:128, 0:64])": 128 * 64,
    "r = x.reshape((256, 2, 128))\nt = nl.load(r[0:128, 1, 0:64])": 128 * 64,
}


@pytest.mark.parametrize("read", READS)
def test_what_is_read_is_the_box_around_all_accesses(traced, read):
    found = read_bytes(traced(BODY.format(read=read), x=(512, 128), ids=(128, 1), dtype="int32"))
    assert found == [READS[read] * 4, 128 * 4 if "ids" in read else 0]
