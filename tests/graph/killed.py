"""A program that is killed: searches with stand-ins in children that end by SIGKILL at random moments.

    python -m tests.graph.killed FOLDER RUNS SEED

Prints one JSON document: of each run how often it was killed, what its ledger holds, and how many model calls were
made beyond those it kept.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from graph.run import aoptimize, aresume
from memory_store.home import Home
from memory_store.ledger import Direction, Ledger, RunStatus
from nodes.context import RunContext
from nodes.resources import RESOURCES

from .stand_in import StandIn

CONTEXT = RunContext(beam=2, plans=2, samples=2, iterations=3, capacity=4, top_k=4, fixes=1)


def work(home: Home, run_id: str, is_new: bool, calls: Path) -> None:
    """One period of work on a run, in a child."""
    stand_in = StandIn(home)
    written = stand_in.write

    def write(parent: str, planned: str, number: int) -> str:
        with calls.open("a") as log:
            log.write(".\n")
        # Long enough for kills to fall between, and into, calls.
        time.sleep(0.002)
        return written(parent, planned, number)

    stand_in.write = write
    RESOURCES.set(stand_in.resources())
    begin = aoptimize(stand_in.problem, CONTEXT, run_id=run_id) if is_new else aresume(run_id)
    asyncio.run(begin)


def has_begun(home: Home, run_id: str) -> bool:
    """Whether there is anything to resume."""
    if not home.checkpoints_path.exists():
        return False
    with sqlite3.connect(home.checkpoints_path) as database:
        try:
            found = database.execute("select count(*) from checkpoints where thread_id = ?", (run_id,))
        except sqlite3.OperationalError:
            return False
        return bool(found.fetchone()[0])


def is_finished(home: Home, run_id: str) -> bool:
    try:
        with Ledger(home.ledger_url) as ledger:
            return ledger.run(run_id).status is RunStatus.FINISHED
    except Exception:
        return False


def run(home: Home, run_id: str, chance: random.Random | None) -> dict[str, Any]:
    """A run to its end, killed again and again where there is a `chance`."""
    calls = home.root.with_name(f"{home.root.name}-{run_id}.calls")
    kills = failures = 0
    while not is_finished(home, run_id):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(home, run_id, not has_begun(home, run_id), calls)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        if chance is not None:
            # Longer each time, so that a run on a busy machine gets to its end at all.
            time.sleep(chance.uniform(0.05, 0.4 + 0.1 * kills))
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended == 0:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                kills += 1
                continue
        else:
            _, status = os.waitpid(child, 0)
        failures += status != 0
        if failures > 2:
            raise SystemExit(f"the run {run_id} cannot be taken up")
    return {"kills": kills, "written": calls.read_text().count("."), **contents(home, run_id)}


def contents(home: Home, run_id: str) -> dict[str, Any]:
    """What must be the same however often a run was killed."""
    with Ledger(home.ledger_url) as ledger:
        candidates = ledger.candidates(run_id)
        calls = ledger.model_calls(run_id)
        return {
            "best": ledger.best(run_id, "stand-in").model_dump(),
            "candidates": [one.model_dump(exclude={"run_id"}) for one in candidates],
            "plans": [one.model_dump(exclude={"run_id"}) for one in ledger.plans(run_id)],
            "calls": sorted((one.key, one.answer) for one in calls),
            "queues": sorted(
                [list(map(str, key)), ids]
                for key, ids in ledger.experience_ids(run_id, Direction.QUEUE).items()
            ),
            "tokens": ledger.total_spending(run_id).tokens,
        }


def main() -> None:
    folder, runs, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(seed)
    found = [run(Home(root=folder / "undisturbed"), "undisturbed", None)]
    for number in range(runs):
        found.append(run(Home(root=folder / f"killed-{number}"), f"killed-{number}", chance))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
