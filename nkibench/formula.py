"""Integer arithmetic over named sizes, as `problem.toml` writes it: `2*M*N*K + M*N`.

Formulas may come from files of other people, so nothing is handed to `eval`: the text is parsed, and only
numbers, names, `+ - * // **`, unary minus and parentheses are let through.
"""

import ast
import operator
from collections.abc import Callable, Mapping

from .errors import InvalidFormula
from .syntax import parse

_LARGEST_EXPONENT = 16
_LARGEST_BITS = 256
_OPERATORS: dict[type[ast.operator], tuple[str, Callable[[int, int], int]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Pow: ("**", operator.pow),
}


def evaluate(formula: str, sizes: Mapping[str, int]) -> int:
    """The value of `formula` where each name stands for its entry in `sizes`.

    Raises:
        InvalidFormula: it is not such a formula, uses an unknown name, or divides by zero.
    """
    try:
        tree = parse(formula.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidFormula(f"{formula!r} is not an arithmetic formula") from error
    return _value(tree.body, formula, sizes)


def _value(node: ast.expr, formula: str, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            if name not in sizes:
                raise InvalidFormula(
                    f"{formula!r} uses {name}, but the shape has only {', '.join(sizes) or 'no names'}"
                )
            return sizes[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, formula, sizes)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            symbol, function = _OPERATORS[type(op)]
            first, second = _value(left, formula, sizes), _value(right, formula, sizes)
            if symbol == "//" and second == 0:
                raise InvalidFormula(f"{formula!r} divides by zero")
            if symbol == "**" and not 0 <= second <= _LARGEST_EXPONENT:
                raise InvalidFormula(
                    f"{formula!r} has the exponent {second}; 0 to {_LARGEST_EXPONENT} are allowed"
                )
            result = function(first, second)
            if result.bit_length() > _LARGEST_BITS:
                raise InvalidFormula(f"{formula!r} is too large a number")
            return result
    raise InvalidFormula(
        f"{formula!r} contains {ast.unparse(node)!r}; only integers, names and + - * // ** are allowed"
    )
