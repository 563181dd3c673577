"""A kernel is its text."""

from tools.kernel import Dialect, Kernel


def test_the_same_text_is_the_same_kernel_whatever_the_line_ends() -> None:
    assert Kernel.from_source("a\nb\n") == Kernel.from_source("a\r\nb\r\n")
    assert Kernel.from_source("a").id != Kernel.from_source("b").id
    assert len(Kernel.from_source("a").id) == 16


def test_the_dialect_is_read_off_the_imports() -> None:
    assert Kernel.from_source("import neuronxcc.nki as nki").dialect is Dialect.neuronxcc
    assert Kernel.from_source("from neuronxcc import nki").dialect is Dialect.neuronxcc
    assert Kernel.from_source("import nki\nimport nki.isa").dialect is Dialect.nki
    assert Kernel.from_source("no imports").dialect is Dialect.neuronxcc


def test_a_text_that_is_not_unicode_still_has_a_name() -> None:
    assert Kernel.from_source("\ud800").id


def test_a_kernel_survives_json() -> None:
    kernel = Kernel.from_source("import nki")
    assert Kernel.model_validate_json(kernel.model_dump_json()) == kernel
