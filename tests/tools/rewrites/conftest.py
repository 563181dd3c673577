"""Small kernels, traced, rewritten, printed and run."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tools import neuroncore
from tools.neuroncore import trace
from tools.neuroncore.ir import Kernel, fingerprint
from tools.rewrites import Option, Rewrite, RewriteError, print_kernel

HEADER = """\
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
"""


def body_of(source: str) -> str:
    """What follows the imports and the decorator."""
    return source[source.index("def ") :]


@dataclasses.dataclass
class Case:
    """A kernel under test with its arguments."""

    kernel: Kernel
    args: list[np.ndarray]

    def options(self, rewrite: Rewrite[Option]) -> list[Option]:
        """What the rewrite accepts."""
        return rewrite.analyze(self.kernel)

    def apply(self, rewrite: Rewrite[Option], describes: str) -> Case:
        """The kernel after the one option whose description contains a text; results and identity are checked."""
        found = [o for o in self.options(rewrite) if describes in o.describe()]
        assert len(found) == 1, [o.describe() for o in self.options(rewrite)]
        after = Case(rewrite.apply(self.kernel, found[0]), self.args)
        after.assert_equals(self)
        return after

    def refusal(self, rewrite: Rewrite[Option], describes: str) -> str:
        """Why the rewrite refuses the one option whose description contains a text."""
        found = [o for o in rewrite.candidates(self.kernel) if describes in o.describe()]
        assert len(found) == 1, [o.describe() for o in rewrite.candidates(self.kernel)]
        with pytest.raises(RewriteError) as refused:
            rewrite.apply(self.kernel, found[0])
        return str(refused.value)

    def assert_equals(self, other: Case, tolerance: float = 1e-5) -> None:
        """Same results as another case's kernel, and printing loses nothing."""
        assert fingerprint(trace(self.source, self.args, target=self.kernel.target)) == fingerprint(
            self.kernel
        )
        for mine, theirs in zip(self.run(), other.run(), strict=True):
            difference = np.linalg.norm(mine.astype(np.float64) - theirs.astype(np.float64))
            assert difference <= tolerance * np.linalg.norm(theirs.astype(np.float64))

    def run(self) -> list[np.ndarray]:
        """Results of the kernel."""
        return neuroncore.interpret(self.kernel, [a.copy() for a in self.args])

    @property
    def source(self) -> str:
        """The printed kernel."""
        return print_kernel(self.kernel)

    @property
    def printed(self) -> str:
        """The printed function."""
        return body_of(self.source)


@pytest.fixture
def case() -> Callable[..., Case]:
    """Make a case of a function's source and its arguments: values, or shapes of random float32 ones (seeded)."""

    def make(source: str, *given: Any, target: str = "trn1", seed: int = 0) -> Case:
        generator = np.random.default_rng(seed)
        args = [
            generator.standard_normal(one).astype(np.float32) if isinstance(one, tuple) else one
            for one in given
        ]
        return Case(trace(HEADER + textwrap.dedent(source).strip() + "\n", args, target=target), args)

    return make
