from __future__ import annotations

import asyncio
import os
import signal

import pytest
from langgraph.runtime import RunControl

from graph.run import RunError, RunPaused, RunStopped, aoptimize, aresume, optimize
from memory_store.errors import HomeError, LedgerError
from memory_store.ledger import Ledger, RunStatus
from nodes.budget import Budget
from nodes.context import Caps, Price, RunContext
from nodes.record import Record
from nodes.resources import RESOURCES
from nodes.state import Stop
from tools.evaluation import Stage
from tools.pool import PoolBroken


def ledger_of(stand_in):
    return Ledger(stand_in.home.ledger_url)


def kept(stand_in, run_id):
    """Everything that a run decided."""
    with ledger_of(stand_in) as ledger:
        (problem,) = ledger.problems(run_id)
        return (
            [one.model_dump(exclude={"run_id"}) for one in ledger.candidates(run_id)],
            [one.model_dump(exclude={"run_id"}) for one in ledger.plans(run_id)],
            sorted((one.key, one.answer) for one in ledger.model_calls(run_id)),
            problem.model_dump(exclude={"run_id"}),
        )


def facts(result):
    """What must not depend on when or in how many pieces a run was done."""
    return result.model_dump(exclude={"wall_s", "run_id", "best_kernel_path"})


async def test_a_search_ends_with_a_faster_kernel(stand_in):
    events = []
    result = await aoptimize(stand_in.problem, stand_in.quick, on_event=events.append)
    assert result.speedup > 1.2
    assert result.iterations == 3
    assert result.kernels_evaluated == 6 + 18 + 18
    assert open(result.best_kernel_path).read().startswith("from neuronxcc")
    kinds = [event["event"] for event in events]
    assert kinds[0] == "run_started" and kinds[-1] == "run_finished"
    assert kinds.count("planned") == 3 + 9 + 9 and kinds.count("evaluated") == 42
    with ledger_of(stand_in) as ledger:
        assert ledger.run(result.run_id).status is RunStatus.FINISHED
        assert ledger.total_spending(result.run_id).tokens == result.tokens


async def test_the_same_seed_gives_the_same_run(stand_in):
    first = await aoptimize(stand_in.problem, stand_in.quick)
    second = await aoptimize(stand_in.problem, stand_in.quick)
    assert facts(first) == facts(second)


async def test_only_kernels_that_are_kept_or_taught_are_checked_in_full(stand_in):
    await aoptimize(stand_in.problem, stand_in.quick)
    screened = {kernel for kernel, stage in stand_in.evaluator.evaluated if stage is Stage.screen}
    promoted = {kernel for kernel, stage in stand_in.evaluator.evaluated if stage is Stage.promote}
    assert len(promoted) < len(screened)


async def test_a_kernel_that_fails_the_full_check_is_not_kept(stand_in):
    first = await aoptimize(stand_in.problem, stand_in.quick)
    stand_in.evaluator.only_on_full_check.add(first.best_kernel_id)
    stand_in.home = stand_in.home.__class__(root=stand_in.home.root.with_name("other"))
    RESOURCES.set(stand_in.resources())
    second = await aoptimize(stand_in.problem, stand_in.quick)
    assert second.best_kernel_id != first.best_kernel_id
    with ledger_of(stand_in) as ledger:
        failed = [c for c in ledger.candidates(second.run_id) if c.kernel_id == first.best_kernel_id]
        assert {c.status for c in failed} == {"incorrect"}


@pytest.mark.parametrize("after", ["planned", "evaluated", "round_finished", "learned"])
async def test_a_drained_run_resumes_to_the_same_end(stand_in, after):
    undisturbed = await aoptimize(stand_in.problem, stand_in.quick)
    control = RunControl()

    def stop(event):
        if event["event"] == after:
            control.request_drain("test")

    with pytest.raises(RunStopped) as stopped:
        await aoptimize(stand_in.problem, stand_in.quick, on_event=stop, control=control)
    assert stopped.value.result is not None
    assert stopped.value.result.iterations == (after in ("round_finished", "learned")), "whole rounds only"
    run_id = stopped.value.run_id
    with ledger_of(stand_in) as ledger:
        assert ledger.run(run_id).status is RunStatus.STOPPED
    before = len(stand_in.calls)
    result = await aresume(run_id)
    assert facts(result) == facts(undisturbed)
    with ledger_of(stand_in) as ledger:
        calls = ledger.model_calls(run_id)
    assert len(stand_in.calls) - before < len(calls), "finished calls were made again"


async def test_a_finished_run_tells_its_result_again(stand_in):
    result = await aoptimize(stand_in.problem, stand_in.quick)
    before = len(stand_in.calls)
    assert await aresume(result.run_id) == result
    assert len(stand_in.calls) == before


async def test_a_change_that_makes_no_sense_is_refused_before_it_is_kept(stand_in):
    done = await aoptimize(stand_in.problem, stand_in.quick)
    with pytest.raises(RunError, match="iterations cannot be -3"):
        await aresume(done.run_id, iterations=-3)
    assert await aresume(done.run_id) == done


async def test_a_finished_run_can_go_on_for_more_rounds(stand_in):
    longer = stand_in.quick.model_copy(update={"iterations": 5})
    undisturbed = await aoptimize(stand_in.problem, longer)
    short = await aoptimize(stand_in.problem, stand_in.quick)
    result = await aresume(short.run_id, iterations=5)
    assert facts(result) == facts(undisturbed)


async def test_a_cap_on_kernels_is_never_passed(stand_in):
    context = stand_in.quick.model_copy(update={"caps": Caps(kernels=10)})
    result = await aoptimize(stand_in.problem, context)
    assert result.kernels_evaluated <= 10
    assert "10 kernels" in result.stopped
    with ledger_of(stand_in) as ledger:
        assert ledger.run(result.run_id).status is RunStatus.CAPPED


async def test_no_call_is_paid_for_a_kernel_that_a_cap_keeps_from_evaluation(stand_in):
    context = stand_in.quick.model_copy(update={"caps": Caps(kernels=10)})
    result = await aoptimize(stand_in.problem, context)
    assert result.kernels_evaluated == 10 == stand_in.calls.count("executor")
    assert stand_in.calls.count("planner") == 5, "two kernels each"
    with ledger_of(stand_in) as ledger:
        rounds = {call.round for call in ledger.model_calls(result.run_id, role="summarizer")}
    assert result.iterations in rounds, "what the last whole round has to teach is put into words"


async def test_a_capped_run_taken_up_under_the_same_cap_begins_no_round(stand_in):
    context = stand_in.quick.model_copy(update={"caps": Caps(kernels=10)})
    capped = await aoptimize(stand_in.problem, context)
    again = await aresume(capped.run_id, caps=Caps(kernels=10))
    assert (again.iterations, again.stopped) == (capped.iterations, capped.stopped)


async def test_a_cap_on_tokens_is_never_passed(stand_in):
    context = stand_in.quick.with_model(max_output_tokens=300)
    free = await aoptimize(stand_in.problem, context)
    with ledger_of(stand_in) as ledger:
        prompts = [call.prompt for call in ledger.model_calls(free.run_id)]
    largest = max(sum(len(message["content"].encode()) for message in prompt) for prompt in prompts)
    # Room for the worst case of one call beside half of what the run really uses.
    cap = largest + 64 + 300 + free.tokens // 2
    result = await aoptimize(stand_in.problem, context.model_copy(update={"caps": Caps(tokens=cap)}))
    assert 0 < result.tokens <= cap
    assert f"{cap} tokens" in result.stopped


async def test_a_capped_run_goes_on_under_a_higher_cap(stand_in):
    context = stand_in.quick.model_copy(update={"caps": Caps(kernels=10)})
    capped = await aoptimize(stand_in.problem, context)
    result = await aresume(capped.run_id, caps=Caps())
    assert result.iterations == 3 and not result.stopped
    assert result.best_latency_ms <= capped.best_latency_ms


@pytest.mark.parametrize("kernels", [1, 5, 6, 7, 10, 23, 24, 41])
async def test_a_round_that_a_cap_on_kernels_cut_short_is_finished_under_a_higher_one(stand_in, kernels):
    undisturbed = await aoptimize(stand_in.problem, stand_in.quick)
    asked = len(stand_in.calls)
    context = stand_in.quick.model_copy(update={"caps": Caps(kernels=kernels)})
    capped = await aoptimize(stand_in.problem, context)
    assert capped.kernels_evaluated == kernels
    assert capped.iterations == {6: 1, 24: 2}.get(kernels, (kernels > 6) + (kernels > 24)), (
        "whole rounds only"
    )
    result = await aresume(capped.run_id, caps=Caps())
    assert facts(result) == facts(undisturbed)
    assert kept(stand_in, result.run_id) == kept(stand_in, undisturbed.run_id)
    assert len(stand_in.calls) == 2 * asked, "a call was made twice"


async def test_a_cap_may_be_raised_again_and_again(stand_in):
    undisturbed = await aoptimize(stand_in.problem, stand_in.quick)
    context = stand_in.quick.model_copy(update={"caps": Caps(kernels=2)})
    result = await aoptimize(stand_in.problem, context)
    for kernels in range(6, 46, 4):
        result = await aresume(result.run_id, caps=Caps(kernels=kernels))
        assert result.kernels_evaluated == min(kernels, 42)
    assert facts(result) == facts(undisturbed)
    assert kept(stand_in, result.run_id) == kept(stand_in, undisturbed.run_id)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.22, 0.24, 0.3, 0.6, 0.95])
async def test_a_run_that_a_cap_on_tokens_cut_short_ends_like_one_without_under_a_higher_one(stand_in, share):
    context = stand_in.quick.with_model(max_output_tokens=300, concurrency=1)
    undisturbed = await aoptimize(stand_in.problem, context)
    asked = len(stand_in.calls)
    with ledger_of(stand_in) as ledger:
        prompts = [call.prompt for call in ledger.model_calls(undisturbed.run_id)]
    largest = max(sum(len(message["content"].encode()) for message in prompt) for prompt in prompts)
    caps = Caps(tokens=largest + 64 + 300 + int(share * undisturbed.tokens))
    capped = await aoptimize(stand_in.problem, context.model_copy(update={"caps": caps}))
    assert "tokens" in capped.stopped
    result = await aresume(capped.run_id, caps=Caps())
    assert facts(result) == facts(undisturbed)
    assert kept(stand_in, result.run_id) == kept(stand_in, undisturbed.run_id)
    assert len(stand_in.calls) == 2 * asked, "a call was made twice"


async def test_lessons_that_a_cap_left_unwritten_are_written_under_a_higher_one(stand_in):
    undisturbed = await aoptimize(stand_in.problem, stand_in.quick)
    remembered = len(stand_in.remembered)
    end, told = Budget.end, []

    def reserve(self, model, prompt, most_output_tokens, whole=Budget.reserve):
        if "Slow" in "".join(prompt) and not told:
            told.append(True)
            end(self, "no more", Stop.CAP)
        return whole(self, model, prompt, most_output_tokens)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Budget, "reserve", reserve)
        capped = await aoptimize(stand_in.problem, stand_in.quick)
    assert capped.stopped == "no more" and capped.iterations == 1
    assert len(stand_in.remembered) == remembered, "a part of a round's lessons was remembered"
    result = await aresume(capped.run_id, caps=Caps(tokens=10**9))
    assert facts(result) == facts(undisturbed)
    assert kept(stand_in, result.run_id) == kept(stand_in, undisturbed.run_id)
    assert len(stand_in.remembered) == 2 * remembered


async def test_what_a_cap_refused_before_a_stop_is_done_when_the_cap_is_higher_after_it(stand_in):
    undisturbed = await aoptimize(stand_in.problem, stand_in.quick)
    control = RunControl()

    def stop(event):
        if event["event"] == "evaluated" and event["round"] == 2:
            control.request_drain("test")

    context = stand_in.quick.model_copy(update={"caps": Caps(kernels=10)})
    with pytest.raises(RunStopped) as stopped:
        await aoptimize(stand_in.problem, context, on_event=stop, control=control)
    result = await aresume(stopped.value.run_id, caps=Caps())
    assert facts(result) == facts(undisturbed)
    assert kept(stand_in, result.run_id) == kept(stand_in, undisturbed.run_id)


async def test_room_that_a_plan_without_a_kernel_leaves_goes_to_one_that_was_refused(stand_in):
    written = stand_in.write

    def write(parent, planned, number):
        return written(parent, planned, number) if "Step 1" not in planned else "1.0\n```\nno"

    stand_in.write = write
    context = stand_in.quick.model_copy(update={"caps": Caps(kernels=4), "answer_retries": 0})
    result = await aoptimize(stand_in.problem, context)
    assert result.kernels_evaluated == 4 and "4 kernels" in result.stopped


@pytest.mark.parametrize("stage", [Stage.screen, Stage.promote])
async def test_a_round_that_the_wall_time_cut_short_is_finished_under_a_higher_cap(stand_in, stage):
    undisturbed = await aoptimize(stand_in.problem, stand_in.quick)
    hangs = True

    class Slow(type(stand_in.evaluator)):
        async def aevaluate(self, kernel, problem, stage_now=None):
            if hangs and stage_now is stage and kernel.source.count("Step") == 2:
                await asyncio.Event().wait()
            return await super().aevaluate(kernel, problem, stage_now)

    stand_in.evaluator = Slow()
    stand_in.home = stand_in.home.__class__(root=stand_in.home.root.with_name("other"))
    RESOURCES.set(stand_in.resources())
    context = stand_in.quick.model_copy(update={"caps": Caps(wall_s=4)})
    capped = await aoptimize(stand_in.problem, context)
    assert "4 s wall time" in capped.stopped and capped.iterations == 1
    replay = await replayed(stand_in, capped.run_id)
    assert facts(replay) == facts(capped)
    hangs = False
    result = await aresume(capped.run_id, caps=Caps())
    assert facts(result) == facts(undisturbed)


@pytest.mark.parametrize("kernels", [3, 10, 24])
async def test_a_capped_run_replays_with_its_end(stand_in, kernels):
    context = stand_in.quick.model_copy(update={"caps": Caps(kernels=kernels)})
    capped = await aoptimize(stand_in.problem, context)
    replay = await replayed(stand_in, capped.run_id)
    assert facts(replay) == facts(capped)
    with ledger_of(stand_in) as ledger:
        both = [
            [(c.round, c.slot, c.kernel_id, c.latency_ms) for c in ledger.candidates(run)]
            for run in (replay.run_id, capped.run_id)
        ]
    assert both[0] == both[1]
    result = await aresume(capped.run_id, caps=Caps())
    again = await replayed(stand_in, result.run_id)
    assert facts(again) == facts(result)


@pytest.mark.parametrize(
    "trouble", [LedgerError("disk is full"), OSError(28, "No space left"), PoolBroken("no")]
)
async def test_a_round_that_the_machine_failed_in_is_finished_when_it_is_well_again(stand_in, trouble):
    undisturbed = await aoptimize(stand_in.problem, stand_in.quick)
    asked, whole = len(stand_in.calls), Record.keep_kernel

    async def keep_kernel(self, kernel_id, source, dialect):
        if source.count("Step") == 2:
            raise trouble
        await whole(self, kernel_id, source, dialect)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Record, "keep_kernel", keep_kernel)
        failed = await aoptimize(stand_in.problem, stand_in.quick)
    assert failed.iterations == 1 and failed.stopped == " ".join(str(trouble).split())
    with ledger_of(stand_in) as ledger:
        assert ledger.run(failed.run_id).status is RunStatus.FAILED
    result = await aresume(failed.run_id)
    assert facts(result) == facts(undisturbed)
    assert kept(stand_in, result.run_id) == kept(stand_in, undisturbed.run_id)
    assert len(stand_in.calls) == 2 * asked, "a call was made twice"


async def test_plans_that_a_person_has_decided_on_are_not_shown_again(stand_in):
    context = stand_in.quick.model_copy(update={"review_plans": True, "iterations": 2})
    asked = []

    def answer(question):
        asked.append([(question["round"], one["candidate"], one["plan"]) for one in question["plans"]])
        first = question["plans"][0]
        return [{**first, "title": "My own step"}, *question["plans"][2:]]

    undisturbed = await aoptimize(stand_in.problem, context, on_question=answer)
    questions = list(asked)
    asked.clear()
    capped = await aoptimize(
        stand_in.problem, context.model_copy(update={"caps": Caps(kernels=3)}), on_question=answer
    )
    assert capped.iterations == 0
    result = await aresume(capped.run_id, caps=Caps(), on_question=answer)
    assert asked == questions
    assert facts(result) == facts(undisturbed)


async def test_plans_can_be_dropped_and_edited_by_a_person(stand_in):
    context = stand_in.quick.model_copy(update={"review_plans": True, "iterations": 1})
    asked = []

    def answer(question):
        asked.append(question)
        first = question["plans"][0]
        return [{**first, "title": "My own step", "change": "do what I say"}]

    result = await aoptimize(stand_in.problem, context, on_question=answer)
    assert [len(question["plans"]) for question in asked] == [3]
    assert result.kernels_evaluated == 2
    with ledger_of(stand_in) as ledger:
        calls = ledger.model_calls(result.run_id, role="executor")
    assert all("My own step" in call.prompt[1]["content"] for call in calls)


async def test_an_answer_that_makes_no_sense_is_asked_for_again(stand_in):
    context = stand_in.quick.model_copy(update={"review_plans": True, "iterations": 1})
    answers = ["yes", [{"candidate": 9, "plan": 9}], [{"candidate": 0, "plan": 1}]]
    asked = []

    def answer(question):
        asked.append(question.get("complaint"))
        return answers[len(asked) - 1]

    result = await aoptimize(stand_in.problem, context, on_question=answer)
    assert asked[0] is None and all("approve" in complaint for complaint in asked[1:])
    assert len(asked) == 3 and result.kernels_evaluated == 2


async def test_a_question_with_nobody_there_pauses_the_run(stand_in):
    context = stand_in.quick.model_copy(update={"review_plans": True, "iterations": 1})
    with pytest.raises(RunPaused) as paused:
        await aoptimize(stand_in.problem, context)
    assert paused.value.questions[0]["ask"] == "plans"
    with ledger_of(stand_in) as ledger:
        assert ledger.run(paused.value.run_id).status is RunStatus.PAUSED
    result = await aresume(paused.value.run_id, on_question=lambda question: "approve")
    assert result.kernels_evaluated == 6


async def test_an_unknown_problem_is_a_line(stand_in):
    with pytest.raises(RunError, match="unknown problem 'silo': did you mean silu"):
        await aoptimize("silo", stand_in.quick)


async def test_a_baseline_that_fails_is_a_line(stand_in):
    problem = stand_in.problem | {
        "kernel": stand_in.problem["kernel"].replace("latency 1.0", "latency compile_error")
    }
    with pytest.raises(RunError, match="compile error: line 1: err_compile_error"):
        await aoptimize(problem, stand_in.quick)


async def test_a_round_without_a_correct_kernel_keeps_the_frontier(stand_in):
    stand_in.write = lambda parent, planned, number: "incorrect"
    result = await aoptimize(stand_in.problem, stand_in.quick)
    assert result.speedup == 1.0 and result.kernels_correct == 0 and result.iterations == 3


async def test_failures_are_repaired_and_counted_apart(stand_in):
    def write(parent, planned, number):
        return "compile_error" if "latency 1.0" in parent else "0.5"

    stand_in.write = write
    context = RunContext(beam=1, plans=2, samples=1, iterations=1, fixes=2)
    result = await aoptimize(stand_in.problem, context)
    with ledger_of(stand_in) as ledger:
        counts = ledger.counts(result.run_id)
    assert stand_in.calls.count("fixer") == 4
    assert counts.repairs == 4 and result.kernels_evaluated == 2


async def test_memory_off_writes_nothing(stand_in):
    context = stand_in.quick.model_copy(update={"memory": "off"})
    await aoptimize(stand_in.problem, context)
    assert "summarizer" not in stand_in.calls and not stand_in.remembered


async def test_what_helped_is_remembered(stand_in):
    result = await aoptimize(stand_in.problem, stand_in.quick)
    assert stand_in.remembered and all(one.run_id == result.run_id for one in stand_in.remembered)


async def replayed(stand_in, run_id, **changes):
    with ledger_of(stand_in) as ledger:
        context = RunContext.model_validate(ledger.run(run_id).settings | {"replay_of": run_id} | changes)
    before = len(stand_in.calls)
    result = await aoptimize(stand_in.problem, context)
    assert len(stand_in.calls) == before, "a model was asked"
    return result


async def test_a_run_replays_from_the_ledger_alone(stand_in):
    original = await aoptimize(stand_in.problem, stand_in.quick)
    result = await replayed(stand_in, original.run_id)
    assert facts(result) == facts(original)


async def test_a_reviewed_run_replays_with_what_the_person_decided(stand_in):
    context = stand_in.quick.model_copy(update={"review_plans": True})

    def answer(question):
        first = question["plans"][0]
        return [{**first, "title": "My own step"}, *question["plans"][2:]]

    original = await aoptimize(stand_in.problem, context, on_question=answer)
    result = await replayed(stand_in, original.run_id)
    assert facts(result) == facts(original)


async def test_a_replay_of_a_shorter_run_ends_where_the_recording_does(stand_in):
    original = await aoptimize(stand_in.problem, stand_in.quick)
    result = await replayed(stand_in, original.run_id, iterations=5)
    assert "no call r4/planner" in result.stopped
    assert result.best_kernel_id == original.best_kernel_id


async def test_two_runs_at_once_share_a_home(stand_in):
    first, second = await asyncio.gather(
        aoptimize(stand_in.problem, stand_in.quick),
        aoptimize(stand_in.problem, stand_in.quick.model_copy(update={"seed": 7})),
    )
    assert first.iterations == second.iterations == 3 and first.run_id != second.run_id
    with ledger_of(stand_in) as ledger:
        for result in (first, second):
            assert ledger.total_spending(result.run_id).tokens == result.tokens


async def test_a_run_is_worked_on_by_one_process_only(stand_in):
    result = await aoptimize(stand_in.problem, stand_in.quick)
    with stand_in.home.claim_run(result.run_id):
        with pytest.raises(HomeError, match="another process"):
            await aresume(result.run_id)


async def test_ctrl_c_drains_a_run(stand_in):
    told = []

    def press(event):
        told.append(event["event"])
        if told.count("planned") == 1 and event["event"] == "planned":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(RunStopped) as stopped:
        await aoptimize(stand_in.problem, stand_in.quick, on_event=press, handle_signals=True)
    assert "draining" in told and told.count("evaluated") == 6
    result = await aresume(stopped.value.run_id)
    assert result.iterations == 3


async def test_ctrl_c_twice_stops_a_run_at_once(stand_in):
    pressed = []

    def press(event):
        if event["event"] in ("planned", "draining"):
            pressed.append(event["event"])
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(RunStopped) as stopped:
        await aoptimize(stand_in.problem, stand_in.quick, on_event=press, handle_signals=True)
    with ledger_of(stand_in) as ledger:
        assert ledger.run(stopped.value.run_id).status is RunStatus.STOPPED
    undisturbed = await aoptimize(stand_in.problem, stand_in.quick)
    assert facts(await aresume(stopped.value.run_id)) == facts(undisturbed)


async def test_a_person_is_asked_before_more_than_the_soft_cap_is_spent(stand_in):
    context = stand_in.quick.model_copy(
        update={"prices": {"offline": Price(input=1000, output=1000)}, "soft_usd": 0.1}
    )
    asked = []

    def answer(question):
        asked.append(question)
        return "continue" if len(asked) == 1 else "no"

    result = await aoptimize(stand_in.problem, context, on_question=answer)
    assert [question["ask"] for question in asked] == ["budget", "budget"]
    assert "stopped by a person" in result.stopped and result.iterations == 2


async def test_models_that_never_plan_end_the_run(stand_in):
    stand_in.say_nothing = True
    result = await aoptimize(stand_in.problem, stand_in.quick)
    assert "round 1 came to no plan: no usable answer from the planner: empty" in result.stopped
    assert result.iterations == 1


async def test_three_lines_are_enough(stand_in):
    result = await asyncio.to_thread(optimize, stand_in.problem, stand_in.quick)
    assert result.speedup > 1.2


async def test_wall_time_is_a_cap_for_evaluations_too(stand_in):
    started = asyncio.Event()

    class Slow(type(stand_in.evaluator)):
        async def aevaluate(self, kernel, problem, stage=None):
            if "Step" in kernel.source:
                started.set()
                await asyncio.Event().wait()
            return await super().aevaluate(kernel, problem, stage)

    stand_in.evaluator = Slow()
    context = stand_in.quick.model_copy(update={"caps": Caps(wall_s=2)})
    result = await aoptimize(stand_in.problem, context)
    assert started.is_set() and "2 s wall time" in result.stopped
    assert result.wall_s < 4 and result.kernels_evaluated == 0
