"""What NKI documents and the simulator has not is refused as that, with the reason; other names as unknown."""

from __future__ import annotations

import pytest

from tools.neuroncore.frontend import unsimulated
from tools.neuroncore.frontend.modules import neuron_modules

from .running import BETA1, LATER, refusal

CALLED = [(module, name) for module, names in unsimulated.FUNCTIONS.items() for name in names]
VALUES = [(module, name) for module, names in unsimulated.VALUES.items() for name in names]


def use(module: str, expression: str) -> str:
    package, _, part = module.rpartition(".")
    first = f"from {package} import {part} as m" if package else f"import {module} as m"
    return f"{first}\ny = {expression}\nreturn y"


@pytest.mark.parametrize(("module", "name"), CALLED)
def test_an_unsimulated_function_is_refused_where_it_is_called(module: str, name: str) -> None:
    header = LATER if module.startswith("nki") else BETA1
    error = refusal(use(module, f"m.{name}(x, axis=1)"), header=header)
    assert error.name == "unsupported_api" and error.line
    assert f"{module}.{name} is not simulated" in error.message and error.remedy


@pytest.mark.parametrize(("module", "name"), VALUES)
def test_an_unsimulated_value_is_refused_where_it_is_named(module: str, name: str) -> None:
    header = LATER if module.startswith("nki") else BETA1
    error = refusal(use(module, f"m.{name}"), header=header)
    assert error.name == "unsupported_api" and error.line
    assert f"{module}.{name} is not simulated" in error.message and error.remedy


@pytest.mark.parametrize(("module", "name"), [*CALLED, *VALUES])
def test_nothing_that_exists_is_called_unsimulated(module: str, name: str) -> None:
    modules = neuron_modules("nki" if module.startswith("nki") else "neuronxcc.nki")
    found = vars(modules[module]).get(name)
    assert found is None or found.__module__ == unsimulated.__name__


@pytest.mark.parametrize("kind", ["engine.tensr", "reduce_cmd.load_reduce", "dge_mode.hardware"])
def test_a_member_that_an_enumeration_has_not_is_refused_with_those_it_has(kind: str) -> None:
    error = refusal(f"y = nisa.{kind}\nreturn y")
    assert error.name == "unknown_api" and error.line
    assert error.message == f"nisa.{kind.partition('.')[0]} has no `{kind.partition('.')[2]}`"
    assert (error.remedy or "").startswith("it has ")


def test_annotations_may_name_the_tensors_and_memories_of_the_later_package() -> None:
    body = """
@nki.jit
def kernel(x: nl.NkiTensor) -> nl.NkiTensor:
    kind: nl.DType = nl.float32
    out = nl.ndarray(x.shape, dtype=kind, buffer=nl.MemoryRegion.shared_hbm)
    t = nl.ndarray(x.shape, dtype=kind, buffer=nl.MemoryRegion.sbuf)
    assert nisa.get_nc_sub_version() == 0
    nisa.dma_copy(dst=t, src=x)
    nisa.dma_copy(dst=out, src=t)
    return out
"""
    from tools.neuroncore import ArraySpec

    from .running import ops, traced

    assert ops(traced(body, ArraySpec((128, 4)), header=LATER)) == ["nl.load", "nl.store"]
