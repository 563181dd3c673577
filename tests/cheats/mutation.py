"""Kernels changed at random, as a careless model or an adversary might change them."""

import random
import re
from collections.abc import Callable

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?\b")
_NAME = re.compile(r"(?<![\w.])[a-z_]\w*\b")
_CALL = re.compile(r"\b(?:nl|nisa)\.(\w+)")
_OPERATOR = re.compile(r"(?<=\s)(?:\+|-|\*|/|//|%|==|<|>=|and|or)(?=\s)")

_NUMBERS = (
    "0",
    "1",
    "-1",
    "2",
    "3",
    "127",
    "129",
    "512",
    "513",
    "4096",
    "2147483648",
    "-4294967296",
    "1e38",
    "0.5",
)
_NUMBERS += ("10**12", "1e400", "(0 * 1e400)", "float('nan')", "True", "None")
_OPERATORS = ("+", "-", "*", "/", "//", "%", "==", "<", ">=", "and", "or", "@", "**")
_CALLS = (
    "load store copy exp log sqrt rsqrt add multiply subtract maximum sum max min mean transpose matmul zeros ndarray full "
    "affine_range sequential_range static_range softmax silu tanh where broadcast_to shared_constant activation nc_matmul "
    "tensor_scalar tensor_tensor tensor_reduce reciprocal memset iota nc_transpose dma_copy no_such_function"
).split()
_SNIPPETS = (
    "pass",
    "return out",
    "x = x",
    "while True: pass",
    "for q in range(10**9): pass",
    "tile = nl.load(x)",
    "import os",
    "global x",
    "assert False, 'no'",
    "raise ValueError('no')",
    "out = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)",
    "big = [0] * (10**9)",
    "lambda: kernel(x)",
    "del x",
    "nl.store(out, value=0.0)",
    "x[0, 0] = 1.0",
    "hoard = nl.ndarray((nl.par_dim(128), 10**7), dtype=nl.float32, buffer=nl.sbuf)",
)


def mutate(source: str, rng: random.Random, changes: int) -> str:
    """`source` after so many random changes."""
    for _ in range(changes):
        source = rng.choice(_MUTATIONS)(source, rng)
    return source


def _replace(
    pattern: re.Pattern[str], choices: tuple[str, ...] | list[str]
) -> Callable[[str, random.Random], str]:
    def apply(source: str, rng: random.Random) -> str:
        found = list(pattern.finditer(source))
        if not found:
            return source
        match = rng.choice(found)
        group = 1 if pattern.groups else 0
        return source[: match.start(group)] + rng.choice(choices) + source[match.end(group) :]

    return apply


def _exchange_names(source: str, rng: random.Random) -> str:
    names = list(_NAME.finditer(source))
    if len(names) < 2:
        return source
    target, other = rng.sample(names, 2)
    return source[: target.start()] + other[0] + source[target.end() :]


def _lines(change: Callable[[list[str], random.Random], None]) -> Callable[[str, random.Random], str]:
    def apply(source: str, rng: random.Random) -> str:
        lines = source.split("\n")
        change(lines, rng)
        return "\n".join(lines)

    return apply


def _delete_line(lines: list[str], rng: random.Random) -> None:
    del lines[rng.randrange(len(lines))]
    if not lines:
        lines.append("")


def _repeat_line(lines: list[str], rng: random.Random) -> None:
    number = rng.randrange(len(lines))
    lines.insert(number, lines[number])


def _exchange_lines(lines: list[str], rng: random.Random) -> None:
    one, two = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]


def _insert_snippet(lines: list[str], rng: random.Random) -> None:
    number = rng.randrange(len(lines))
    indent = len(lines[number]) - len(lines[number].lstrip())
    lines.insert(number, " " * indent + rng.choice(_SNIPPETS))


def _change_indent(lines: list[str], rng: random.Random) -> None:
    number = rng.randrange(len(lines))
    lines[number] = lines[number][4:] if rng.random() < 0.5 else "    " + lines[number]


def _spoil_characters(source: str, rng: random.Random) -> str:
    place = rng.randrange(len(source) + 1)
    return source[:place] + rng.choice("()[]{}:,.=\"'\\\0\n\t é\ud800#@") + source[place + rng.randrange(2) :]


def _cut(source: str, rng: random.Random) -> str:
    return source[: rng.randrange(len(source) + 1)]


_MUTATIONS: tuple[Callable[[str, random.Random], str], ...] = (
    # What leaves a kernel that parses comes more often: it gets further.
    *(_replace(_NUMBER, _NUMBERS),) * 8,
    *(_replace(_CALL, _CALLS),) * 8,
    *(_exchange_names,) * 6,
    *(_replace(_OPERATOR, _OPERATORS),) * 2,
    _lines(_delete_line),
    _lines(_repeat_line),
    _lines(_exchange_lines),
    _lines(_insert_snippet),
    _lines(_change_indent),
    _spoil_characters,
    _cut,
)
