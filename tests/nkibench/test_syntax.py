from __future__ import annotations

import ast
import sys
import threading

import pytest

from nkibench import syntax


class Litter:
    """Garbage that runs Python when it is collected, wherever that may be."""

    def __init__(self):
        self.own = self

    def __del__(self):
        sum(range(20))


@pytest.fixture
def eager_threads():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_parse_at_the_same_time(eager_threads):
    text = "\n".join(f"x{n} = [{n} + y * (2, -z)[0] for y in range({n})]" for n in range(200))
    whole = ast.dump(ast.parse(text))
    right, wrong = [], []

    def work(depth):
        if depth:
            return work(depth - 1)
        for _ in range(60):
            for _ in range(50):
                Litter()
            try:
                right.append(ast.dump(syntax.parse(text)) == whole)
            except SystemError as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(depth,)) for depth in (5, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and right == [True] * 120


def test_what_is_no_python_is_told_with_its_line():
    with pytest.raises(SyntaxError) as refused:
        syntax.parse("x = 1\ny = (\n", "mine.py")
    assert refused.value.filename == "mine.py" and refused.value.lineno == 2
    assert isinstance(syntax.parse("1 + 1", mode="eval").body, ast.BinOp)
