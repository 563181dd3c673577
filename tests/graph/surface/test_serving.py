"""The LangGraph server, really started, offline, and used as its SDK uses it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from langgraph_sdk import get_sync_client

ROOT = Path(__file__).resolve().parents[3]
LANGGRAPH = Path(sys.executable).with_name("langgraph")
QUICK = {"iterations": 1, "beam": 1, "plans": 3, "samples": 1, "small": True}


class Server:
    """`langgraph dev` on a free port of this machine, in a home and a working folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "server.log"
        self.start()

    def start(self) -> None:
        command = [
            str(LANGGRAPH),
            "dev",
            "--config",
            str(ROOT / "langgraph.json"),
            "--no-browser",
            "--no-reload",
        ]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--n-jobs-per-worker", "2"]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "ACCELOPT_HOME": str(self.home),
            "LANGGRAPH_CLI_NO_ANALYTICS": "1",
            "LANGSMITH_TRACING": "false",
            # Any way out leads nowhere, so what needs the network fails here.
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "HTTP_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1,localhost",
        }
        self.process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self.log.open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                if urllib.request.urlopen(f"{self.url}/ok", timeout=2).status == 200:
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        self.stop()
        raise AssertionError(f"the server does not come up:\n{self.log.read_text()[-4000:]}")

    def stop(self, with_signal: int = signal.SIGTERM) -> None:
        # The whole group: the server starts processes of its own.
        for number in (with_signal, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                continue
        self.process.wait(timeout=15)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture
def client(server):
    return get_sync_client(url=server.url)


def the_assistant(client):
    (assistant,) = client.assistants.search()
    return assistant


def test_the_assistant_shows_every_setting_with_its_description(client):
    schemas = client.assistants.get_schemas(the_assistant(client)["assistant_id"])
    settings = schemas["context_schema"]["properties"]
    for name in (
        "target",
        "backend",
        "beam",
        "plans",
        "samples",
        "iterations",
        "planner",
        "executor",
        "caps",
    ):
        assert settings[name].get("description") or settings[name].get("$ref") or settings[name]["allOf"], (
            name
        )
    assert settings["beam"]["default"] == 6 and settings["iterations"]["default"] == 16
    undescribed = [name for name, one in settings.items() if not one.get("description")]
    assert undescribed == []


def test_the_input_is_one_field(client):
    schemas = client.assistants.get_schemas(the_assistant(client)["assistant_id"])
    given = schemas["input_schema"]
    assert list(given["properties"]) == ["problem"] and given["properties"]["problem"]["description"]


def test_the_graph_can_be_drawn(client):
    drawn = client.assistants.get_graph(the_assistant(client)["assistant_id"])
    assert {"prepare", "recall", "explore", "selector", "summarizer", "remember", "finish"} <= {
        node["id"] for node in drawn["nodes"]
    }


def test_a_streamed_run_ends_with_a_faster_kernel_and_leaves_its_history(client, server):
    thread = client.threads.create()["thread_id"]
    parts = list(
        client.runs.stream(
            thread,
            "accelopt",
            input={"problem": "silu"},
            context=QUICK,
            stream_mode=["custom", "values"],
        )
    )
    told = [part.data["event"] for part in parts if part.event == "custom"]
    assert told and told[0] == "run_started" and told[-1] == "run_finished", parts[-1]
    assert {"round_started", "planned", "evaluated", "round_finished"} <= set(told)
    result = parts[-1].data["result"]
    assert result["problem"] == "silu" and result["speedup"] > 1
    assert Path(result["best_kernel_path"]).is_relative_to(server.home)

    history = client.threads.get_history(thread, limit=50)
    assert len(history) >= 5 and history[0]["next"] == []
    assert client.threads.get_state(thread)["values"]["result"] == result

    report = (
        urllib.request.urlopen(f"{server.url}/dashboard/runs/{result['run_id']}", timeout=30).read().decode()
    )
    assert "The way to the best kernel" in report


def test_a_problem_that_does_not_exist_ends_the_run_with_a_line_that_says_so(client):
    end = client.runs.wait(None, "accelopt", input={"problem": "slu"}, context=QUICK)
    assert "did you mean silu" in end["error"]


def test_an_input_without_a_problem_is_told_what_belongs_there(client):
    end = client.runs.wait(None, "accelopt", input={"problm": "silu"}, context=QUICK)
    assert "the input has no `problem`" in end["error"]


def test_a_setting_out_of_range_is_refused_by_name(client):
    with pytest.raises(Exception, match="SettingsError: beam cannot be 0: it should be greater"):
        client.runs.wait(None, "accelopt", input={"problem": "silu"}, context={"beam": 0})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"context": {**QUICK, "iteration": 3}}, "no setting iteration; did you mean iterations"),
        ({"context": {"caps": {"kernel": 3}}}, "no setting caps.kernel; did you mean caps.kernels"),
        ({"config": {"configurable": {"beem": 1}}}, "no setting beem; did you mean beam"),
    ],
)
def test_a_misspelt_setting_is_refused_with_what_was_meant(client, settings, told):
    with pytest.raises(Exception, match=told):
        client.runs.wait(None, "accelopt", input={"problem": "silu"}, **settings)


def test_a_misspelt_setting_of_an_assistant_is_refused_when_it_is_used(client):
    misspelt = client.assistants.create("accelopt", context={"sample": 1})["assistant_id"]
    try:
        thread = client.threads.create()["thread_id"]
        with pytest.raises(Exception, match="no setting sample; did you mean samples"):
            client.runs.wait(thread, misspelt, input={"problem": "silu"}, context={"iterations": 1})
    finally:
        client.assistants.delete(misspelt)


def test_the_image_installs_the_project_and_serves_the_same_graph(tmp_path):
    dockerfile = tmp_path / "Dockerfile"
    subprocess.run(
        [str(LANGGRAPH), "dockerfile", "--config", str(ROOT / "langgraph.json"), str(dockerfile)],
        cwd=ROOT,
        env={**os.environ, "LANGGRAPH_CLI_NO_ANALYTICS": "1"},
        check=True,
        capture_output=True,
    )
    lines = dockerfile.read_text().splitlines()
    assert lines[0].startswith("FROM langchain/langgraph-api:3.11")
    assert any(line.startswith("ADD . /deps/") for line in lines)
    variables = dict(
        line.removeprefix("ENV ").split("=", 1) for line in lines if line.startswith("ENV ") and "=" in line
    )
    graphs = json.loads(variables["LANGSERVE_GRAPHS"].strip("'"))
    assert graphs["accelopt"]["path"] == "graph.served:served"
    assert "graph.web:app" in variables["LANGGRAPH_HTTP"]
    assert "memory_store.checkpoint.make_checkpointer" in variables["LANGGRAPH_CHECKPOINTER"]


@pytest.mark.heavy
def test_a_server_that_was_killed_takes_its_run_up_again(tmp_path):
    server = Server(tmp_path)
    try:
        client = get_sync_client(url=server.url)
        thread = client.threads.create()["thread_id"]
        longer = {**QUICK, "iterations": 20, "beam": 3, "plans": 6}
        run = client.runs.create(thread, "accelopt", input={"problem": "silu"}, context=longer)
        # The server itself writes its queue down every ten seconds.
        time.sleep(12)
        assert client.runs.get(thread, run["run_id"])["status"] == "running"
        server.stop(signal.SIGKILL)
        server.start()
        deadline = time.monotonic() + 300
        while client.runs.get(thread, run["run_id"])["status"] in ("pending", "running"):
            assert time.monotonic() < deadline
            time.sleep(1)
        result = client.threads.get_state(thread)["values"]["result"]
        assert result["iterations"] == 20 and result["speedup"] > 1
    finally:
        server.stop()
