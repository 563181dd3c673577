"""Which pairs of kernels become experiences, and which experiences stay: pure functions.

The rules are those of AccelOpt (arXiv 2511.15915, section on the optimization memory): a positive pair
for a group whose best child beats its parent by more than `t_pos`, a negative pair for a group whose
best child still loses by more than `t_neg`, at most `top_k` pairs a round of which at most half are
positive, and a queue of bounded capacity that new experiences enter at the head.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from .experience import Kind

EvictionPolicy = Literal["fifo", "random"]

T = TypeVar("T")


class Child(BaseModel):
    """A correct kernel and how long it takes."""

    model_config = ConfigDict(frozen=True)

    kernel_id: str
    latency_ms: float = Field(gt=0)


class Group(BaseModel):
    """The correct children that one plan gave for one candidate kernel."""

    model_config = ConfigDict(frozen=True)

    key: str
    """Names the (candidate, plan) it stands for; carried through to the pair."""
    parent_id: str
    parent_latency_ms: float = Field(gt=0)
    children: tuple[Child, ...] = ()


class Pair(BaseModel):
    """A slow and a fast kernel one step apart, to be summarized into an experience."""

    model_config = ConfigDict(frozen=True)

    key: str
    kind: Kind
    slow_kernel_id: str
    fast_kernel_id: str
    slow_latency_ms: float
    fast_latency_ms: float
    speedup: float
    """Parent's latency over the child's: above 1 for a positive pair, below 1 for a negative one."""


def pair_of(group: Group, t_pos: float, t_neg: float) -> Pair | None:
    """The pair a group has to offer, or None where the step neither helped nor hurt enough.

    Equal latencies are resolved by kernel id, so that the answer does not depend on arrival order.
    A child identical to its parent is no step and offers nothing.
    """
    children = [child for child in group.children if child.kernel_id != group.parent_id]
    if not children:
        return None
    best = min(children, key=lambda child: (child.latency_ms, child.kernel_id))
    best_speedup = group.parent_latency_ms / best.latency_ms
    if best_speedup > t_pos:
        return Pair(
            key=group.key,
            kind=Kind.POSITIVE,
            slow_kernel_id=group.parent_id,
            fast_kernel_id=best.kernel_id,
            slow_latency_ms=group.parent_latency_ms,
            fast_latency_ms=best.latency_ms,
            speedup=best_speedup,
        )
    if best_speedup < 1.0 / t_neg:
        worst = max(children, key=lambda child: (child.latency_ms, child.kernel_id))
        return Pair(
            key=group.key,
            kind=Kind.NEGATIVE,
            slow_kernel_id=worst.kernel_id,
            fast_kernel_id=group.parent_id,
            slow_latency_ms=worst.latency_ms,
            fast_latency_ms=group.parent_latency_ms,
            speedup=group.parent_latency_ms / worst.latency_ms,
        )
    return None


def curate(groups: Iterable[Group], *, t_pos: float, t_neg: float, top_k: int) -> list[Pair]:
    """The pairs of a round worth summarizing, positives first, best first.

    Positive pairs, sorted by falling speedup, fill up to `top_k // 2` places; negative pairs, sorted by
    rising speedup, fill what is then left of `top_k`. Two groups that lead to the same pair of kernels
    count once.

    Args:
        groups: one per (candidate, plan) of the round.
        t_pos: speedup a positive pair has to exceed (paper: 1.04).
        t_neg: slowdown a negative pair has to exceed (paper: 1.15).
        top_k: most pairs of a round (paper: 8).

    Raises:
        ValueError: a threshold below 1 or a negative `top_k`.
    """
    if t_pos < 1.0 or t_neg < 1.0:
        raise ValueError(f"t_pos and t_neg are ratios of at least 1, got {t_pos} and {t_neg}")
    if top_k < 0:
        raise ValueError(f"top_k cannot be negative, got {top_k}")
    offered = (pair_of(group, t_pos, t_neg) for group in groups)
    pairs = sorted((pair for pair in offered if pair is not None), key=lambda pair: pair.key)
    positives = sorted((p for p in pairs if p.kind is Kind.POSITIVE), key=lambda p: -p.speedup)
    negatives = sorted((p for p in pairs if p.kind is Kind.NEGATIVE), key=lambda p: p.speedup)
    chosen = _distinct(positives)[: top_k // 2]
    return chosen + _distinct(negatives)[: top_k - len(chosen)]


def admit(
    queue: Sequence[T],
    new: Sequence[T],
    *,
    capacity: int,
    policy: EvictionPolicy = "fifo",
    rng: random.Random | None = None,
) -> list[T]:
    """The memory after `new` experiences enter at its head, never longer than `capacity`.

    Under `fifo` (the paper) the oldest leave; under `random` (the released code) a random sample of the
    old ones stays, in their old order. An item that enters again moves to the head.

    Args:
        queue: the memory so far, newest first; anything hashable, usually ids.
        new: what enters, first in front.
        capacity: most items kept (paper: 16); 0 keeps nothing.
        policy: who leaves.
        rng: source of chance, required by `random` so that a run can be repeated.

    Raises:
        ValueError: negative capacity, unknown policy, or `random` without `rng`.
    """
    if capacity < 0:
        raise ValueError(f"memory capacity cannot be negative, got {capacity}")
    head = list(dict.fromkeys(new))[:capacity]
    entering = set(new)
    old = [item for item in dict.fromkeys(queue) if item not in entering]
    room = capacity - len(head)
    if policy == "fifo":
        return head + old[:room]
    if policy != "random":
        raise ValueError(f"unknown eviction policy {policy!r}; choose fifo or random")
    if rng is None:
        raise ValueError("the random eviction policy needs a seeded random.Random")
    kept = sorted(rng.sample(range(len(old)), min(room, len(old))))
    return head + [old[index] for index in kept]


def _distinct(pairs: Sequence[Pair]) -> list[Pair]:
    """The first of every (slow, fast), in order."""
    first: dict[tuple[str, str], Pair] = {}
    for pair in pairs:
        first.setdefault((pair.slow_kernel_id, pair.fast_kernel_id), pair)
    return list(first.values())
