from pathlib import Path

import numpy as np
import pytest

from nkibench import InvalidReference, Reference
from nkibench.reference import integer_constants

DOUBLE = """
import numpy as np

M = 4
N = 8

def get_inputs():
    return [np.random.normal(size=(M, N)).astype(np.float32), 0.5]

def forward(x, s):
    return x * s

def transform_to_nki_inputs(inputs):
    return [np.reshape(inputs[0], (2, M // 2, N)), inputs[1]]

def transform_nki_outputs(outputs, reference):
    if not isinstance(outputs, tuple):
        outputs = (outputs,)
    references = reference if isinstance(reference, tuple) else (reference,)
    return [np.reshape(o, r.shape) for o, r in zip(outputs, references)]
"""

MINIMAL = """
import numpy as np

def get_inputs():
    return [np.random.rand(3, 2), np.random.rand(3, 2)]

def forward(a, b):
    return a + b, a - b
"""


def test_the_same_seed_gives_the_same_inputs_and_another_one_others() -> None:
    reference = Reference.load(DOUBLE)
    first, again, other = (reference.inputs(seed)[0] for seed in (0, 0, 21))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_drawing_inputs_leaves_the_global_random_state_alone() -> None:
    np.random.seed(7)
    expected = np.random.rand()
    np.random.seed(7)
    Reference.load(DOUBLE).inputs(0)
    assert np.random.rand() == expected


def test_constants_are_replaced_for_all_functions() -> None:
    reference = Reference.load(DOUBLE, {"M": 6})
    inputs = reference.inputs(0)
    assert inputs[0].shape == (6, 8)
    assert reference.to_nki(inputs)[0].shape == (2, 3, 8)


def test_two_loads_of_one_file_do_not_share_constants() -> None:
    small, large = Reference.load(DOUBLE, {"M": 2}), Reference.load(DOUBLE, {"M": 10})
    assert small.inputs(0)[0].shape == (2, 8)
    assert large.inputs(0)[0].shape == (10, 8)


def test_scalars_pass_through_to_the_kernel() -> None:
    reference = Reference.load(DOUBLE)
    assert reference.to_nki(reference.inputs(0))[1] == 0.5


def test_kernel_outputs_come_back_in_the_shape_of_the_reference() -> None:
    reference = Reference.load(DOUBLE)
    inputs = reference.inputs(0)
    expected = reference.forward(inputs)
    (output,) = reference.from_nki([expected[0].reshape(2, 2, 8)], expected)
    assert np.array_equal(output, expected[0])


def test_several_outputs_and_absent_transforms_are_fine() -> None:
    reference = Reference.load(MINIMAL)
    inputs = reference.inputs(0)
    expected = reference.forward(inputs)
    assert len(expected) == 2
    outputs = reference.from_nki([array.reshape(6) for array in expected], expected)
    assert [output.shape for output in outputs] == [(3, 2), (3, 2)]


def test_forward_computes_in_the_type_asked_for() -> None:
    reference = Reference.load(DOUBLE)
    assert reference.forward(reference.inputs(0), np.float64)[0].dtype == np.float64


def test_a_file_is_read_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(DOUBLE)
    assert Reference.load(path).name == str(path)


def test_sizes_are_read_without_running_the_file() -> None:
    assert integer_constants("raise SystemExit\nFLAG = True\n" + DOUBLE) == {"M": 4, "N": 8}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def get_inputs(:", "line 1: "),
        ("def get_inputs():\n    return []", r"defines no function forward\(\)"),
        ("import numpy as np\nx = np.nothing\n", "line 2: the file failed with AttributeError"),
        (MINIMAL.replace("a + b", "a + c"), r"line 8: forward\(\) failed with NameError"),
        (MINIMAL.replace("return a + b, a - b", "return 1.0"), "returned float as output 0, not an array"),
        (MINIMAL.replace("return [np", "return np.zeros(3); return [np"), "must return a list"),
        (MINIMAL.replace("a - b", "b[:1] @ a"), "ValueError"),
    ],
)
def test_what_is_wrong_with_a_reference_is_said_in_one_line(source: str, message: str) -> None:
    with pytest.raises(InvalidReference, match=message) as raised:
        reference = Reference.load(source)
        reference.forward(reference.inputs(0))
    assert "\n" not in str(raised.value)


def test_an_unknown_constant_is_refused() -> None:
    with pytest.raises(InvalidReference, match="no integer constant Q to set to 3"):
        Reference.load(DOUBLE, {"Q": 3})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidReference, match=r"nowhere\.py"):
        Reference.load(tmp_path / "nowhere.py")


def test_outputs_of_the_wrong_number_or_size_are_refused() -> None:
    reference = Reference.load(DOUBLE)
    expected = reference.forward(reference.inputs(0))
    with pytest.raises(InvalidReference, match="returned 2 outputs, the reference 1"):
        reference.from_nki([expected[0], expected[0]], expected)
    with pytest.raises(InvalidReference, match="cannot reshape"):
        reference.from_nki([expected[0][:1]], expected)
