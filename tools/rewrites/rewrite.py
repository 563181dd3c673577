"""What a rewrite is: a stateless transformation of one kernel into another with the same results.

A rewrite is analysed and applied on the intermediate representation. `Rewrite.analyze` lists the places where it
applies, as options; `Rewrite.apply` takes one of them and returns a new kernel. Options name places by `Path`, so they
stay valid for any copy of the kernel they were made for, and across processes.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator
from typing import ClassVar, Generic, TypeVar

from ..neuroncore.ir import Kernel, clone
from ..neuroncore.machine import Machine
from .layout import blocks_into_free, localize
from .legality import check_kernel, tidy
from .refusal import RewriteError

__all__ = ["Option", "Rewrite", "RewriteError"]


@dataclasses.dataclass(frozen=True)
class Option:
    """One place and manner in which a rewrite applies. Subclasses add fields; all are plain values."""

    def describe(self) -> str:
        """One sentence in the imperative, naming the loops and tiles concerned."""
        raise NotImplementedError


O = TypeVar("O", bound=Option)  # noqa: E741 - the conventional name of a type parameter


class Rewrite(abc.ABC, Generic[O]):
    """A semantics-preserving transformation.

    Attributes:
        name: short, in kebab case, unique among the rewrites.
        summary: one sentence on what it does and why that is faster.
        targets: the bottlenecks it helps: ``memory``, ``vector``, ``scalar``, ``gpsimd``, ``tensor``, ``spill``,
            ``latency``.
        reorders: whether it moves iterations or changes tiles. Tensors that the source declares outside of the loops
            that use them are then created where they are used first, or nothing could move.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    targets: ClassVar[tuple[str, ...]]
    reorders: ClassVar[bool] = False

    def analyze(self, kernel: Kernel, machine: Machine | None = None) -> list[O]:
        """Every option that the kernel offers and that `apply` accepts, in program order.

        Args:
            kernel: what to look at; it is not changed.
            machine: what has to fit; None for the target that the kernel was traced for.
        """
        if machine is not None:
            kernel = dataclasses.replace(kernel, target=machine.name)
        return [option for option in self.candidates(kernel) if self.accepts(kernel, option)]

    def accepts(self, kernel: Kernel, option: O) -> bool:
        """Whether `apply` carries out an option."""
        try:
            self.apply(kernel, option)
        except RewriteError:
            return False
        return True

    def candidates(self, kernel: Kernel) -> Iterator[O]:
        """Options that look possible; `analyze` keeps those that `apply` accepts."""
        if self.reorders:
            kernel = clone(kernel)
            localize(kernel)
        yield from self.find(kernel)

    @abc.abstractmethod
    def find(self, kernel: Kernel) -> Iterator[O]:
        """The options of a kernel in the form in which `edit` gets it."""

    def apply(self, kernel: Kernel, option: O) -> Kernel:
        """A new kernel with the option carried out; the given one is not changed.

        Raises:
            RewriteError: if the option does not fit the kernel, would change its results, or would leave it beyond
                the limits of the hardware.
        """
        new = clone(kernel)
        if self.reorders:
            localize(new)
        self.edit(new, option)
        tidy(new)
        if new.dialect == "nki":
            blocks_into_free(new)
        check_kernel(new, before=kernel)
        new.source = ""
        return new

    @abc.abstractmethod
    def edit(self, kernel: Kernel, option: O) -> None:
        """Carry out the option on a kernel that may be changed in place.

        Raises:
            RewriteError: as `apply`.
        """
