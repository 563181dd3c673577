"""Makes `recorded.sqlite`: a small real search, whole, as its ledger kept it.

python -m tests.graph.record
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from graph.run import optimize
from memory_store.home import Home
from memory_store.ledger import Ledger
from nodes.context import RunContext

RECORDED = Path(__file__).with_name("recorded.sqlite")
RUN = "recorded"

PROBLEM = {
    "name": "scaled-silu",
    "kernel": """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        for j in nl.affine_range(columns // 256):
            tile = nl.load(x[i * 128 : (i + 1) * 128, j * 256 : (j + 1) * 256])
            halved = nl.multiply(tile, 0.5)
            result = nl.multiply(halved, nl.sigmoid(halved))
            nl.store(out[i * 128 : (i + 1) * 128, j * 256 : (j + 1) * 256], value=result)
    return out
""",
    "reference": """import numpy as np

M = 1024
N = 2048


def get_inputs():
    return [np.random.normal(size=(M, N)).astype(np.float32)]


def forward(x):
    halved = 0.5 * x
    return halved / (1.0 + np.exp(-halved))
""",
}
CONTEXT = RunContext(
    beam=2, plans=3, samples=2, iterations=2, top_k=4, capacity=4, memory="paper", embedder="hashing"
)


def main() -> None:
    """Search, and copy the run out of its ledger."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(root=Path(folder))
        result = optimize(PROBLEM, CONTEXT, home=home, run_id=RUN)
        RECORDED.unlink(missing_ok=True)
        with Ledger(home.ledger_url) as source, Ledger(f"sqlite:///{RECORDED}") as kept:
            source.copy_run(result.run_id, kept)
    for rest in RECORDED.parent.glob(f"{RECORDED.name}-*"):
        rest.unlink()


if __name__ == "__main__":
    main()
