from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from memory_store.embedding import (
    HashingEmbedder,
    OpenAIEmbedder,
    WordLlamaEmbedder,
    choose_embedder,
)
from memory_store.errors import EmbedderError

TEXTS = [
    "Use a bigger tile for the load",
    "Larger tiles when loading",
    "The bank raised its interest rate",
    "",
]


@pytest.mark.parametrize("embedder", [HashingEmbedder(), HashingEmbedder(64), WordLlamaEmbedder()])
def test_vectors_are_of_unit_length_and_an_empty_text_is_zero(embedder):
    vectors = embedder.embed(TEXTS)
    assert vectors.shape == (4, embedder.dimension)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 1, 0], atol=1e-5)
    assert embedder.embed([]).shape == (0, embedder.dimension)


@pytest.mark.parametrize("embedder", [HashingEmbedder(), WordLlamaEmbedder()])
def test_related_texts_are_nearer_than_unrelated_ones(embedder):
    first, related, unrelated, _ = embedder.embed(TEXTS)
    assert first @ related > first @ unrelated + 0.1


@pytest.mark.parametrize("embedder", [HashingEmbedder(), WordLlamaEmbedder()])
def test_a_text_has_the_same_vector_alone_and_in_company(embedder):
    together = embedder.embed(TEXTS)
    for text, vector in zip(TEXTS, together, strict=True):
        np.testing.assert_allclose(embedder.embed([text])[0], vector, atol=1e-6)


def test_the_hashing_embedder_gives_the_same_vector_in_every_process():
    script = (
        "from memory_store.embedding import HashingEmbedder;"
        "print(HashingEmbedder(16).embed(['Tile the free dimension'])[0].tolist())"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1
    here = HashingEmbedder(16).embed(["Tile the free dimension"])[0].tolist()
    assert json.loads(answers.pop()) == here


def test_wordllama_needs_no_network_and_leaves_logging_alone():
    script = """
import logging, socket, sys
def refuse(*args, **kwargs):
    raise OSError("the network was touched")
socket.socket.connect = refuse
socket.getaddrinfo = refuse
from memory_store.embedding import WordLlamaEmbedder
print(WordLlamaEmbedder().embed(["tile"]).shape, logging.getLogger().level, logging.getLogger().handlers)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == f"(1, 256) {logging.WARNING} []", done.stderr


def test_auto_takes_what_the_store_was_built_with_and_else_wordllama():
    assert choose_embedder("auto").name == WordLlamaEmbedder.name
    assert choose_embedder("auto", stored="hashing:1:128").name == "hashing:1:128"
    assert choose_embedder("auto", stored="openai:small").name == "openai:small"
    assert choose_embedder("hashing").name == "hashing:1:256"


def test_auto_makes_do_with_hashing_where_wordllama_is_absent(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert choose_embedder("auto").name == "hashing:1:256"
    with pytest.raises(EmbedderError, match="pip install wordllama"):
        choose_embedder("wordllama")


@pytest.mark.parametrize("name", ["word2vec", "wordllama:large", "hashing:2:256", "hashing:x", "openai:", ""])
def test_an_unknown_embedder_is_refused_with_the_choices(name):
    with pytest.raises(EmbedderError, match="choose auto, wordllama, hashing or openai:"):
        choose_embedder(name)


class Endpoint:
    """A loopback /embeddings endpoint: vectors of three numbers that count letters."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.status = 200
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                endpoint.asked.append(body["input"])
                rows = [
                    {"object": "embedding", "index": i, "embedding": [text.count("a"), text.count("b"), 1.0]}
                    for i, text in enumerate(body["input"])
                ]
                answer = {"object": "list", "data": rows[::-1], "model": body["model"], "usage": {}}
                if endpoint.status != 200:
                    answer = {"error": {"message": "no such model"}}
                data = json.dumps(answer).encode()
                self.send_response(endpoint.status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def endpoint():
    made = Endpoint()
    yield made
    made.close()


def test_an_endpoint_embeds_in_order_and_is_asked_once_for_a_text(endpoint):
    embedder = OpenAIEmbedder("small", base_url=endpoint.url)
    vectors = embedder.embed(["aaa", "bbb", "aaa"])
    assert embedder.dimension == 3
    np.testing.assert_allclose(vectors[0], np.array([3, 0, 1]) / np.sqrt(10), atol=1e-6)
    np.testing.assert_allclose(vectors[1], np.array([0, 3, 1]) / np.sqrt(10), atol=1e-6)
    np.testing.assert_array_equal(vectors[0], vectors[2])
    embedder.embed(["bbb"])
    assert endpoint.asked[0] == ["aaa", "bbb"]
    assert [batch for batch in endpoint.asked if "bbb" in batch] == [["aaa", "bbb"]]


def test_an_endpoint_that_refuses_is_one_line_with_its_address(endpoint):
    endpoint.status = 404
    with pytest.raises(EmbedderError, match=rf"{endpoint.url}.*no such model") as caught:
        OpenAIEmbedder("small", base_url=endpoint.url).embed(["a"])
    assert "\n" not in str(caught.value)
