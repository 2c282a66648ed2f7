"""What a result must say of the machine it was measured on; never its name or its folders."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_VERSIONS = (
    "import json, sys; from importlib.metadata import version as v; print(json.dumps([v(n) for n in sys.argv[1:]]))"
)


def machine(ours: Sequence[str], peers: Mapping[str, Path], of_peers: Sequence[str]) -> dict[str, str]:
    """Processor, system and the versions that decide speed.

    ours: packages of this environment. peers: the name of each peer and its Python. of_peers: packages of theirs.
    """
    return {
        "processor": _processor(),
        "processors allowed": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}",
        "load average of 15 minutes (other work on the machine included)": f"{os.getloadavg()[2]:.1f}",
        "Python": platform.python_version(),
        "ours": _versions(sys.executable, ours),
        **{f"peer {name}": _versions(str(python), of_peers) for name, python in peers.items()},
    }


def _versions(python: str, packages: Sequence[str]) -> str:
    asked = subprocess.run([python, "-c", _VERSIONS, *packages], capture_output=True, text=True, check=True, timeout=60)
    return ", ".join(f"{name} {found}" for name, found in zip(packages, json.loads(asked.stdout), strict=True))


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    wide = "AVX-512" if "avx512f" in facts.get("flags", "") else "no AVX-512"
    return f"{facts.get('model name', platform.processor())}, {wide}"
