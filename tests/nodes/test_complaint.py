"""Wrong settings, in words for whoever wrote them."""

import pytest
from pydantic import ValidationError

from nodes.complaint import complaint
from nodes.context import RunContext


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"beem": 3}, "there is no setting beem; did you mean beam?"),
        (
            {"planner": {"temprature": 1}},
            "there is no setting planner.temprature; did you mean planner.temperature?",
        ),
        (
            {"caps": {"money": 1}},
            "there is no setting caps.money; there are caps.kernels, caps.tokens, caps.usd",
        ),
        ({"xyzzy": 1}, "there is no setting xyzzy; they are the fields of RunContext in nodes/context.py"),
        ({"beam": 0}, "beam cannot be 0: it should be greater than or equal to 1"),
        ({"prices": {"m": {"input": 1}}}, "prices.m.output is missing"),
    ],
)
def test_a_wrong_setting_is_named_with_what_was_probably_meant(settings, told):
    with pytest.raises(ValidationError) as caught:
        RunContext.model_validate(settings)
    assert complaint(caught.value, RunContext).startswith(told)


def test_every_fault_is_told_and_each_once():
    with pytest.raises(ValidationError) as caught:
        RunContext.model_validate({"beam": 0, "plans": 0})
    assert complaint(caught.value).count("cannot be 0") == 2
