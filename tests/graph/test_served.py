"""What LangGraph's server is given, without a server; tests/graph/surface/test_serving.py has one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from graph.served import SettingsError, served
from graph.workflow import graph


def asked(context):
    return served(SimpleNamespace(execution_runtime=SimpleNamespace(context=context)))


def test_settings_that_can_be_used_get_the_graph():
    assert asked({"beam": 2, "planner": {"models": ["m"]}}) is graph
    assert asked({}) is graph and asked(None) is graph
    assert asked({"thread_id": "t", "__marker": True, "langgraph_auth_user_id": ""}) is graph


def test_whoever_only_reads_gets_the_graph():
    assert served(SimpleNamespace(execution_runtime=None)) is graph


def test_every_setting_that_is_wrong_is_named():
    with pytest.raises(SettingsError) as refused:
        asked({"beem": 2, "caps": {"usd": -1}})
    assert "no setting beem; did you mean beam?" in str(refused.value)
    assert "caps.usd cannot be -1" in str(refused.value)
