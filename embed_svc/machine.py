"""What this machine lets the process use: processors allowed, memory resident."""

import ctypes
import os
import sys
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_SELF_CGROUP = Path("/proc/self/cgroup")
_STATM = Path("/proc/self/statm")


def processors() -> int:
    """Return how many processors this process may keep busy, at least 1: its affinity, cut to its cgroup's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    allowed = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min([allowed, *_quotas(_CGROUPS, _SELF_CGROUP)]))


def resident_bytes() -> int:
    """Return the bytes of this process that are in memory now, or 0 where the system does not tell."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if sys.platform == "win32":
        return _windows_resident_bytes()
    return 0


def _quotas(cgroups: Path, self_cgroup: Path) -> list[int]:
    """Return the quotas of this group and those above, in whole processors.

    Version 2 keeps them in `cpu.max` (https://docs.kernel.org/admin-guide/cgroup-v2.html), version 1 in
    `cpu.cfs_quota_us` below `cpu` (https://docs.kernel.org/scheduler/sched-bwc.html).
    """
    unified, legacy = "/", "/"
    for line in self_cgroup.read_text().splitlines() if self_cgroup.exists() else ():
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            unified = group
        elif "cpu" in controllers.split(","):
            legacy = group
    found = [_v2_quota(folder / "cpu.max") for folder in _upwards(cgroups, unified)]
    found += [_v1_quota(folder) for folder in _upwards(cgroups / "cpu", legacy)]
    return [quota for quota in found if quota]


def _upwards(root: Path, group: str) -> list[Path]:
    """Return the folder of a group and of those above, the root last; a group from outside is seen as the root."""
    own = root / group.strip("/")
    folders = [own, *own.parents]
    return [folder for folder in folders if folder.is_relative_to(root) and ".." not in folder.parts] or [root]


def _v2_quota(file: Path) -> int:
    if not file.exists():
        return 0
    quota, _, period = file.read_text().strip().partition(" ")
    return 0 if quota == "max" else _whole(int(quota), int(period or 100_000))


def _v1_quota(folder: Path) -> int:
    quota, period = folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"
    if not quota.exists() or not period.exists():
        return 0
    return _whole(int(quota.read_text()), int(period.read_text()))


def _whole(quota: int, period: int) -> int:
    """Return the processors a quota is worth, rounded up (half a processor still needs one thread); 0 for none."""
    return -(-quota // period) if quota > 0 and period > 0 else 0


def _windows_resident_bytes() -> int:  # pragma: no cover (Windows alone)
    class Counters(ctypes.Structure):
        _fields_ = (
            ("cb", ctypes.c_uint32),
            ("page_faults", ctypes.c_uint32),
            *((name, ctypes.c_size_t) for name in ("peak", "resident", "q1", "q2", "q3", "q4", "pagefile", "peak_pf")),
        )

    counters = Counters()
    counters.cb = ctypes.sizeof(counters)
    kernel = getattr(ctypes, "windll").kernel32  # noqa: B009 - the attribute exists on Windows alone
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    kernel.K32GetProcessMemoryInfo.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
    known = kernel.K32GetProcessMemoryInfo(kernel.GetCurrentProcess(), ctypes.byref(counters), counters.cb)
    return int(counters.resident) if known else 0
