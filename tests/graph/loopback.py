"""An OpenAI-compatible endpoint on the loopback interface, in front of any chat model, with faults on order.

Also a program: `python -m tests.graph.loopback PORT` serves the built-in model until it is ended.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from nodes.offline.reading import read

Schedule = Callable[[int], str | None]
"""The fault for the n-th request, None for none."""

WIRE_FAULTS = ("busy", "broken", "overloaded", "dropped", "garbled")
ANSWER_FAULTS = (
    *("null", "empty", "prose", "several", "unclosed", "cut_off", "unchanged", "talk"),
    *("harmony", "thought", "windows", "misplaced", "tested"),
)


class Loopback:
    """The endpoint; `with` starts and ends it. Counts the tokens of every answer that it sent."""

    def __init__(
        self,
        model: BaseChatModel,
        *,
        names: tuple[str, ...] = ("loopback",),
        key: str | None = None,
        faults: Schedule = lambda number: None,
        knows: frozenset[str] = frozenset({"json_schema", "json_object", "tools", "seed"}),
        port: int = 0,
    ) -> None:
        self.model = model
        self.names = names
        self.key = key
        self.faults = faults
        self.knows = knows
        self.requests = 0
        self.tokens = 0
        self.injected: Counter[str] = Counter()
        self.answered: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:  # noqa: N802
                endpoint.list_models(self)

            def do_POST(self) -> None:  # noqa: N802
                endpoint.complete(self)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Loopback:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def list_models(self, http: BaseHTTPRequestHandler) -> None:
        if self._refuses(http):
            return
        _send(http, 200, {"object": "list", "data": [{"id": name, "object": "model"} for name in self.names]})

    def complete(self, http: BaseHTTPRequestHandler) -> None:
        body = json.loads(http.rfile.read(int(http.headers["content-length"])))
        if self._refuses(http):
            return
        if body["model"] not in self.names:
            _send(http, 404, {"error": {"message": f"the model {body['model']} does not exist"}})
            return
        if complaint := self._unknown(body):
            _send(http, 400, {"error": {"message": complaint}})
            return
        with self._lock:
            self.requests += 1
            fault = self.faults(self.requests)
            if fault:
                self.injected[fault] += 1
        if fault in WIRE_FAULTS:
            _fail(http, fault)
            return
        if fault == "hang":
            time.sleep(5)
            return
        answer = self.model.invoke(
            _messages(body["messages"]),
            **{k: body[k] for k in ("tools", "tool_choice", "response_format") if k in body},
        )
        choice = _choice(answer, fault, body)
        usage = answer.usage_metadata or {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        with self._lock:
            self.tokens += usage["total_tokens"]
            self.answered.append(body)
        _send(
            http,
            200,
            {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [choice],
                "usage": {
                    "prompt_tokens": usage["input_tokens"],
                    "completion_tokens": usage["output_tokens"],
                    "total_tokens": usage["total_tokens"],
                },
            },
        )

    def _refuses(self, http: BaseHTTPRequestHandler) -> bool:
        if self.key is None or http.headers.get("authorization") == f"Bearer {self.key}":
            return False
        _send(http, 401, {"error": {"message": "wrong key"}})
        return True

    def _unknown(self, body: dict[str, Any]) -> str | None:
        kind = (body.get("response_format") or {}).get("type")
        if kind and kind not in self.knows:
            return f"response_format {kind} is not supported"
        if body.get("tools") and "tools" not in self.knows:
            return "tools are not supported"
        if "seed" in body and "seed" not in self.knows:
            return "unknown field seed"
        return None


def _send(http: BaseHTTPRequestHandler, status: int, document: dict[str, Any], **headers: str) -> None:
    text = json.dumps(document).encode()
    http.send_response(status)
    for name, value in {"content-type": "application/json", **headers}.items():
        http.send_header(name.replace("_", "-"), value)
    http.send_header("content-length", str(len(text)))
    http.end_headers()
    http.wfile.write(text)


def _fail(http: BaseHTTPRequestHandler, fault: str) -> None:
    if fault == "dropped":
        http.connection.shutdown(socket.SHUT_RDWR)
        http.close_connection = True
    elif fault == "garbled":
        http.send_response(200)
        http.send_header("content-type", "application/json")
        http.send_header("content-length", "9")
        http.end_headers()
        http.wfile.write(b'{"choices')
    else:
        status = {"busy": 429, "broken": 500, "overloaded": 503}[fault]
        _send(http, status, {"error": {"message": fault}}, retry_after="0")


def _choice(answer: AIMessage, fault: str | None, body: dict[str, Any]) -> dict[str, Any]:
    text: str | None = str(answer.content)
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["args"])},
        }
        for call in answer.tool_calls
    ]
    finish = "tool_calls" if calls else "stop"
    if fault in ANSWER_FAULTS:
        assert text is not None
        request = read(_messages(body["messages"]))
        parent = f"```python\n{request.text('Kernel')}```" if "Kernel" in request.sections else ""
        text = {
            "null": None,
            "empty": "  ",
            "prose": f"Here you are.\n\n{text}\n\nI hope that helps.",
            "several": f"The old one:\n{parent}\nThe new one:\n{text}",
            "unclosed": text.removesuffix("```").rstrip() + "\n",
            "cut_off": text[: len(text) // 2],
            "unchanged": parent or text,
            "talk": "I would rather not.",
            "harmony": f"<|channel|>analysis<|message|>{parent}<|end|>"
            f"<|start|>assistant<|channel|>final<|message|>{text}<|return|>",
            "thought": f"<think>\n{parent}\n</think>\n\n{text}",
            "windows": text.replace("\n", "\r\n"),
            "misplaced": None,
            "tested": text.removesuffix("\n```") + '\n\nif __name__ == "__main__":\n    kernel(None)\n```'
            if text.endswith("\n```")
            else text,
        }[fault]
        finish = "length" if fault == "cut_off" else "stop"
        calls = []
    thought = str(answer.content) if fault == "misplaced" else "because"
    message: dict[str, Any] = {"role": "assistant", "content": text, "reasoning": thought}
    if calls:
        message["tool_calls"] = calls
    return {"index": 0, "finish_reason": finish, "message": message}


def _messages(sent: list[dict[str, Any]]) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for one in sent:
        content = one.get("content") or ""
        if one["role"] == "system":
            messages.append(SystemMessage(content))
        elif one["role"] == "user":
            messages.append(HumanMessage(content))
        elif one["role"] == "tool":
            messages.append(ToolMessage(content, tool_call_id=one["tool_call_id"]))
        else:
            messages.append(AIMessage(content))
    return messages


if __name__ == "__main__":
    from nodes.offline import OfflineChatModel

    with Loopback(OfflineChatModel(), port=int(sys.argv[1])) as serving:
        sys.stdout.write(serving.url + "\n")
        sys.stdout.flush()
        while True:
            time.sleep(3600)
