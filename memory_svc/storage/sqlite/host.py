"""What the host says of itself: who it is, and on which file system a path lies."""

import contextlib
import platform
import re
import subprocess
import sys
from pathlib import Path

import msgspec

from memory_svc.errors import Unavailable

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MOUNTS = Path("/proc/self/mountinfo")
# Several hosts may see them at once, or shared memory and locks do not hold there: SQLite's log needs both.
NETWORK = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "orangefs", "smb3", "smbfs"}
)
PASSED_IN = frozenset({"9p", "drvfs", "fakeowner", "fuse", "prl_fs", "vboxsf", "virtiofs"})
LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs"})
ESCAPED = re.compile(r"\\([0-7]{3})")
LEASE_SECONDS = 20.0


class Tenant(msgspec.Struct, frozen=True):
    """Who asks for the lease: what no two running hosts share, a name to tell, the longest silence in seconds."""

    host: str
    name: str
    seconds: float = LEASE_SECONDS


def tenant(host: str = "", seconds: float = LEASE_SECONDS) -> Tenant:
    """This host under that identity; without one its kernel's boot id, which containers of one host share."""
    return Tenant(host or _boot_id() or platform.node(), platform.node() or "unnamed", seconds)


def refuse_shared(path: Path) -> None:
    """Raise Unavailable when a database at this path would lie on a file system that cannot keep it whole."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    kind = file_system(path.resolve(), mounts)
    if kind in NETWORK | PASSED_IN or (kind.startswith("fuse.") and kind not in LOCAL_FUSE):
        raise Unavailable(
            f"{path} lies on a file system ({kind}) where SQLite's log is not safe: locks and shared memory do not"
            " reach every process there, and a database can be damaged. Set MEMORY_DATA_DIR to a folder on a local"
            " disk; or, where you know that one process alone opens it, MEMORY_ALLOW_SHARED_FILES=true"
        )


def file_system(path: Path, mounts: str) -> str:
    """The kind of file system that a path lies on, by the text of /proc/self/mountinfo; "" where that does not say."""
    found, depth = "", -1
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = Path(ESCAPED.sub(lambda escape: chr(int(escape[1], 8)), fields[4]))
        # Of two mounts on one point the later one is seen.
        if path.is_relative_to(point) and len(point.parts) >= depth:
            found, depth = right.split(" ")[0], len(point.parts)
    return found


def _boot_id() -> str:
    with contextlib.suppress(OSError):
        if sys.platform == "darwin":
            asked = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
            return subprocess.run(asked, capture_output=True, text=True, check=False, timeout=5).stdout.strip()
        return BOOT_ID.read_text(encoding="ascii").strip()
    return ""
