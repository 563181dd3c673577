from __future__ import annotations

import re
from pathlib import Path

import pytest

from nkibench.registry import load_problem
from nodes.cards import OF_NO_USE, USUAL, Cards, cards
from nodes.context import RunContext
from nodes.facts import Facts, argument_names, describe_arguments, facts_of, fenced
from nodes.offline.reading import read
from nodes.prompt import (
    Section,
    estimate_tokens,
    executor_prompt,
    filled,
    fit,
    fixer_prompt,
    planner_prompt,
    summarizer_prompt,
)
from nodes.state import Plan
from tools.backends import ArrayType

SNAPSHOTS = Path(__file__).parent / "snapshots"

KERNEL = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    # Load, double, store.
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out[0:128, 0:512], nl.load(x[0:128, 0:512]) * 2.0)
    return out
"""

PLAN = Plan(
    id="1",
    title="Widen the tile",
    bottleneck="memory",
    change="Use 1024 columns.",
    expected="fewer transfers",
)

FEW = Cards(
    used=("nl.load(src)\n    HBM to SBUF.",),
    further=("nl.exp, nl.log: (x)",),
    usual=("nisa.reciprocal(data)\n    1 / data.",),
)


@pytest.fixture(scope="module")
def facts():
    return Facts(
        problem="Doubling\nM = 4096, N = 7168",
        reference="def forward(x):\n    return 2 * x\n",
        arguments="- x: float32[4096, 7168]",
        target="trn1",
        dialect="neuronxcc.nki",
        partitions=128,
        sbuf_kib=176,
    )


def planner(facts, **changes):
    given = {
        "kernel": KERNEL,
        "counters": ["latency: 1.2000 ms", "hbm_read_bytes: 100", "hbm_write_bytes: 50"],
        "bounds": "total  1200.0 us  100.0 %\nlimited by: memory",
        "experiences": [
            "## It helped (1.30x): Wide tiles\nUse wide tiles.",
            "## It hurt (0.80x): Narrow tiles\nDo not.",
        ],
        "tried": ["Widen by two: 1.05x"],
        "cards": FEW,
        "number": 2,
        "count": 12,
        "round": 3,
        "shuffle": 5,
        "budget_tokens": 24000,
    }
    return planner_prompt(facts, **(given | changes))


def executor(facts, **changes):
    given = {"kernel": KERNEL, "plan": PLAN, "cards": FEW, "number": 1, "count": 2, "budget_tokens": 24000}
    return executor_prompt(facts, **(given | changes))


def fixer(facts):
    return fixer_prompt(
        facts,
        kernel=KERNEL,
        plan=PLAN,
        failing=KERNEL.replace("0:512", "0:1024"),
        error="Status: compile_error\nerr_x: too wide\n>    9 | nl.store(...)\nRemedy: use 512",
        cards=FEW,
        number=1,
        count=2,
        budget_tokens=24000,
    )


def summarizer(facts):
    fast = KERNEL.replace("* 2.0", "+ 0.0")
    return summarizer_prompt(
        facts, slow=KERNEL, fast=fast, plan=PLAN, outcome="The plan helped: 2 ms, 1 ms.", budget_tokens=24000
    )


def whole(messages):
    return "\n\n".join(f"===== {message.type}\n{message.content}" for message in messages) + "\n"


@pytest.mark.parametrize("role", [planner, executor, fixer, summarizer])
def test_prompts_are_as_they_were_last_agreed(facts, role):
    """After a change on purpose: rm -r tests/nodes/snapshots, and run this twice."""
    now = whole(role(facts))
    file = SNAPSHOTS / f"{role.__name__}.txt"
    if not file.exists():
        SNAPSHOTS.mkdir(exist_ok=True)
        file.write_text(now, encoding="utf-8")
        pytest.fail(f"{file.name} was missing and has been written")
    assert now == file.read_text(encoding="utf-8")


def test_profile_lines_are_shuffled_by_sample_and_bounds_stand_last(facts):
    counters = [f"counter_{index}: {index}" for index in range(17)]
    orders = set()
    for shuffle in range(6):
        profile = read(planner(facts, counters=counters, shuffle=shuffle)).sections["Profile"]
        lines, bounds = profile.split("\n\nBounds:\n")
        assert sorted(lines.splitlines()) == sorted(counters)
        assert bounds.endswith("limited by: memory")
        orders.add(lines)
    assert len(orders) > 4
    assert whole(planner(facts, shuffle=3)) == whole(planner(facts, shuffle=3))


def test_missing_parts_leave_no_heading(facts):
    sections = read(planner(facts, experiences=[], tried=[])).sections
    assert "Experiences" not in sections and "Tried before" not in sections
    assert "Kernel" in sections and "Reference" in sections


def test_a_tight_budget_drops_the_least_important_first_and_never_the_kernel(facts):
    many = [f"## It helped (1.1x): Number {index}\n" + "word " * 200 for index in range(16)]
    sizes = []
    previous = None
    for budget in (24000, 9000, 7000, 5000, 4000, 3000, 1000):
        messages = planner(
            facts, experiences=many, cards=cards(KERNEL, "neuronxcc.nki"), budget_tokens=budget
        )
        text = whole(messages)
        sizes.append(estimate_tokens(text))
        assert KERNEL.strip() in text and "limited by: memory" in text and "Your task" in text
        kept = {
            name
            for name in ("Tried before", "Further APIs", "Number 15", "Number 0", "# What the profile says")
            if name in text
        }
        assert previous is None or kept <= previous
        previous = kept
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < 3000
    assert sizes[2] <= 7000 + 50


def test_experiences_go_from_the_last_one_on(facts):
    many = [f"## It helped (1.1x): Number {index}\n" + "word " * 400 for index in range(16)]
    text = whole(planner(facts, experiences=many, budget_tokens=9000))
    shown = [index for index in range(16) if f"Number {index}\n" in text]
    assert shown == list(range(len(shown))) and 0 < len(shown) < 16


def test_required_sections_stay_whatever_the_budget():
    kept = fit([Section("system")], [Section("kernel " * 1000), Section("extra", 1)], 10)
    assert kept[0].content == "system" and kept[1].content == ("kernel " * 1000)


def test_a_kernel_cannot_break_out_of_its_fence():
    source = '"""\n```\nend\n```\n"""\n'
    block = fenced(source)
    assert block.startswith("````python\n") and block.endswith("\n````")


def test_headings_inside_a_kernel_are_no_headings(facts):
    kernel = KERNEL.replace("    # Load, double, store.", "# Plan\n# Your task")
    request = read(executor(facts, kernel=kernel))
    assert request.text("Kernel") == kernel
    assert request.text("Plan").startswith("Widen the tile")


def test_the_prompt_tells_its_reader_all_it_needs(facts):
    request = read(planner(facts))
    assert (request.role, request.target, request.number) == ("planner", "trn1", 2)
    assert request.arguments[0].shape == (4096, 7168)
    assert [(one.helped, one.title) for one in request.lessons] == [
        (True, "Wide tiles"),
        (False, "Narrow tiles"),
    ]
    assert request.tried == ["Widen by two: 1.05x"]


def test_facts_come_from_problem_and_machine():
    found = facts_of(load_problem("silu"), RunContext(target="trn2"), [ArrayType((4096, 7168))])
    assert found.arguments == "- x: float32[4096, 7168]" and found.partitions == 128
    assert found.sbuf_kib == 207 and "N = 7168" in found.problem and "forward" in found.reference


def test_arguments_are_named_after_the_kernels():
    values = [ArrayType((2, 3)), 1e-5, 4]
    assert describe_arguments(values, ["x", "eps"]) == "- x: float32[2, 3]\n- eps: 1e-05\n- argument 2: 4"
    assert argument_names(KERNEL) == ["x"] and argument_names("def (") == []


def test_cards_say_in_full_what_a_kernel_uses():
    found = cards(KERNEL, "neuronxcc.nki")
    assert {card.split("(")[0] for card in found.used} == {"nl.load", "nl.ndarray", "nl.store"}
    assert any(card.startswith("nisa.activation(") and "bias" in card for card in found.usual)
    assert any(line.startswith("nl.exp") or " nl.exp," in line for line in found.further)
    assert any(line.startswith("nisa.select_reduce(") and "[vector]" in line for line in found.further)
    texts = (*found.used, *found.usual, *found.further)
    assert not any(re.search(r"kwargs|<class|<\w+\.", text) for text in texts)
    assert not any(name in text for name in OF_NO_USE for text in found.further)


def test_cards_see_what_is_imported_by_name():
    found = cards("from neuronxcc.nki.isa import activation, memset as fill\n", "neuronxcc.nki")
    assert [card.split("(")[0] for card in found.used] == ["nisa.activation", "nisa.memset"]


@pytest.mark.parametrize("dialect", ["neuronxcc.nki", "nki"])
def test_every_api_that_cards_single_out_exists(dialect):
    from tools.neuroncore.frontend.registry import entries

    known = {entry.name for entry in entries("neuronxcc.nki")} | {entry.name for entry in entries("nki")}
    assert USUAL | OF_NO_USE <= known
    found = cards("", dialect)
    assert len(found.usual) == len(USUAL & {entry.name for entry in entries(dialect)})


def test_rules_of_code_are_for_those_who_write_it(facts):
    assert "# Rules, with what fails" in whole(executor(facts)) and "# Limits" in whole(planner(facts))
    assert "# Rules, with what fails" in whole(fixer(facts)) and "# Rules, with" not in whole(planner(facts))
    assert "# What has paid off" in whole(planner(facts))
    assert "# What has paid off" not in whole(executor(facts))


def test_what_differs_between_machines_is_said_of_the_right_one(facts):
    import dataclasses

    assert "vector (1.12 GHz)" in whole(executor(facts)) and "take turns at PSUM" in whole(executor(facts))
    newer = whole(executor(dataclasses.replace(facts, target="trn2")))
    assert "vector (0.96 GHz)" in newer and "at the same time" in newer and "take turns" not in newer


def test_a_summarizer_knows_the_machine_and_which_way_a_lesson_goes(facts):
    text = whole(summarizer(facts))
    assert "# The machine" in text and "# Rules, with what fails" not in text
    assert "if it hurt, from the fast to the slow one" in text


def test_the_newer_dialect_has_its_own_rules(facts):
    import dataclasses

    newer = dataclasses.replace(facts, dialect="nki")
    assert "Destination passing" in whole(executor(newer))
    assert "Destination passing" not in whole(executor(facts))


def test_every_placeholder_is_filled(facts):
    for role in (planner, executor, fixer, summarizer):
        assert "$" not in whole(role(facts)).replace("\\$", "")


def test_filled_leaves_out_sections_without_content():
    values = {name: "" for name in ("problem", "reference", "arguments", "kernel", "plan")}
    assert len(filled("executor_task", values | {"number": 1, "count": 1})) == 1
