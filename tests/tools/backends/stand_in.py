"""Stand-ins for AWS's packages and tools, that behave as those are documented to, failures and hangs included.

They are written as files into a folder, because a device worker is a process of its own that imports and runs them.
"""

import ast
import json
import stat
import sys
from pathlib import Path

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

def jit(function=None, **options):
    return Jit(function) if function is not None else jit

def baremetal(function=None, *, save_neff_name="file.neff", save_trace_name="profile.ntff",
              additional_compile_opt="", artifacts_dir=None):
    def wrap(kernel):
        def run(*arguments):
            from . import language
            language.NEFF = None
            _log(event="compile", options=additional_compile_opt, flags=os.environ.get("NEURON_CC_FLAGS"),
                 cores=os.environ.get("NEURON_RT_VISIBLE_CORES"), count=os.environ.get("NEURON_RT_NUM_CORES"),
                 environment=sorted(os.environ), pid=os.getpid(),
                 shapes=[list(np.shape(a)) for a in arguments])
            language.NEFF = pathlib.Path(save_neff_name)
            result = kernel.function(*arguments)
            language.NEFF.write_bytes(b"NEFF")
            pathlib.Path(save_trace_name).write_bytes(b"NTFF")
            return result
        return run
    return wrap(function) if function is not None else wrap
'''

_LANGUAGE = """
import time, subprocess
import numpy as np

shared_hbm = "shared_hbm"
float32, bfloat16 = np.float32, np.float32
NEFF = None

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

_PROFILER = """#!{python} -IS
import sys
folder = {folder!r}
behaviour = eval(open(folder + "/behaviour").read())
open(folder + "/profiler.log", "a").write(repr(sys.argv[1:]) + "\\n")
verb = sys.argv[1]
mode = behaviour.get(verb, "ok")
if mode == "hang":
    import time
    time.sleep(600)
if mode == "fail":
    print("level=info msg=starting", file=sys.stderr)
    print("level=error msg=cannot attach to the device", file=sys.stderr)
    sys.exit(1)
trace = sys.argv[sys.argv.index("-s") + 1]
if verb == "capture":
    calls = open(folder + "/profiler.log").read()
    open(trace, "w").write(str(calls.count("['capture'") - 1))
if verb == "view" and mode == "garbage":
    print("Processing... done")
elif verb == "view":
    times = behaviour["total_time"]
    summary = dict(behaviour["summary"], total_time=times[int(open(trace).read()) % len(times)])
    print(str({{"7": summary}}).replace("'", '"'))
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
        profiler.write_text(_PROFILER.format(python=sys.executable, folder=str(folder)))
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

    def behave(self, **how: object) -> None:
        """What neuron-profile does from now on."""
        behaviour = {"summary": SUMMARY, "total_time": [0.000500], **how}
        (self.folder / "behaviour").write_text(repr(behaviour))

    def profiler_calls(self) -> list[list[str]]:
        """The arguments of each run of neuron-profile."""
        log = self.folder / "profiler.log"
        return [ast.literal_eval(line) for line in log.read_text().splitlines()] if log.exists() else []

    def launches(self) -> list[dict]:
        """What nki.baremetal saw, each time."""
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []
