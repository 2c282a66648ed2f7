"""What a result must say of the machine it was measured on; never its name or its folders."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import apsw

OURS = ("agent-memory", "mcp", "litestar", "uvicorn", "msgspec", "numpy", "apsw")
PEER = ("cpersona", "mcp", "numpy", "aiosqlite")
_VERSIONS = (
    "import json, sys, sqlite3; from importlib.metadata import version as v;"
    " print(json.dumps([*(v(n) for n in sys.argv[1:]), sqlite3.sqlite_version]))"
)


def machine(peers: Mapping[str, Path]) -> dict[str, str]:
    """Processor, system and the versions that decide speed, every server's own."""
    return {
        "processor": _processor(),
        "processors allowed": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}",
        "load average at the end (other work on the machine included)": f"{os.getloadavg()[2]:.1f}",
        "Python": platform.python_version(),
        "ours": ", ".join([*(f"{name} {version(name)}" for name in OURS), f"SQLite {apsw.sqlite_lib_version()}"]),
        **{f"peer {name}": _of_peer(python) for name, python in peers.items()},
    }


def _of_peer(python: Path) -> str:
    asked = subprocess.run(
        [str(python), "-c", _VERSIONS, *PEER], capture_output=True, text=True, check=True, timeout=60
    )
    return ", ".join(f"{name} {found}" for name, found in zip((*PEER, "SQLite"), json.loads(asked.stdout), strict=True))


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    wide = "AVX-512" if "avx512f" in facts.get("flags", "") else "no AVX-512"
    return f"{facts.get('model name', platform.processor())}, {wide}"
