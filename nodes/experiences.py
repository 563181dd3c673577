"""Experiences as planners read them."""

from __future__ import annotations

from memory_store.experience import Experience, Kind

from .facts import fenced


def prompt_text(experience: Experience) -> str:
    """One experience for a prompt, marked as what helped or what hurt."""
    if experience.kind is Kind.POSITIVE:
        head = f"## It helped ({experience.speedup:.2f}x): {experience.title}"
    else:
        head = f"## It hurt ({experience.speedup:.2f}x): {experience.title}"
    lines = [head, experience.description]
    if experience.rewrite:
        lines.append(f"Rewrite: {experience.rewrite}")
    # A positive step leads from the slow to the fast version, a negative one the other way.
    before, after = experience.slow_code, experience.fast_code
    if experience.kind is Kind.NEGATIVE:
        before, after = after, before
    if before.strip():
        lines += ["Before:", fenced(before, "")]
    if after.strip():
        lines += ["After:", fenced(after, "")]
    return "\n".join(lines)
