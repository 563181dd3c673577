from __future__ import annotations

import pytest
from pydantic import ValidationError

from memory_store.experience import Experience, Kind, situation


def test_the_same_lesson_has_the_same_id_whoever_learned_it(make_experience):
    first = make_experience(1, run_id="run-a", round=2, created_at="2026-01-01", speedup=1.2)
    again = make_experience(1, run_id="run-b", round=9, created_at="2027-01-01", speedup=1.3)
    assert first.id == again.id
    assert len(first.id) == 32


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "negative"),
        ("title", "other"),
        ("fast_code", "load(1024)"),
        ("problem", "gelu"),
        ("target", "trn2"),
        ("slow_kernel_id", "abc"),
        ("features", ["loop-depth-3"]),
    ],
)
def test_another_lesson_has_another_id(make_experience, field, value):
    assert make_experience(1, **{field: value}).id != make_experience(1).id


def test_an_experience_survives_json(make_experience):
    experience = make_experience(1, rewrite="widen_tile", kind=Kind.NEGATIVE, speedup=0.5)
    assert Experience.model_validate_json(experience.model_dump_json()) == experience
    assert Experience.model_validate(experience.model_dump(mode="json")) == experience


def test_an_id_that_does_not_match_the_content_is_refused(make_experience):
    data = make_experience(1).model_dump(mode="json") | {"title": "tampered"}
    with pytest.raises(ValidationError, match="does not match"):
        Experience.model_validate(data)


def test_a_question_has_the_form_of_what_is_stored(make_experience):
    experience = make_experience(1)
    asked = situation("silu", "memory", ["loop-depth-2"])
    assert experience.text().startswith(asked + "\n")
    assert situation("silu") == "operator: silu"


@pytest.mark.parametrize("speedup", [0.0, -1.0])
def test_a_speedup_is_positive(make_experience, speedup):
    with pytest.raises(ValidationError):
        make_experience(1, speedup=speedup)
