from __future__ import annotations

import json

import pytest
from langchain_core.messages import AIMessage
from pydantic import BaseModel

from nodes.answers import Oddity, blocks, read_code, read_fields, reasoning_of

KERNEL = "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n\n\n@nki.jit\ndef kernel(x):\n    return x\n"


class Fields(BaseModel):
    title: str
    change: str
    rewrite: str | None = None


GOOD = {"title": "Widen", "change": "the {tile}", "rewrite": None}


def code(text, **more):
    return read_code(AIMessage(text, **more))


def test_one_fenced_block_is_clean():
    assert code(f"```python\n{KERNEL}```") == read_code(AIMessage(f"```python\n{KERNEL}```"))
    found = code(f"```python\n{KERNEL}```")
    assert found.source == KERNEL and found.oddities == ()


def test_prose_around_a_block_is_cut_away():
    found = code(f"Here it is:\n\n```python\n{KERNEL}```\nGood luck.")
    assert found.source == KERNEL and found.oddities == (Oddity.PROSE_AROUND,)


def test_of_several_blocks_the_last_kernel_counts():
    other = KERNEL.replace("return x", "return 2 * x")
    found = code(f"First\n```python\n{other}```\nthen\n```\npip install\n```\nfinally\n```py\n{KERNEL}```")
    assert found.source == KERNEL and Oddity.SEVERAL_BLOCKS in found.oddities


def test_an_unclosed_fence_runs_to_the_end():
    found = code(f"```python\n{KERNEL}")
    assert found.source == KERNEL and found.oddities == (Oddity.UNCLOSED_FENCE,)


def test_a_bare_kernel_is_taken_from_its_first_import():
    found = code(f"Sure thing.\n{KERNEL}")
    assert found.source == KERNEL and found.oddities == (Oddity.NO_FENCE,)


@pytest.mark.parametrize("content", ["", "   \n", [], [{"type": "text", "text": ""}]])
def test_empty_content_is_empty(content):
    assert code(content).oddities == (Oddity.EMPTY,)


def test_talk_without_code_is_no_code():
    assert code("I cannot do that.").oddities == (Oddity.NO_CODE,)
    assert code("```python\nprint('hello')\n```").source is None


def test_a_cut_off_answer_says_so():
    found = code(f"```python\n{KERNEL}```\nI hope", response_metadata={"finish_reason": "length"})
    assert Oddity.CUT_OFF in found.oddities and found.source == KERNEL


def test_a_kernel_that_was_cut_off_is_none():
    found = code(f"```python\n{KERNEL}", response_metadata={"finish_reason": "length"})
    assert found.source is None and found.oddities == (Oddity.CUT_OFF, Oddity.UNCLOSED_FENCE)


def test_trailing_white_space_does_not_make_another_kernel():
    assert code("```python\n" + KERNEL.replace("\n", "  \n") + "```").source == KERNEL


def test_longer_fences_may_hold_shorter_ones():
    kernel = KERNEL.replace("    return x", '    """\n```\ntext\n```\n"""\n    return x')
    assert code(f"````python\n{kernel}````").source == kernel


def test_content_in_parts_is_joined():
    assert (
        code([{"type": "text", "text": "```python\n"}, {"type": "text", "text": KERNEL + "```"}]).source
        == KERNEL
    )


def fields(text, **more):
    return read_fields(AIMessage(text, **more), Fields)


def test_plain_json_is_clean():
    found = fields(json.dumps(GOOD))
    assert found.value == Fields(**GOOD) and found.oddities == ()


def test_a_tool_call_is_clean():
    found = fields("", tool_calls=[{"name": "Fields", "args": GOOD, "id": "1"}])
    assert found.value == Fields(**GOOD) and found.oddities == ()


@pytest.mark.parametrize(
    ("text", "oddity"),
    [
        (f"```json\n{json.dumps(GOOD)}\n```", Oddity.FENCED_JSON),
        (f"Let me think {{hm}}.\n{json.dumps(GOOD)}\nDone.", Oddity.PROSE_AROUND),
        (f"```json\n{json.dumps(GOOD, indent=2)}", Oddity.UNCLOSED_FENCE),
        ("**Title:** Widen\n**Change:** the {tile}", Oddity.NOT_JSON),
        ("# Title\nWiden\n\n# Change\nthe {tile}\n", Oddity.NOT_JSON),
    ],
)
def test_wrapped_fields_are_found_and_named(text, oddity):
    found = fields(text)
    assert found.value is not None and found.value.title == "Widen" and found.value.change == "the {tile}"
    assert found.oddities == (oddity,)


def test_the_last_object_that_fits_counts():
    draft = {"title": "Draft", "change": "x"}
    assert fields(f"{json.dumps(draft)}\nNo, better:\n{json.dumps(GOOD)}").value == Fields(**GOOD)


@pytest.mark.parametrize(
    ("text", "oddity"),
    [
        ("", Oddity.EMPTY),
        ("no idea", Oddity.NOT_JSON),
        ('{"title": "Widen"}', Oddity.WRONG_FIELDS),
        ('{"title": "Widen", "change": "the', Oddity.NOT_JSON),
    ],
)
def test_unreadable_fields_are_named(text, oddity):
    found = fields(text)
    assert found.value is None and found.oddities == (oddity,)


def test_raw_newlines_in_json_strings_are_forgiven():
    assert fields('{"title": "Widen", "change": "a\nb"}').value.change == "a\nb"


def test_reasoning_is_kept_apart():
    message = AIMessage("x", additional_kwargs={"reasoning_content": "because"})
    assert reasoning_of(message) == "because"


def test_a_fence_with_words_does_not_close_a_block():
    found, unclosed = blocks("```python\na\n```text\nb\n```\n")
    assert found == [("python", "a\n```text\nb\n")] and not unclosed
