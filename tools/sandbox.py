"""Confinement of a process that is about to run text it does not trust.

Several layers, each independent of the others, so that what one system lacks another layer covers:

* resource limits: memory, CPU time, file size, open files, core dumps (everywhere);
* no new privileges, no capabilities (Linux);
* a system call filter: no sockets, no new processes, no ptrace, no mounts, no shared memory of its own (Linux, x86-64
  and AArch64);
* Landlock: reads only below the Python installation and this program, writes only below the scratch folder, no TCP, no
  signals to others (Linux 5.13 and later);
* namespaces of its own for users, network, IPC and mounts, where the system lets an ordinary process have them.

`confine` applies what there is to the calling process, for good, and says what is in force.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import socket
import struct
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

_LINUX = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True)

# prctl(2) options, from linux/prctl.h.
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522

# unshare(2) flags, from linux/sched.h.
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_CLONE_THREAD = 0x00010000

# mount(2) flags, from linux/mount.h.
_MS_NOSUID = 2
_MS_NODEV = 4
_MS_NOEXEC = 8
_MS_REC = 1 << 14
_MS_PRIVATE = 1 << 18
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1


class Layer(StrEnum):
    """One kind of confinement."""

    limits = "limits"
    privileges = "privileges"
    system_calls = "system_calls"
    landlock = "landlock"
    user_namespace = "user_namespace"
    network_namespace = "network_namespace"
    mount_namespace = "mount_namespace"


class Confinement(BaseModel):
    """What is in force for a worker, and what is not and why."""

    model_config = ConfigDict(frozen=True)

    in_force: dict[Layer, str] = Field(default_factory=dict, description="Layer to what it does here")
    missing: dict[Layer, str] = Field(default_factory=dict, description="Layer to why it is not in force")

    @property
    def blocks_network(self) -> bool:
        """Whether a worker cannot reach the network."""
        return Layer.system_calls in self.in_force or Layer.network_namespace in self.in_force

    @property
    def blocks_writes(self) -> bool:
        """Whether a worker can write nowhere but in its scratch folder."""
        return Layer.landlock in self.in_force or Layer.mount_namespace in self.in_force

    @property
    def blocks_processes(self) -> bool:
        """Whether a worker cannot start programs or other processes."""
        return Layer.system_calls in self.in_force

    @property
    def complete(self) -> bool:
        """Whether network, writes and processes are all blocked."""
        return self.blocks_network and self.blocks_writes and self.blocks_processes

    def statement(self) -> str:
        """One line for people: what holds, and what does not."""
        holds = [
            name
            for name, held in (
                ("no network", self.blocks_network),
                ("no writes outside a scratch folder", self.blocks_writes),
                ("no other processes", self.blocks_processes),
                ("limits on memory, CPU and file size", Layer.limits in self.in_force),
            )
            if held
        ]
        lacks = [
            name
            for name, held in (
                ("network", self.blocks_network),
                ("file system", self.blocks_writes),
                ("processes", self.blocks_processes),
            )
            if not held
        ]
        text = "kernels run with " + (", ".join(holds) or "no confinement")
        if lacks:
            reasons = "; ".join(f"{layer}: {why}" for layer, why in self.missing.items())
            text += f"; NOT confined: {', '.join(lacks)} ({reasons})"
        return text


@dataclass(frozen=True)
class Limits:
    """How much a worker may use."""

    memory_bytes: int = 4 << 30
    """Memory of its own, on top of the interpreter and of the arrays shared with it."""
    shared_bytes: int = 0
    """Arrays that will be mapped into it."""
    cpu_s: int = 360
    file_bytes: int = 16 << 20
    open_files: int = 64
    processes: int = 256
    """Threads count too; enforced for ordinary users only, where the system call filter already forbids processes."""


@dataclass(frozen=True)
class Policy:
    """What a worker may touch."""

    scratch: str
    """The only folder it may write in."""
    readable: tuple[str, ...] = field(default_factory=lambda: python_folders())
    """Folders it may read in."""
    hidden: tuple[str, ...] = ()
    """Folders that must not be readable even where Landlock is missing."""
    parent: int = 0
    """The process whose death must end this one; 0 for none."""


def python_folders() -> tuple[str, ...]:
    """What an interpreter reads while it runs: its installation, its packages, this program's rooms, time zones apart."""
    rooms = Path(__file__).resolve().parent.parent
    folders = {sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values()}
    folders.update(str(rooms / room) for room in ("tools", "nkibench"))
    folders.update(("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"))
    # Wherever else packages come from, as in an environment that adds folders by .pth files.
    folders.update(
        str(path) for path in sys.path if path and Path(path).name in ("site-packages", "dist-packages")
    )
    return tuple(sorted(folder for folder in folders if os.path.isdir(folder)))


def confine_device_worker(policy: Policy) -> Confinement:
    """Confines a process that drives a Neuron device: it may start compilers and open devices, not the network.

    Its memory is not limited, because the compiler's is not known; its time is, by whoever waits for it.
    """
    in_force: dict[Layer, str] = {}
    device = "a device worker needs files, devices and compilers"
    missing: dict[Layer, str] = {
        layer: device for layer in Layer if layer not in (Layer.privileges, Layer.system_calls)
    }
    if _LINUX:
        if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
            in_force[Layer.privileges] = "no new privileges"
        _filter_system_calls(in_force, missing, device=True)
        if policy.parent:
            die_with_parent(policy.parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return Confinement(in_force=in_force, missing=missing)


def confine(policy: Policy, limits: Limits) -> Confinement:
    """Confines the calling process for the rest of its life, with every layer that this system offers.

    It must have a single thread. Nothing raises where a layer is not available; the result says so.
    """
    in_force: dict[Layer, str] = {}
    missing: dict[Layer, str] = {}
    os.umask(0o077)
    if _LINUX:
        _enter_namespaces(policy, in_force, missing)
        _drop_privileges(in_force, missing)
    else:
        reason = f"{sys.platform} has no such thing; use Linux to run kernels of strangers"
        missing.update({layer: reason for layer in Layer if layer is not Layer.limits})
    _set_limits(limits, in_force)
    if _LINUX:
        _restrict_files(policy, in_force, missing)
        if policy.parent:
            die_with_parent(policy.parent)
        _filter_system_calls(in_force, missing)
    os.environ.clear()
    return Confinement(in_force=in_force, missing=missing)


def die_with_parent(parent: int) -> None:
    """Has the system kill this process when `parent`, which started it, ends (Linux; elsewhere nothing happens)."""
    if _LINUX:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() not in (parent, 0):
            os._exit(1)


def adopt_orphans() -> None:
    """Makes this process the parent of whatever its children leave behind (Linux; elsewhere nothing happens)."""
    if _LINUX:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _set_limits(limits: Limits, in_force: dict[Layer, str]) -> None:
    own = limits.memory_bytes
    pairs = [
        (resource.RLIMIT_DATA, own),
        (resource.RLIMIT_AS, _mapped_bytes() + own + limits.shared_bytes),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
    ]
    if os.getuid() != 0:
        # The system counts all threads of the user, so the limit has to leave room for those that exist.
        pairs.append((resource.RLIMIT_NPROC, max(limits.processes, 4096)))
    for kind, value in pairs:
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(kind, (value, value))
        except (ValueError, OSError):
            continue
    in_force[Layer.limits] = (
        f"memory {own >> 20} MiB, CPU {limits.cpu_s} s, files of {limits.file_bytes >> 20} MiB at most"
    )


def _mapped_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 2 << 30


def _enter_namespaces(policy: Policy, in_force: dict[Layer, str], missing: dict[Layer, str]) -> None:
    uid, gid = os.getuid(), os.getgid()
    apart = _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS
    mounts_too = True
    if _libc.unshare(_CLONE_NEWUSER | apart | _CLONE_NEWNS) == 0:
        in_force[Layer.user_namespace] = "a user namespace of its own"
        _map_user(uid, gid)
    else:
        why = os.strerror(ctypes.get_errno())
        missing[Layer.user_namespace] = f"{why}; allow unprivileged user namespaces (sysctl) to have it"
        if _libc.unshare(apart) != 0:
            missing[Layer.network_namespace] = os.strerror(ctypes.get_errno())
            missing[Layer.mount_namespace] = missing[Layer.network_namespace]
            return
        mounts_too = _libc.unshare(_CLONE_NEWNS) == 0
    in_force[Layer.network_namespace] = "a network of its own without devices"
    if mounts_too:
        _arrange_mounts(policy, in_force, missing)
    else:
        missing[Layer.mount_namespace] = os.strerror(ctypes.get_errno())


def _map_user(uid: int, gid: int) -> None:
    # A process that changed its user is not dumpable, and may then not write its own maps.
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    for name, text in (
        ("setgroups", b"deny"),
        ("uid_map", f"{uid} {uid} 1".encode()),
        ("gid_map", f"{gid} {gid} 1".encode()),
    ):
        try:
            with open(f"/proc/self/{name}", "wb", buffering=0) as file:
                file.write(text)
        except OSError:
            # Without a map the process is nobody: less, not more, than intended.
            continue


def _arrange_mounts(policy: Policy, in_force: dict[Layer, str], missing: dict[Layer, str]) -> None:
    """Everything read-only but a small scratch in memory; folders to hide covered by empty ones."""
    if _libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None) != 0:
        missing[Layer.mount_namespace] = os.strerror(ctypes.get_errno())
        return
    attributes = struct.pack("=QQQQ", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    result = _syscall("mount_setattr", _AT_FDCWD, b"/", _AT_RECURSIVE, attributes, len(attributes))
    if result != 0:
        missing[Layer.mount_namespace] = f"read-only mounts: {os.strerror(ctypes.get_errno())}"
        return
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    for folder, options in [(policy.scratch, b"size=16m,nr_inodes=1024,mode=0700")] + [
        (folder, b"size=4k,mode=0500") for folder in policy.hidden if os.path.isdir(folder)
    ]:
        if _libc.mount(b"tmpfs", folder.encode(), b"tmpfs", ctypes.c_ulong(flags), options) != 0:
            missing[Layer.mount_namespace] = f"tmpfs: {os.strerror(ctypes.get_errno())}"
            return
    in_force[Layer.mount_namespace] = "all file systems read-only but a scratch of 16 MiB in memory"


def _drop_privileges(in_force: dict[Layer, str], missing: dict[Layer, str]) -> None:
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    nothing = struct.pack("=6I", 0, 0, 0, 0, 0, 0)
    _libc.capset(header, nothing)
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        in_force[Layer.privileges] = "no capabilities, no new privileges"
    else:
        missing[Layer.privileges] = os.strerror(ctypes.get_errno())


# Landlock, from linux/landlock.h: access rights of the file system by the version that introduced them.
_FS_EXECUTE = 1 << 0
_FS_WRITE_FILE = 1 << 1
_FS_READ_FILE = 1 << 2
_FS_READ_DIR = 1 << 3
_FS_REFER = 1 << 13
_FS_TRUNCATE = 1 << 14
_FS_ALL_BY_VERSION = {
    1: (1 << 13) - 1,
    2: (1 << 14) - 1,
    3: (1 << 15) - 1,
    4: (1 << 15) - 1,
    5: (1 << 16) - 1,
}
_NET_BIND_AND_CONNECT_TCP = 3
_SCOPE_UNIX_SOCKETS_AND_SIGNALS = 3
_LANDLOCK_RULE_PATH_BENEATH = 1
_LANDLOCK_CREATE_RULESET_VERSION = 1
_O_PATH = getattr(os, "O_PATH", 0)


def _restrict_files(policy: Policy, in_force: dict[Layer, str], missing: dict[Layer, str]) -> None:
    version = _syscall("landlock_create_ruleset", None, 0, _LANDLOCK_CREATE_RULESET_VERSION)
    if version < 1:
        missing[Layer.landlock] = "this kernel has none or has it switched off (Linux 5.13, lsm=landlock)"
        return
    handled = _FS_ALL_BY_VERSION[min(version, 5)]
    attributes = struct.pack("=Q", handled)
    if version >= 4:
        attributes += struct.pack("=Q", _NET_BIND_AND_CONNECT_TCP)
    if version >= 6:
        attributes += struct.pack("=Q", _SCOPE_UNIX_SOCKETS_AND_SIGNALS)
    ruleset = _syscall("landlock_create_ruleset", attributes, len(attributes), 0)
    if ruleset < 0:
        missing[Layer.landlock] = os.strerror(ctypes.get_errno())
        return
    try:
        read = _FS_EXECUTE | _FS_READ_FILE | _FS_READ_DIR
        for folder in policy.readable:
            _allow_beneath(ruleset, folder, read & handled)
        _allow_beneath(ruleset, policy.scratch, handled & ~_FS_EXECUTE)
        for device in ("/dev/null", "/dev/zero", "/dev/urandom"):
            _allow_beneath(ruleset, device, _FS_READ_FILE)
        if _syscall("landlock_restrict_self", ruleset, 0) != 0:
            missing[Layer.landlock] = os.strerror(ctypes.get_errno())
            return
    finally:
        os.close(ruleset)
    in_force[Layer.landlock] = f"version {version}: reads in Python's folders, writes in the scratch folder"


def _allow_beneath(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, _O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        _syscall("landlock_add_rule", ruleset, _LANDLOCK_RULE_PATH_BENEATH, struct.pack("=Qi", access, fd), 0)
    finally:
        os.close(fd)


# System call numbers: x86-64 (arch/x86/entry/syscalls/syscall_64.tbl), AArch64 (include/uapi/asm-generic/unistd.h).
_SYSCALLS: dict[str, tuple[int | None, int | None]] = {
    "mount_setattr": (442, 442),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    "clone": (56, 220),
    "clone3": (435, 435),
    "prctl": (157, 167),
}
_NETWORK_SYSCALLS: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "accept": (43, 202),
    "accept4": (288, 242),
    "bind": (49, 200),
    "listen": (50, 201),
    # These could hand descriptors out.
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
}
_PROCESS_SYSCALLS: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
}
_MEMORY_SYSCALLS: dict[str, tuple[int | None, int | None]] = {
    # Memory outside the limits.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
}
_SYSTEM_SYSCALLS: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "setuid": (105, 146),
    "setgid": (106, 144),
    "setreuid": (113, 145),
    "setregid": (114, 143),
    "setresuid": (117, 147),
    "setresgid": (119, 149),
    "setgroups": (116, 159),
    "personality": (135, 92),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "fanotify_init": (300, 262),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "syslog": (103, 116),
}
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7), "arm64": (1, 0xC00000B7)}
"""Machine name to the column above and to the audit architecture of linux/audit.h."""
_X32_BIT = 0x40000000

# Classic BPF, from linux/bpf_common.h and linux/seccomp.h.
_LOAD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_GREATER_OR_EQUAL = 0x35
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_FAIL = 0x00050000
_KILL_PROCESS = 0x80000000
_OFFSET_NUMBER, _OFFSET_ARCHITECTURE, _OFFSET_FIRST_ARGUMENT = 0, 4, 16


def _syscall(name: str, *arguments: object) -> int:
    architecture = _ARCHITECTURES.get(platform.machine())
    number = _SYSCALLS[name][architecture[0]] if architecture else None
    if number is None:
        ctypes.set_errno(errno.ENOSYS)
        return -1
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return int(_libc.syscall(ctypes.c_long(number), *converted))


def _filter_system_calls(
    in_force: dict[Layer, str], missing: dict[Layer, str], *, device: bool = False
) -> None:
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None:
        missing[Layer.system_calls] = f"no filter for {platform.machine()}"
        return
    program = _filter_program(*architecture, device=device)
    buffer = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog { unsigned short len; struct sock_filter *filter; }, padded to the pointer's alignment.
    descriptor = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, descriptor, 0, 0) != 0:
        missing[Layer.system_calls] = os.strerror(ctypes.get_errno())
        return
    in_force[Layer.system_calls] = (
        "no internet sockets, no ptrace, no mounts"
        if device
        else "no sockets, no processes, no ptrace, no mounts"
    )


def _filter_program(column: int, audit_architecture: int, *, device: bool) -> bytes:
    """The filter: foreign architectures die, whatever is forbidden fails with EPERM, the rest is allowed.

    A `device` worker may start processes and open local sockets.
    """

    def step(code: int, value: int, when_true: int = 0, when_false: int = 0) -> bytes:
        return struct.pack("=HBBI", code, when_true, when_false, value)

    def fail(error: int) -> bytes:
        return step(_RETURN, _FAIL | error)

    forbidden = dict(_SYSTEM_SYSCALLS)
    if not device:
        forbidden |= _NETWORK_SYSCALLS | _PROCESS_SYSCALLS | _MEMORY_SYSCALLS
    steps = [
        step(_LOAD, _OFFSET_ARCHITECTURE),
        step(_JUMP_EQUAL, audit_architecture, 1, 0),
        step(_RETURN, _KILL_PROCESS),
        step(_LOAD, _OFFSET_NUMBER),
        step(_JUMP_GREATER_OR_EQUAL, _X32_BIT, 0, 1),
        fail(errno.EPERM),
    ]
    for numbers in forbidden.values():
        number = numbers[column]
        if number is not None:
            steps += [step(_JUMP_EQUAL, number, 0, 1), fail(errno.EPERM)]
    if device:
        steps += [
            step(_JUMP_EQUAL, _NETWORK_SYSCALLS["socket"][column] or 0, 0, 4),
            step(_LOAD, _OFFSET_FIRST_ARGUMENT),
            step(_JUMP_EQUAL, socket.AF_INET, 1, 0),
            step(_JUMP_EQUAL, socket.AF_INET6, 0, 1),
            fail(errno.EPERM),
            step(_RETURN, _ALLOW),
        ]
        return b"".join(steps)
    clone, clone3, prctl = (_SYSCALLS[name][column] or 0 for name in ("clone", "clone3", "prctl"))
    steps += [
        # clone3 hides its flags in memory; without it the C library falls back to clone.
        step(_JUMP_EQUAL, clone3, 0, 1),
        fail(errno.ENOSYS),
        # Threads are named through prctl; nothing else of it is needed.
        step(_JUMP_EQUAL, prctl, 0, 4),
        step(_LOAD, _OFFSET_FIRST_ARGUMENT),
        step(_JUMP_EQUAL, _PR_SET_NAME, 1, 0),
        fail(errno.EPERM),
        step(_RETURN, _ALLOW),
        # BLAS starts threads; a clone that is not a thread is a process.
        step(_JUMP_EQUAL, clone, 0, 3),
        step(_LOAD, _OFFSET_FIRST_ARGUMENT),
        step(_JUMP_ANY_BIT, _CLONE_THREAD, 1, 0),
        fail(errno.EPERM),
        step(_RETURN, _ALLOW),
    ]
    return b"".join(steps)


def forbidden_attempts(outside: str = "/etc/passwd") -> dict[str, bool]:
    """Tries, in a confined process, what must not work; maps each attempt to whether it was refused.

    `outside` is a readable file in a folder that the policy does not name.
    """

    def start_process() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)

    def write() -> None:
        with tempfile.TemporaryFile(dir="/tmp"):
            pass

    def read() -> None:
        with open(outside, "rb"):
            pass

    attempts: dict[str, Callable[[], object]] = {
        "open a socket": lambda: socket.socket().close(),
        "start a process": start_process,
        "write outside": write,
        "read outside": read,
        "signal its parent": lambda: os.kill(os.getppid() or 1, 0),
    }
    refused = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except OSError:
            refused[name] = True
        else:
            refused[name] = False
    return refused
