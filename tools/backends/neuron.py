"""A Neuron device as a backend: neuronx-cc compiles, the device runs, neuron-profile measures.

Kernels of the `neuronxcc.nki` dialect go through `nki.baremetal`; those of the later `nki` dialect, which has none, run
on the XLA device through torch-neuronx. Either way a NEFF results, which `neuron-profile capture` executes again for
the measurement. All of it is imported and looked up when a worker needs it, in a process that owns one NeuronCore.

Flags, warm-ups and repeats are those of the AccelOpt paper's harness (arXiv 2511.15915).
"""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .. import gate
from ..kernel import Dialect, Kernel
from ..profile import BackendName, Bounds, Profile, profile_from_counters
from ..worker import Fault
from . import ArrayType, Narrowing

COMPILE_OPTIONS = "--disable-dge --logical-nc-config=1"
ENVIRONMENT = {"NEURON_CC_FLAGS": "--auto-cast=none", "NEURON_RT_NUM_CORES": "1"}
WARM_UPS = 2
RUNS = 10
MAX_ROUNDS = 10
SPREAD_LIMIT = {"trn1": 0.01, "trn2": 0.04}
"""(max - min) / min of the runs of a round, above which the round is repeated."""

_PROFILER = "neuron-profile"
_TOOLS_FOLDER = "/opt/aws/neuron/bin"
_PROFILER_TIMEOUT_S = 60.0
_MEASURING_BUDGET_S = 120.0
DEVICES = Path("/dev")
_PRODUCT_NAME = Path("/sys/devices/virtual/dmi/id/product_name")
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "LANG", "TMPDIR", "NEURON_FRAMEWORK_DEBUG", "NEURON_LOGICAL_NC_CONFIG")
# Public PyPI carries placeholders under the Neuron packages' names, all of version 1.
_PLACEHOLDER_VERSION = "1."
_DEVICE_SIGNS = ("no neuron device", "/dev/neuron", "nrt_init", "nrt_uninitialized", "no such device")
_RUNTIME_SIGNS = ("nrt_", "nrt ", "neuron_rt", "nerr", "execution failed", "numerical error on device")

Choice = Literal["auto", "simulator", "neuron"]


class BackendUnavailable(Exception):
    """The backend that was asked for cannot work here; the message says what is missing and where to get it."""


@dataclass(frozen=True)
class HostReport:
    """What of a Neuron host was found."""

    devices: tuple[str, ...]
    target: str | None
    compiler: str | None
    profiler: str | None
    torch: str | None
    problems: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether kernels can be compiled, run and measured."""
        return not self.problems


def inspect_host() -> HostReport:
    """Looks for devices and tools, without starting or importing any."""
    devices = tuple(sorted(str(path) for path in DEVICES.glob("neuron[0-9]*")))
    compiler, torch = _version("neuronx-cc"), _version("torch-neuronx")
    profiler = find_profiler()
    problems = []
    if not devices:
        problems.append("no Neuron device (/dev/neuron*): use a Trn1 or Trn2 instance with aws-neuronx-dkms")
    if compiler is None:
        problems.append("neuronx-cc is not installed: it comes from an index of AWS, see docs/device.md")
    elif compiler.startswith(_PLACEHOLDER_VERSION):
        problems.append(f"neuronx-cc {compiler} is the empty placeholder of public PyPI: install AWS's own")
    if profiler is None:
        problems.append("neuron-profile is not on PATH: install aws-neuronx-tools")
    return HostReport(devices, host_target(), compiler, profiler, torch, tuple(problems))


def choose_backend(choice: Choice) -> BackendName:
    """What `choice` means on this machine: `auto` is the device where there is a usable one.

    Raises:
        BackendUnavailable: the device was asked for by name and something is missing.
    """
    if choice == "simulator":
        return "simulator"
    report = inspect_host()
    if report.usable:
        return "neuron"
    if choice == "auto":
        return "simulator"
    raise BackendUnavailable("; ".join(report.problems))


def find_profiler() -> str | None:
    """The path of neuron-profile, or None."""
    return shutil.which(_PROFILER, path=os.pathsep.join((os.environ.get("PATH", ""), _TOOLS_FOLDER)))


def host_target() -> str | None:
    """The target that this host's instance type stands for; None where it does not say."""
    try:
        product = _PRODUCT_NAME.read_text().strip().lower()
    except OSError:
        return None
    families = {"trn1": "trn1", "inf2": "trn1", "trn2": "trn2"}
    return next((target for family, target in families.items() if product.startswith(family)), None)


def worker_environment(core: int) -> dict[str, str]:
    """The variables of a worker that owns NeuronCore `core`: what the tools need, and no secret."""
    path = os.pathsep.join(filter(None, (os.environ.get("PATH", os.defpath), _TOOLS_FOLDER)))
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {**kept, **ENVIRONMENT, "PATH": path, "NEURON_RT_VISIBLE_CORES": str(core)}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@dataclass
class DeviceKernel:
    """A kernel compiled for a device, in the process that compiled it."""

    source: str
    target: str
    launch: Callable[[Sequence[Any]], list[np.ndarray]]
    arguments: list[Any]
    folder: Path
    outputs: list[ArrayType]
    first_summary: dict[str, Any] = field(default_factory=dict)

    def narrowings(self) -> list[Narrowing]:
        """Types below fp32 that the source names; the device's own program cannot be asked."""
        return [Narrowing(name, name, line) for name, line in gate.narrow_types(self.source)]

    def written_inputs(self) -> list[str]:
        """None that the source tells of; each run compares the arguments before and after."""
        return []

    def read_bytes(self) -> None:
        """The device's own program cannot be asked."""

    def dump(self) -> bytes:
        """Nothing: it cannot leave its process."""
        return b""


class NeuronBackend:
    """Compiles, runs and measures on the NeuronCore that belongs to this process."""

    name: BackendName = "neuron"

    def __init__(self, artifacts: Path | None = None) -> None:
        """Keeps NEFF, trace and logs in `artifacts`, or in the current folder, which goes with the process."""
        self._folder = artifacts or Path.cwd()

    def compile(self, source: str, arguments: Sequence[ArrayType | float], target: str) -> DeviceKernel:
        """Compiles, and runs once on zeros, because NKI does both in one call. See `Backend.compile`."""
        _check_target(target)
        kernel = Kernel.from_source(source)
        folder = self._folder / kernel.id
        folder.mkdir(parents=True, exist_ok=True)
        function, grid = _load(kernel, folder)
        if kernel.dialect is Dialect.neuronxcc:
            launch = _baremetal_launcher(function, grid, folder)
        else:
            launch = _xla_launcher(function if grid is None else function[grid], folder)
        blank = [
            np.zeros(value.shape, np.dtype(value.dtype)) if isinstance(value, ArrayType) else value
            for value in arguments
        ]
        outputs = _guarded(lambda: launch(blank), folder)
        types = [ArrayType(tuple(output.shape), output.dtype.name) for output in outputs]
        return DeviceKernel(source, target, launch, blank, folder, types)

    def run(
        self,
        compiled: DeviceKernel,
        inputs: Sequence[np.ndarray],
        into: Sequence[np.ndarray] | None = None,
    ) -> list[np.ndarray]:
        """Runs on the device. See `Backend.run`."""
        tensors = iter(inputs)
        arguments = [
            next(tensors) if isinstance(value, np.ndarray) else value for value in compiled.arguments
        ]
        # The kernel gets copies, so that writing into its arguments is seen and not shared.
        copies = [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]
        outputs = _guarded(lambda: compiled.launch(copies), compiled.folder)
        for number, (before, after) in enumerate(zip(arguments, copies, strict=True)):
            if isinstance(before, np.ndarray) and not np.array_equal(before, after, equal_nan=True):
                raise Fault("incorrect", "inputs_unchanged", f"the kernel wrote into its argument {number}")
        return outputs

    def profile(self, compiled: DeviceKernel) -> tuple[Profile, Bounds | None]:
        """Counters of a first run, and the mean latency of the steadiest round of runs. See `Backend.profile`."""
        profiler = find_profiler()
        if profiler is None:
            raise Fault("unavailable", "neuron_profile", "neuron-profile is not on PATH")
        neff = _only(compiled.folder, "*.neff", "no NEFF was written")
        trace = compiled.folder / "measured.ntff"
        summary = _capture(profiler, neff, trace)
        latencies = _steadiest_round(
            lambda: _total_time_ms(_capture(profiler, neff, trace)), SPREAD_LIMIT[compiled.target]
        )
        profile = profile_from_counters(
            {name: value for name, value in summary.items() if isinstance(value, int | float)},
            backend=self.name,
            target=compiled.target,
            latency_ms=float(np.mean(latencies)),
            band_ms=max(latencies) - min(latencies),
        )
        return profile, None


def _check_target(target: str) -> None:
    actual = host_target()
    if actual is not None and actual != target:
        raise Fault(
            "unavailable",
            "wrong_device",
            f"this host is {actual}; results for {target} must come from {target}",
        )


def _load(kernel: Kernel, folder: Path) -> tuple[Any, Any]:
    """The kernel's function and its launch grid (None without one), from a file: NKI reads the source back while tracing."""
    names = gate.kernel_names(kernel.source)
    if not names:
        raise Fault("rejected", gate.Rule.no_kernel, "no function is decorated with @nki.jit")
    package = "neuronxcc.nki" if kernel.dialect is Dialect.neuronxcc else "nki"
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise Fault("unavailable", "neuronx_cc", f"{package} cannot be imported: {error}") from error
    path = folder / "kernel.py"
    path.write_text(kernel.source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"kernel_{kernel.id}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _compile_fault(error, path) from error
    grid = gate.launch_grid(kernel.source)
    # The gate has seen that these are constants, in NKI's nc and spmd_dim at most.
    sizes = None if grid is None else eval(grid, vars(module))  # noqa: S307
    return getattr(module, names[-1]), sizes


def _baremetal_launcher(
    function: Any, grid: Any, folder: Path
) -> Callable[[Sequence[Any]], list[np.ndarray]]:
    nki = importlib.import_module("neuronxcc.nki")
    run = nki.baremetal(
        save_neff_name=str(folder / "kernel.neff"),
        save_trace_name=str(folder / "first.ntff"),
        additional_compile_opt=COMPILE_OPTIONS,
        artifacts_dir=str(folder),
    )(function)
    run = run if grid is None else run[grid]
    return lambda arguments: _as_arrays(run(*arguments))


def _xla_launcher(function: Any, folder: Path) -> Callable[[Sequence[Any]], list[np.ndarray]]:
    # Where torch-neuronx leaves the NEFF that the measurement needs.
    os.environ["NEURON_COMPILE_CACHE_URL"] = str(folder)
    try:
        torch = importlib.import_module("torch")
        xla = importlib.import_module("torch_xla.core.xla_model")
        importlib.import_module("torch_neuronx")
    except ImportError as error:
        raise Fault(
            "unavailable", "torch_neuronx", f"kernels of the nki package run through torch-neuronx: {error}"
        ) from error
    device = xla.xla_device()

    def launch(arguments: Sequence[Any]) -> list[np.ndarray]:
        moved = [
            torch.from_numpy(np.ascontiguousarray(value)).to(device)
            if isinstance(value, np.ndarray)
            else value
            for value in arguments
        ]
        result = function(*moved)
        xla.mark_step()
        tensors = result if isinstance(result, list | tuple) else [result]
        return [tensor.cpu().numpy() for tensor in tensors]

    return launch


def _as_arrays(result: Any) -> list[np.ndarray]:
    return [np.asarray(array) for array in (result if isinstance(result, list | tuple) else [result])]


def _guarded(call: Callable[[], list[np.ndarray]], folder: Path) -> list[np.ndarray]:
    """Runs NKI, and says whose failure it is: the compiler's before there is a NEFF, the runtime's after."""
    try:
        return call()
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:2000]
        lowered = text.lower()
        if any(sign in lowered for sign in _DEVICE_SIGNS):
            raise Fault("unavailable", "neuron_device", text) from error
        runtime = any(sign in lowered for sign in _RUNTIME_SIGNS)
        if runtime or any(folder.rglob("*.neff")):
            raise Fault("runtime_error", "neuron_runtime", text) from error
        raise _compile_fault(error, folder / "kernel.py") from error


def _compile_fault(error: Exception, path: Path) -> Fault:
    lines = []
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == str(path):
            lines.append(traceback.tb_lineno)
        traceback = traceback.tb_next
    text = " ".join(f"{type(error).__name__}: {error}".split())[:2000]
    return Fault("compile_error", "neuronx_cc", text, line=lines[-1] if lines else None)


def _only(folder: Path, pattern: str, message: str) -> Path:
    found = sorted(folder.rglob(pattern), key=lambda path: path.stat().st_mtime)
    if not found:
        raise Fault("compile_error", "neuronx_cc", message)
    return found[-1]


def _capture(profiler: str, neff: Path, trace: Path) -> dict[str, Any]:
    """Executes the NEFF once under the profiler; its summary."""
    trace.unlink(missing_ok=True)
    _profiler(profiler, "capture", "-n", str(neff), "-s", str(trace))
    text = _profiler(profiler, "view", "--output-format", "summary-json", "-n", str(neff), "-s", str(trace))
    return parse_summary(text)


def _profiler(profiler: str, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [profiler, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROFILER_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"neuron-profile {arguments[0]} did not end within {_PROFILER_TIMEOUT_S:g} s"
        raise Fault("timeout", "neuron_profile", message) from error
    except OSError as error:
        raise Fault("unavailable", "neuron_profile", f"neuron-profile cannot be run: {error}") from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        why = lines[-1] if lines else f"exit code {done.returncode}"
        raise Fault("runtime_error", "neuron_profile", f"neuron-profile {arguments[0]} failed: {why}")
    return done.stdout


def parse_summary(text: str) -> dict[str, Any]:
    """The fields of a summary as `neuron-profile view --output-format summary-json` prints it.

    Raises:
        Fault: it is not such a summary.
    """
    start = text.find("{")
    try:
        document = json.loads(text[start:]) if start >= 0 else None
    except ValueError:
        document = None
    summary = next(iter(document.values()), None) if isinstance(document, dict) else None
    if not isinstance(summary, dict) or not isinstance(summary.get("total_time"), int | float):
        shown = " ".join(text.split())[:200]
        raise Fault("runtime_error", "neuron_profile", f"no summary with a total_time in {shown!r}")
    return summary


def _total_time_ms(summary: Mapping[str, Any]) -> float:
    milliseconds = float(summary["total_time"]) * 1e3
    if not milliseconds > 0:
        raise Fault("runtime_error", "neuron_profile", f"a total_time of {summary['total_time']} s")
    return milliseconds


def _steadiest_round(measure: Callable[[], float], limit: float) -> list[float]:
    """Rounds of warm-ups and runs until one is steady enough; the one of least spread."""
    started = time.monotonic()
    best: list[float] = []
    for _ in range(MAX_ROUNDS):
        for _ in range(WARM_UPS):
            measure()
        latencies = [measure() for _ in range(RUNS)]
        if not best or _spread(latencies) < _spread(best):
            best = latencies
        if _spread(best) <= limit or time.monotonic() - started > _MEASURING_BUDGET_S:
            break
    return best


def _spread(latencies: Sequence[float]) -> float:
    return (max(latencies) - min(latencies)) / min(latencies)


def visible_cores() -> tuple[int, ...]:
    """NeuronCores that this process may use: NEURON_RT_VISIBLE_CORES, or two a device, as Trn1 has them."""
    text = os.environ.get("NEURON_RT_VISIBLE_CORES", "")
    cores: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        with contextlib.suppress(ValueError):
            cores.extend(range(int(first), int(last or first) + 1))
    if cores:
        return tuple(cores)
    per_device = 8 if host_target() == "trn2" else 2
    return tuple(range(per_device * len(inspect_host().devices)))
