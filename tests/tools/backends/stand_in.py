"""Stand-ins for AWS's packages and tools, that behave as those are documented to, failures and hangs included.

They are written as files into a folder, because a device worker is a process of its own that imports and runs them.
"""

import json
import stat
from pathlib import Path
from typing import Any

_NKI = '''
"""Stand-in: runs a kernel's body on NumPy, and writes a NEFF and a trace as nki.baremetal does."""
import json, os, pathlib, time
import numpy as np

LOG = pathlib.Path(__LOG__)

def _log(**fields):
    with LOG.open("a") as file:
        file.write(json.dumps(fields) + "\\n")

class Jit:
    def __init__(self, function):
        self.function = function
    def __getitem__(self, grid):
        return self

class Launch:
    def __init__(self, run, grid=None):
        self.run, self.grid = run, grid
    def __getitem__(self, grid):
        return Launch(self.run, grid)
    def __call__(self, *arguments):
        return self.run(self.grid, *arguments)

def jit(function=None, **options):
    return Jit(function) if function is not None else jit

def baremetal(function=None, *, save_neff_name="file.neff", save_trace_name="profile.ntff",
              additional_compile_opt="", artifacts_dir=None):
    def wrap(kernel):
        def run(grid, *arguments):
            from . import language
            language.NEFF = None
            _log(event="compile", options=additional_compile_opt, flags=os.environ.get("NEURON_CC_FLAGS"),
                 cores=os.environ.get("NEURON_RT_VISIBLE_CORES"), count=os.environ.get("NEURON_RT_NUM_CORES"),
                 environment=sorted(os.environ), pid=os.getpid(),
                 shapes=[list(np.shape(a)) for a in arguments], grid=grid)
            language.NEFF = pathlib.Path(save_neff_name)
            result = kernel.function(*arguments)
            language.NEFF.write_bytes(b"NEFF")
            pathlib.Path(save_trace_name).write_bytes(b"NTFF")
            return result
        return Launch(run)
    return wrap(function) if function is not None else wrap
'''

_LANGUAGE = """
import time, subprocess
import numpy as np

shared_hbm = "shared_hbm"
float32, bfloat16 = np.float32, np.float32
NEFF = None

def nc(n):
    return n

def ndarray(shape, dtype=np.float32, buffer=None):
    return np.full(shape, np.nan, dtype)

def load(source):
    return source.copy()

def store(target, value):
    target[...] = value

def multiply(a, b):
    return a * b

def fail_to_compile(message):
    raise SyntaxError(message)

def fail_to_run(message):
    NEFF.write_bytes(b"NEFF")
    raise RuntimeError(message)

def hang():
    subprocess.Popen(["sleep", "600"])
    time.sleep(600)

def scribble(target):
    target[...] = 1
"""

_LATER = {
    "nki/__init__.py": """
def jit(function=None, **options):
    return function if function is not None else jit
""",
    "nki/language.py": """
import numpy as np
shared_hbm, sbuf = "shared_hbm", "sbuf"
float32 = np.float32
from torch import Tensor

def ndarray(shape, dtype=np.float32, buffer=None):
    return Tensor(np.full(shape, np.nan, dtype), on_device=True)
""",
    "nki/isa.py": """
import os, pathlib

def dma_copy(dst, src):
    dst.array[...] = src.array

def tensor_scalar(dst, data, op0, operand0):
    dst.array[...] = data.array * operand0

def fail_to_run(message):
    (pathlib.Path(os.environ["NEURON_COMPILE_CACHE_URL"]) / "model.neff").write_bytes(b"NEFF")
    raise RuntimeError(message)
""",
    "torch/__init__.py": """
class Tensor:
    def __init__(self, array, on_device=False):
        self.array, self.on_device = array, on_device
        self.shape = array.shape
    def to(self, device):
        assert device == "xla:0"
        return Tensor(self.array.copy(), on_device=True)
    def cpu(self):
        return Tensor(self.array)
    def numpy(self):
        assert not self.on_device, "still on the device"
        return self.array

def from_numpy(array):
    return Tensor(array)
""",
    "torch_xla/__init__.py": "",
    "torch_xla/core/__init__.py": "",
    "torch_xla/core/xla_model.py": """
import os, pathlib

def xla_device():
    return "xla:0"

def mark_step():
    folder = pathlib.Path(os.environ["NEURON_COMPILE_CACHE_URL"]) / "neuronxcc-2" / "MODULE_1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.neff").write_bytes(b"NEFF")
""",
    "torch_neuronx/__init__.py": "",
}

# In sh, because it is started hundreds of times.
_PROFILER = r"""#!/bin/sh
folder=FOLDER
echo "$*" >> "$folder/profiler.log"
verb=$1
mode=
[ -f "$folder/$verb.mode" ] && read -r mode < "$folder/$verb.mode"
case $mode in
  hang) exec sleep 600 ;;
  fail)
    echo "level=info msg=starting" >&2
    echo "level=error msg=cannot attach to the device" >&2
    exit 1 ;;
  garbage)
    echo "Processing... done"
    exit 0 ;;
esac
while [ "$1" != "-s" ]; do shift; done
trace=$2
if [ "$verb" = capture ]; then
  grep -c "^capture" "$folder/profiler.log" > "$trace"
else
  read -r number < "$trace"
  total_time=$(sed -n "${number}{p;q}" "$folder/times")
  read -r last < "$folder/last_time"
  read -r summary < "$folder/summary.json"
  echo "{\"7\": {\"total_time\": ${total_time:-$last}, $summary}}"
fi
"""

SUMMARY = {
    "hbm_read_bytes": 262144,
    "hbm_write_bytes": 262144,
    "sbuf_read_bytes": 300000,
    "sbuf_write_bytes": 300000,
    "psum_read_bytes": 0,
    "psum_write_bytes": 0,
    "hardware_flops": 0,
    "transpose_flops": 0,
    "peak_flops_bandwidth_ratio": 223.78,
    "vector_engine_active_time_percent": 0.4,
    "event_count": 12,
}


class NeuronStandIn:
    """A folder to put on `sys.path` and on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packages, self.tools = folder / "packages", folder / "bin"
        self._log = folder / "nki.log"
        nki = self.packages / "neuronxcc" / "nki"
        nki.mkdir(parents=True)
        self.tools.mkdir()
        (nki.parent / "__init__.py").write_text("")
        (nki / "__init__.py").write_text(_NKI.replace("__LOG__", repr(str(self._log))))
        (nki / "language.py").write_text(_LANGUAGE)
        self.install("neuronx-cc", "2.21.18209.0")
        profiler = self.tools / "neuron-profile"
        profiler.write_text(_PROFILER.replace("FOLDER", str(folder)))
        profiler.chmod(profiler.stat().st_mode | stat.S_IXUSR)
        self.behave()

    def install(self, package: str, version: str) -> None:
        """Has the package's metadata claim `version`."""
        for old in self.packages.glob(f"{package.replace('-', '_')}-*.dist-info"):
            (old / "METADATA").unlink()
            old.rmdir()
        folder = self.packages / f"{package.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")

    def install_torch(self) -> None:
        """Adds the later nki package and what its kernels run through."""
        for name, text in _LATER.items():
            path = self.packages / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def behave(self, **how: Any) -> None:
        """What neuron-profile does from now on."""
        for verb in ("capture", "view"):
            (self.folder / f"{verb}.mode").write_text(f"{how.get(verb, 'ok')}\n")
        times = [str(seconds) for seconds in how.get("total_time", [0.0005])]
        (self.folder / "times").write_text("\n".join(times) + "\n")
        (self.folder / "last_time").write_text(f"{times[-1]}\n")
        (self.folder / "summary.json").write_text(json.dumps(SUMMARY)[1:-1] + "\n")

    def profiler_calls(self) -> list[list[str]]:
        """The arguments of each run of neuron-profile."""
        log = self.folder / "profiler.log"
        return [line.split() for line in log.read_text().splitlines()] if log.exists() else []

    def launches(self) -> list[dict]:
        """What nki.baremetal saw, each time."""
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []
