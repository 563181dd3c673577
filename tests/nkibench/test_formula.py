import pytest

from nkibench.errors import InvalidFormula
from nkibench.formula import evaluate

SIZES = {"M": 4, "N": 8, "D": 128}


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("0", 0),
        ("3*M*N", 96),
        ("2*M*N + D//2", 128),
        ("(M + N) * 2", 24),
        ("5*M*N**2", 1280),
        ("D - M - N", 116),
        ("-M + N", 4),
    ],
)
def test_arithmetic_over_the_shape_is_evaluated(formula: str, value: int) -> None:
    assert evaluate(formula, SIZES) == value


@pytest.mark.parametrize(
    "formula",
    [
        "",
        "M *",
        "M / N",
        "1.5 * M",
        "True",
        "'M'",
        "__import__('os').getpid()",
        "M.real",
        "M if N else D",
        "[M][0]",
        "M < N",
        "(lambda: 1)()",
        "M\nN",
        "(" * 5000 + "M" + ")" * 5000,
    ],
)
def test_anything_but_integer_arithmetic_is_refused(formula: str) -> None:
    with pytest.raises(InvalidFormula):
        evaluate(formula, SIZES)


def test_an_unknown_name_is_named_together_with_the_known_ones() -> None:
    with pytest.raises(InvalidFormula, match=r"uses K, but the shape has only M, N, D"):
        evaluate("M*K", SIZES)


def test_division_by_zero_is_refused() -> None:
    with pytest.raises(InvalidFormula, match="divides by zero"):
        evaluate("M // (N - 8)", SIZES)


@pytest.mark.parametrize("formula", ["9**9**9", "2**(0-1)", "((D**16)**16)**16"])
def test_a_power_that_would_take_long_is_refused(formula: str) -> None:
    with pytest.raises(InvalidFormula):
        evaluate(formula, SIZES)
