"""The recorded run that ships with the tests, replayed where there is neither a model nor a simulator."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from graph.run import aoptimize
from memory_store.home import Home
from memory_store.ledger import Ledger
from nodes.context import RunContext
from nodes.resources import RESOURCES, Resources
from tools.backends import ArrayType

from .record import RECORDED, RUN


class NoEvaluator:
    async def aevaluate(self, kernel, problem, stage=None):
        raise AssertionError("a kernel was evaluated")

    def argument_types(self, problem):
        return [ArrayType((1024, 2048))]

    def close(self):
        pass


def no_model(settings, name, cache):
    raise AssertionError("a model was asked")


@pytest.fixture
def home(tmp_path: Path):
    home = Home(root=tmp_path / "home").prepare()
    copy = tmp_path / "recorded.sqlite"
    shutil.copy(RECORDED, copy)
    with Ledger(f"sqlite:///{copy}") as recorded, Ledger(home.ledger_url) as ledger:
        recorded.copy_run(RUN, ledger)
    token = RESOURCES.set(
        Resources(
            home=home,
            make_evaluator=lambda *_: NoEvaluator(),
            make_memory=lambda *_: None,
            make_model=no_model,
        )
    )
    yield home
    RESOURCES.reset(token)


async def test_the_recorded_run_replays_bit_for_bit(home):
    with Ledger(home.ledger_url) as ledger:
        settings, (problem,) = ledger.run(RUN).settings, ledger.problems(RUN)
    context = RunContext.model_validate(settings | {"replay_of": RUN, "memory": "paper"})
    result = await aoptimize(problem.definition, context)
    assert result.speedup > 1.1 and result.best_kernel_id == problem.best_kernel_id
    left = {"run_id", "call_key"}
    with Ledger(home.ledger_url) as ledger:
        again, before = ledger.candidates(result.run_id), ledger.candidates(RUN)
        assert [one.model_dump(exclude=left) for one in again] == [
            one.model_dump(exclude=left) for one in before
        ]
        titles = [
            [
                (one.round, one.parent_id, one.index, one.plan["title"], one.plan["change"])
                for one in ledger.plans(run)
            ]
            for run in (RUN, result.run_id)
        ]
        assert titles[0] == titles[1]
        calls = [{one.key: one.answer for one in ledger.model_calls(run)} for run in (RUN, result.run_id)]
        assert calls[0] == calls[1]
        assert ledger.total_spending(result.run_id).tokens == ledger.total_spending(RUN).tokens
