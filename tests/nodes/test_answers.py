from __future__ import annotations

import json
import time

import pytest
from langchain_core.messages import AIMessage
from pydantic import BaseModel

from nodes.answers import Oddity, blocks, complaint, read_code, read_fields, reasoning_of, same_program
from nodes.reasoning import ReasoningChatOpenAI
from tools import gate

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


# ---- kernels as models really send them ----

HEADED = '''import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    """Doubles."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out[0:128, 0:512], nl.load(x[0:128, 0:512]) * 2.0)
    return out
'''
PARENT = HEADED.replace("2.0", "(1.0 + 1.0)")
DRAFT = HEADED.replace("2.0", "3.0")
IMPORTS, BODY = HEADED.split("\n\n\n")
FRAGMENT = "    t = nl.load(x[0:128, 0:512])\n"


def block(source, tag="python", fence="```"):
    return f"{fence}{tag}\n{source}{fence}"


def marked(prefix):
    return "".join(f"{prefix}{line}\n" for line in block(HEADED).split("\n"))


@pytest.mark.parametrize(
    ("text", "oddities"),
    [
        pytest.param(block(HEADED, "python3"), (), id="tagged python3"),
        pytest.param(block(HEADED, "nki"), (), id="tagged nki"),
        pytest.param(block(HEADED, ""), (), id="without a tag"),
        pytest.param(block(HEADED, 'python title="kernel.py"'), (), id="tagged with attributes"),
        pytest.param(block(HEADED, fence="~~~"), (), id="between tildes"),
        pytest.param(block(HEADED).replace("\n", "\r\n"), (), id="with Windows line ends"),
        pytest.param("\ufeff" + block(HEADED).replace("    ", "\u00a0" * 4), (), id="with other spaces"),
        pytest.param(
            block(HEADED).removesuffix("\n```") + "```", (Oddity.PROSE_AROUND,), id="fence on a line of code"
        ),
        pytest.param("Here: " + block(HEADED), (Oddity.PROSE_AROUND,), id="fence after prose"),
        pytest.param("1. The kernel:\n" + marked("   "), (Oddity.PROSE_AROUND,), id="in a list"),
        pytest.param(marked("> "), (), id="quoted"),
        pytest.param(
            f"## Change\n{block(FRAGMENT)}\n## Kernel\n{block(HEADED)}\n",
            (Oddity.SEVERAL_BLOCKS,),
            id="after a fragment",
        ),
        pytest.param(
            f"{block(HEADED)}\nThe change is this:\n{block(FRAGMENT)}",
            (Oddity.SEVERAL_BLOCKS,),
            id="before a fragment",
        ),
        pytest.param(
            f"{block(HEADED)}\nIn short:\n" + block("@nki.jit\ndef kernel(x):\n    ...\n"),
            (Oddity.SEVERAL_BLOCKS,),
            id="before a sketch of itself",
        ),
        pytest.param(
            f"{block(HEADED)}\nwhere\n" + block("def kernel(x):\n    t = nl.load(x[0:128, 0:512])\n"),
            (Oddity.SEVERAL_BLOCKS,),
            id="before an excerpt of itself",
        ),
        pytest.param(
            f"New:\n{block(HEADED)}\nOld, for comparison:\n{block(PARENT)}",
            (Oddity.SEVERAL_BLOCKS,),
            id="before the old one",
        ),
        pytest.param(
            f"<|channel|>analysis<|message|>{block(DRAFT)}<|end|><|start|>assistant<|channel|>final<|message|>"
            f"{block(HEADED)}<|return|>",
            (Oddity.CHAT_MARKERS,),
            id="in the final channel",
        ),
        pytest.param(
            f"<|channel|>final<|message|>{HEADED}<|return|>",
            (Oddity.CHAT_MARKERS, Oddity.NO_FENCE),
            id="bare",
        ),
        pytest.param(
            f"analysisHmm.assistantfinal{block(HEADED)}", (Oddity.CHAT_MARKERS,), id="channels run together"
        ),
        pytest.param(f"{block(HEADED)}<|im_end|>", (Oddity.CHAT_MARKERS,), id="before an end mark"),
        pytest.param(
            f"{block(HEADED)}<｜end▁of▁sentence｜>", (Oddity.CHAT_MARKERS,), id="before a wide end mark"
        ),
        pytest.param(
            f"<|start_header_id|>assistant<|end_header_id|>\n\n{block(HEADED)}<|eot_id|>",
            (Oddity.CHAT_MARKERS,),
            id="after a header",
        ),
        pytest.param(f"<|begin_of_box|>{block(HEADED)}<|end_of_box|>", (Oddity.CHAT_MARKERS,), id="in a box"),
        pytest.param(
            f"◁think▷{block(DRAFT)}◁/think▷{block(HEADED)}",
            (Oddity.THOUGHT_ALOUD,),
            id="after another thought",
        ),
        pytest.param(
            f"<tool_call>\n<function=verify>\n<parameter=source>\n{HEADED}</parameter>\n</function>\n</tool_call>",
            (Oddity.NO_FENCE,),
            id="in a call in words",
        ),
        pytest.param(
            f"<think>\n{block(DRAFT)}\n</think>\n{block(HEADED)}",
            (Oddity.THOUGHT_ALOUD,),
            id="after a thought",
        ),
        pytest.param(
            f"So.\n```python\n{DRAFT}\n</think>\n{block(HEADED)}",
            (Oddity.THOUGHT_ALOUD,),
            id="after half a thought",
        ),
        pytest.param(f"{HEADED}\nThis kernel doubles.\n", (Oddity.NO_FENCE,), id="bare before prose"),
        pytest.param(f"<code>\n{HEADED}</code>", (Oddity.NO_FENCE,), id="between tags"),
        pytest.param(json.dumps({"code": HEADED}), (Oddity.CODE_IN_JSON,), id="in JSON"),
        pytest.param(
            "```json\n" + json.dumps({"kernel": block(HEADED)}) + "\n```",
            (Oddity.CODE_IN_JSON,),
            id="in fenced JSON",
        ),
        pytest.param(
            block(HEADED.replace('"""', "“““", 1).replace('"""', "”””")), (Oddity.GARBLED,), id="smart quotes"
        ),
        pytest.param(block(HEADED.replace('"', "&quot;")), (Oddity.GARBLED,), id="HTML entities"),
        pytest.param(
            block(HEADED.rstrip("\n").replace("\n", "\\n") + "\n"), (Oddity.GARBLED,), id="escaped line ends"
        ),
        pytest.param(
            block("".join(f"{n:3d} | {line}\n" for n, line in enumerate(HEADED.splitlines(), 1))),
            (Oddity.GARBLED,),
            id="line numbers",
        ),
        pytest.param(
            block(
                HEADED
                + "\n\nif __name__ == '__main__':\n    import numpy as np\n    kernel(np.ones((128, 512)))\n"
            ),
            (Oddity.TRIMMED,),
            id="with a main part",
        ),
        pytest.param(
            block(
                f"import torch\n{HEADED}\n\ndef test():\n    return kernel(torch.ones(1))\n\n\nprint(test())\n"
            ),
            (Oddity.TRIMMED,),
            id="with a test",
        ),
        pytest.param(
            block("import torch\nimport time, os\n" + HEADED), (Oddity.TRIMMED,), id="with idle imports"
        ),
        pytest.param(block(BODY), (Oddity.COMPLETED,), id="without imports"),
        pytest.param(block(HEADED.replace("@nki.jit\n", "")), (Oddity.COMPLETED,), id="without decorator"),
        pytest.param(
            f"{block(IMPORTS)}\nand\n{block(BODY)}",
            (Oddity.SEVERAL_BLOCKS, Oddity.COMPLETED),
            id="with imports in a block of their own",
        ),
        pytest.param(
            "```diff\n--- a/kernel.py\n+++ b/kernel.py\n@@ -8,3 +8,3 @@\n"
            "     out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
            "-    nl.store(out[0:128, 0:512], nl.load(x[0:128, 0:512]) * (1.0 + 1.0))\n"
            "+    nl.store(out[0:128, 0:512], nl.load(x[0:128, 0:512]) * 2.0)\n     return out\n```",
            (Oddity.PATCH,),
            id="as a diff",
        ),
        pytest.param(
            "*** Begin Patch\n*** Update File: kernel.py\n@@ def kernel(x):\n"
            "-    nl.store(out[0:128, 0:512], nl.load(x[0:128, 0:512]) * (1.0 + 1.0))\n"
            "+    nl.store(out[0:128, 0:512], nl.load(x[0:128, 0:512]) * 2.0)\n*** End Patch\n",
            (Oddity.PATCH,),
            id="as a patch",
        ),
        pytest.param(
            "<<<<<<< SEARCH\n    nl.store(out[0:128, 0:512], nl.load(x[0:128, 0:512]) * (1.0 + 1.0))\n=======\n"
            "    nl.store(out[0:128, 0:512], nl.load(x[0:128, 0:512]) * 2.0)\n>>>>>>> REPLACE\n",
            (Oddity.PATCH,),
            id="as search and replace",
        ),
    ],
)
def test_a_kernel_is_read_however_it_is_wrapped(text, oddities):
    found = read_code(AIMessage(text), PARENT)
    assert found.source is not None and same_program(found.source, HEADED)
    assert gate.inspect(found.source) == []
    assert found.oddities == oddities


@pytest.mark.parametrize(
    ("text", "oddity"),
    [
        pytest.param("I'm sorry, but I can't help with that.", Oddity.NO_CODE, id="a refusal"),
        pytest.param(block(PARENT), Oddity.UNCHANGED, id="the old kernel"),
        pytest.param(
            block(PARENT.replace('"""Doubles."""', "# Much faster.")),
            Oddity.UNCHANGED,
            id="the old kernel, praised",
        ),
        pytest.param(
            block(HEADED.replace("    return out", "    # ... rest of the kernel unchanged")),
            Oddity.ELIDED,
            id="a comment",
        ),
        pytest.param(block("@nki.jit\ndef kernel(x):\n    ...\n"), Oddity.ELIDED, id="dots"),
        pytest.param(block(HEADED.replace("    return out\n", "")), Oddity.ELIDED, id="no end"),
        pytest.param(f"```python\n{HEADED[:-40]}", Oddity.UNCLOSED_FENCE, id="half a kernel"),
        pytest.param(f"<think>\n{block(DRAFT)}\n</think>\nI give up.", Oddity.NO_CODE, id="only a thought"),
        pytest.param(
            "```diff\n@@\n-    not there\n+    new\n```", Oddity.PATCH, id="a diff of something else"
        ),
        pytest.param(
            block("import numpy as np\n\n\ndef forward(x):\n    return 2 * x\n"), Oddity.NO_CODE, id="NumPy"
        ),
    ],
)
def test_what_is_no_kernel_is_counted_by_kind(text, oddity):
    found = read_code(AIMessage(text), PARENT)
    assert found.source is None and found.oddities[-1] is oddity


def test_of_what_was_wrong_the_most_telling_is_told():
    assert "length" in complaint((Oddity.THOUGHT_ALOUD, Oddity.CUT_OFF, Oddity.EMPTY))
    assert "every line" in complaint((Oddity.SEVERAL_BLOCKS, Oddity.ELIDED))
    assert complaint(()) == "it could not be read"


def test_a_thought_that_was_cut_off_holds_no_answer():
    found = code(f"<think>\n{block(DRAFT)}\nand", response_metadata={"finish_reason": "length"})
    assert found.source is None and Oddity.CUT_OFF in found.oddities


def test_an_answer_that_a_server_took_for_reasoning_is_read():
    found = code("", additional_kwargs={"reasoning_content": block(HEADED)})
    assert found.source == HEADED and found.oddities == (Oddity.IN_REASONING,)


@pytest.mark.parametrize("indent", ["", "    "])
def test_a_fence_inside_a_docstring_ends_no_kernel(indent):
    kernel = HEADED.replace(
        '"""Doubles."""', f'"""Doubles.\n\n{indent}```python\n{indent}kernel(x)\n{indent}```\n    """'
    )
    assert code(block(kernel)).source == kernel


def test_a_kernel_with_a_mistake_in_its_grammar_goes_on_to_the_fixer():
    broken = HEADED.replace("return out", "return out)")
    assert code(block(broken)).source == broken


def test_customary_names_bring_their_imports():
    source = HEADED.replace("import neuronxcc.nki.language as nl\n", "").replace("* 2.0", "* np.float32(2.0)")
    found = code(block('"""A kernel."""\n' + source))
    assert found.source.startswith(
        '"""A kernel."""\nimport neuronxcc.nki.language as nl\nimport numpy as np\nimport neuronxcc.nki as nki\n'
    )
    assert found.oddities == (Oddity.COMPLETED,) and gate.inspect(found.source) == []
    later = "import nki\n" + BODY
    assert "import nki.language as nl" in code(block(later)).source


def test_what_the_kernel_needs_is_never_trimmed():
    source = "import torch\n" + HEADED.replace("* 2.0", "* torch.pi")
    assert code(block(source)).source == source


def test_renamed_kernels_and_helpers_are_left_alone():
    for source in (
        HEADED.replace("def kernel", "def kernel_v2"),
        HEADED.replace("@nki", "def two():\n    return 2\n\n\n@nki"),
    ):
        found = read_code(AIMessage(block(source)), PARENT)
        assert found.source == source and found.oddities == ()


def test_a_kernel_used_by_the_asked_one_does_not_take_its_place():
    helper = "\n\n@nki.jit\ndef double(t):\n    return t * 2.0\n"
    source = HEADED.replace("nl.load(x[0:128, 0:512]) * 2.0", "double(nl.load(x[0:128, 0:512]))") + helper
    found = read_code(AIMessage(block(source)), PARENT)
    assert gate.kernel_names(found.source) == ["double", "kernel"] and found.oddities == (Oddity.COMPLETED,)


def test_of_two_versions_in_one_file_the_last_is_the_answer():
    source = PARENT + "\n\n" + BODY.replace("def kernel", "def kernel_v2")
    assert gate.kernel_names(read_code(AIMessage(block(source)), PARENT).source)[-1] == "kernel_v2"


# ---- fields as models really send them ----

SPOKEN = {"title": "Widen", "change": 'the {tile} "x" of a\'s', "rewrite": None}
STRICT = json.dumps(SPOKEN)
PRETTY = json.dumps(SPOKEN, indent=2)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(PRETTY.replace("null\n", "null,\n"), id="trailing comma"),
        pytest.param(PRETTY.replace('  "change"', '  // why\n  "change"'), id="line comment"),
        pytest.param(PRETTY.replace('  "change"', '  # why\n  "change"'), id="Python comment"),
        pytest.param("{/* why */" + STRICT[1:], id="block comment"),
        pytest.param(repr(SPOKEN), id="Python literal"),
        pytest.param(repr(SPOKEN).replace("None", "null"), id="single quotes"),
        pytest.param(STRICT.replace("null", "None"), id="None"),
        pytest.param(STRICT.replace("null", "NaN"), id="NaN"),
        pytest.param(json.dumps(STRICT), id="encoded twice"),
        pytest.param(json.dumps([SPOKEN, SPOKEN | {"title": "Second best"}]), id="list"),
        pytest.param(json.dumps({"plan": SPOKEN}), id="wrapper"),
        pytest.param(json.dumps({"name": "Fields", "arguments": SPOKEN}), id="call in words"),
        pytest.param(json.dumps({"name": "Fields", "arguments": STRICT}), id="call with encoded arguments"),
        pytest.param(json.dumps({key.title(): value for key, value in SPOKEN.items()}), id="capitals"),
        pytest.param(STRICT.replace('\\"', '"'), id="quotes not escaped"),
        pytest.param(STRICT[:-1], id="no closing brace"),
        pytest.param(
            "{" + STRICT[1:].replace('"title"', "title").replace('"change"', "change"), id="bare names"
        ),
    ],
)
def test_loose_json_is_read_and_counted(text):
    found = fields(text)
    assert found.value == Fields(**SPOKEN) and found.oddities[0] in (Oddity.LOOSE_JSON, Oddity.PROSE_AROUND)


@pytest.mark.parametrize(
    ("text", "oddities"),
    [
        (f"<think>{json.dumps(SPOKEN | {'title': 'Draft'})}</think>{STRICT}", (Oddity.THOUGHT_ALOUD,)),
        (f"<|channel|>final <|constrain|>json<|message|>{STRICT}<|return|>", (Oddity.CHAT_MARKERS,)),
        (f"<|channel|>commentary to=functions.Fields <|message|>{STRICT}<|call|>", (Oddity.CHAT_MARKERS,)),
        (f"Plan:\n```json\n{PRETTY}\n```\nIt is {{good}}.", (Oddity.PROSE_AROUND,)),
        (
            "{&quot;title&quot;: &quot;Widen&quot;, &quot;change&quot;: &quot;the tile&quot;}",
            (Oddity.LOOSE_JSON,),
        ),
        ("{“title”: “Widen”, “change”: “the tile”}", (Oddity.LOOSE_JSON,)),
        ("1. **Title**: Widen\n2. **Change**: the tile", (Oddity.NOT_JSON,)),
        ("title: Widen\nchange: |\n  the tile\n", (Oddity.NOT_JSON,)),
    ],
)
def test_fields_are_read_however_they_are_wrapped(text, oddities):
    found = fields(text)
    assert found.value is not None and found.value.title == "Widen" and "tile" in found.value.change
    assert found.oddities == oddities


def test_a_list_where_text_was_asked_for_becomes_lines():
    assert fields(json.dumps({"title": "Widen", "change": ["a", {"b": 1}]})).value.change == "a\nb: 1"


@pytest.mark.parametrize(
    "message",
    [
        AIMessage(
            "", invalid_tool_calls=[{"name": "Fields", "args": STRICT[:-1] + ",}", "id": "1", "error": None}]
        ),
        AIMessage("", tool_calls=[{"name": "Fields", "args": {"plan": STRICT}, "id": "1"}]),
        AIMessage("", additional_kwargs={"function_call": {"name": "Fields", "arguments": STRICT}}),
        AIMessage("", additional_kwargs={"reasoning_content": f"So.\n{STRICT}"}),
    ],
)
def test_fields_are_found_wherever_servers_put_them(message):
    assert read_fields(message, Fields).value == Fields(**SPOKEN)


def test_a_required_field_that_was_cut_off_is_asked_for_again():
    found = fields('{"title": "Widen", "change": "the t', response_metadata={"finish_reason": "length"})
    assert found.value is None and Oddity.CUT_OFF in found.oddities


@pytest.mark.parametrize(
    "text",
    [
        "{" * 20000,
        '{"a":' * 3000,
        "{'a'" * 4000,
        "```\n" * 3000,
        "@nki.jit\n" * 3000,
        "@nki.jit\n" + "(" * 20000,
    ],
    ids=["braces", "nested objects", "open strings", "fences", "decorators", "brackets"],
)
def test_degenerate_answers_are_given_up_soon(text):
    began = time.perf_counter()
    assert fields(text).value is None and code(text).source is None
    assert time.perf_counter() - began < 2


def test_arguments_of_a_tool_call_may_come_as_an_object():
    model = ReasoningChatOpenAI(model="m", api_key="k")
    call = {"id": "1", "type": "function", "function": {"name": "Fields", "arguments": SPOKEN}}
    response = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
    message = model._create_chat_result(response).generations[0].message
    assert read_fields(message, Fields).value == Fields(**SPOKEN)
