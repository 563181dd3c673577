"""What the executor's rules call failing fails as they say, and what they call working works, in the simulator."""

from __future__ import annotations

import re

import pytest

from nodes.answers import blocks
from nodes.prompt import TEMPLATES
from tools.neuroncore import ArraySpec, NKIError, trace

OLDER = """
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.isa as nisa

@nki.jit
def kernel(x):
    out = nl.ndarray((512, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    for whole in nl.affine_range(4):
        nl.store(out[whole * 128 + i_p, i_f], nl.load(x[whole * 128 + i_p, i_f]))
{body}
    return out
"""
NEWER = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((512, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for whole in nl.affine_range(4):
        t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[whole * 128 : (whole + 1) * 128, 0:512])
        nisa.dma_copy(dst=out[whole * 128 : (whole + 1) * 128, 0:512], src=t)
{body}
    return out
"""
FRAMES = {"nki_neuronxcc": OLDER, "nki_nki": NEWER}


def examples(kind):
    """Each example of a kind: its dialect, what it fails with, its lines."""
    found = []
    for dialect in FRAMES:
        parts = re.split(r"(Fails with \w+|Works)(?:, [^\n]*)?:\n", TEMPLATES[dialect])
        for label, after in zip(parts[1::2], parts[2::2], strict=True):
            if label.startswith(kind):
                body = blocks(after)[0][0][1]
                name = f"{dialect}, {body.splitlines()[-1].strip()[:40]}"
                found.append(pytest.param(dialect, label.split()[-1], body, id=name))
    return found


def traced(dialect, body, target):
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    source = FRAMES[dialect].format(body=indented)
    return trace(source, [ArraySpec((512, 512), "float32")], target=target)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize(("dialect", "_", "body"), examples("Works"))
def test_what_works_works(dialect, _, body, target):
    assert traced(dialect, body, target).name == "kernel"


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize(("dialect", "error", "body"), examples("Fails"))
def test_what_fails_fails_as_the_rules_say(dialect, error, body, target):
    with pytest.raises(NKIError) as caught:
        traced(dialect, body, target)
    assert caught.value.name == error


def test_no_example_is_overlooked():
    for dialect in FRAMES:
        fences = len(re.findall(r"^```python$", TEMPLATES[dialect], re.MULTILINE))
        assert fences == sum(one.values[0] == dialect for one in examples("Works") + examples("Fails"))
