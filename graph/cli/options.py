"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]

Target = Annotated[
    Literal["trn1", "trn2"],
    typer.Option(help="The NeuronCore generation to optimize for."),
]

Backend = Annotated[
    Literal["simulator", "neuron", "auto"],
    typer.Option(
        help="Where kernels run: the built-in simulator, this host's Trainium device, or the device if any."
    ),
]

ProblemName = Annotated[
    str | None,
    typer.Option("--problem", "-p", help="A problem of the benchmark; see: accelopt problems"),
]

ReferenceFile = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        help="Your own reference: a Python file with get_inputs, forward, transform_to_nki_inputs "
        "and transform_nki_outputs.",
    ),
]

KernelFile = Annotated[
    Path, typer.Argument(help="A Python file with one @nki.jit kernel.", show_default=False)
]

MaxUsd = Annotated[float | None, typer.Option(help="Never spend more than this on model calls.")]
MaxTokens = Annotated[int | None, typer.Option(help="Never use more tokens than this.")]
MaxTime = Annotated[float | None, typer.Option(help="Never work longer than so many seconds.")]
MaxKernels = Annotated[int | None, typer.Option(help="Never evaluate more kernels than this.")]
