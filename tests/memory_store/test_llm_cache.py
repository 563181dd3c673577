from __future__ import annotations

import subprocess
import sys

import pytest
from langchain_core.language_models import FakeListChatModel

from memory_store.errors import HomeError
from memory_store.llm_cache import open_llm_cache


def test_an_answer_is_kept_for_the_next_run(tmp_path):
    for _ in range(2):
        cache = open_llm_cache(tmp_path / "cache" / "llm.sqlite")
        assert cache is not None
        # The model itself would go on to its second answer.
        model = FakeListChatModel(responses=["first", "second"], cache=cache)
        assert model.invoke("hello").content == "first"
        assert model.invoke("hello").content == "first"


def test_without_the_package_there_is_no_cache_and_no_fault(tmp_path):
    script = f"""
import sys
sys.modules["langchain_community"] = None
sys.modules["langchain_community.cache"] = None
from pathlib import Path
from memory_store.llm_cache import open_llm_cache
print(open_llm_cache(Path({str(tmp_path / "llm.sqlite")!r})))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={"PYTHONPATH": "."}
    )
    assert done.stdout.strip() == "None", done.stderr


def test_using_it_is_quiet(tmp_path):
    script = f"""
from pathlib import Path
from langchain_core.language_models import FakeListChatModel
from memory_store.llm_cache import open_llm_cache
cache = open_llm_cache(Path({str(tmp_path / "llm.sqlite")!r}))
model = FakeListChatModel(responses=["first", "second"], cache=cache)
assert model.invoke("hello").content == model.invoke("hello").content == "first"
"""
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", script], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_cache_that_cannot_be_made_is_one_line_that_says_where(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeError, match="cannot open the response cache .*file/llm.sqlite") as caught:
        open_llm_cache(tmp_path / "file" / "llm.sqlite")
    assert "\n" not in str(caught.value)
