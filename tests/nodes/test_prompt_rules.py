"""What the executor's rules call failing fails, and what they call working works, in the simulator's front end."""

from __future__ import annotations

import re

import pytest

from nodes.answers import blocks
from nodes.prompt import TEMPLATES
from tools.neuroncore import ArraySpec, NKIError, trace

FRAME = """
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


def examples(word):
    text = TEMPLATES["nki_neuronxcc"]
    parts = re.split(r"(Fails|Works):\n", text)
    return [
        blocks(after)[0][0][1] for label, after in zip(parts[1::2], parts[2::2], strict=True) if label == word
    ]


def traced(body):
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    return trace(FRAME.format(body=indented), [ArraySpec((512, 512), "float32")], target="trn1")


@pytest.mark.parametrize("body", examples("Works"))
def test_what_works_works(body):
    assert traced(body).name == "kernel"


@pytest.mark.parametrize("body", examples("Fails"))
def test_what_fails_fails(body):
    with pytest.raises(NKIError):
        traced(body)
