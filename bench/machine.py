"""What a result must say of the machine it was measured on; never its name or its folders."""

import json
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

_LIBRARIES = ("numpy", "onnxruntime", "tokenizers")
_VERSIONS = (
    "import json, sys; from importlib.metadata import version as v; print(json.dumps([v(n) for n in sys.argv[1:]]))"
)


def machine(peer_python: Path) -> dict[str, str]:
    """Return processor, system and the versions that decide speed, both servers' own."""
    names = (*_LIBRARIES, "cembedding")
    asked = subprocess.run(
        [str(peer_python), "-c", _VERSIONS, *names], capture_output=True, text=True, check=True, timeout=60
    )
    peer = dict(zip(names, json.loads(asked.stdout), strict=True))
    return {
        "processor": _processor(),
        "processors allowed": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}",
        "load average before": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
        "ours": ", ".join(f"{name} {version(name)}" for name in ("agent-memory", *_LIBRARIES)),
        "peer": ", ".join(f"{name} {peer[name]}" for name in ("cembedding", *_LIBRARIES)),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    wide = "AVX-512" if "avx512f" in facts.get("flags", "") else "no AVX-512"
    return f"{facts.get('model name', platform.processor())}, {wide}"
