from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def runs(folder, count, seed):
    done = subprocess.run(
        [sys.executable, "-m", "tests.graph.killed", str(folder), str(count), str(seed)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def compare(found):
    undisturbed, *killed = found
    kept = ("best", "candidates", "plans", "calls", "queues", "tokens")
    for one in killed:
        for name in kept:
            assert one[name] == undisturbed[name], name
        # A kill can only cost what was in flight: at most every executor of a round.
        assert one["written"] - undisturbed["written"] <= one["kills"] * 16
    return sum(one["kills"] for one in killed)


def test_a_run_killed_at_random_moments_ends_like_an_undisturbed_one(tmp_path):
    assert compare(runs(tmp_path, 2, seed=1)) >= 2


@pytest.mark.heavy
def test_two_hundred_kills_change_nothing(tmp_path):
    kills = 0
    seed = 0
    while kills < 200:
        seed += 1
        folder = tmp_path / str(seed)
        folder.mkdir()
        kills += compare(runs(folder, 10, seed))
