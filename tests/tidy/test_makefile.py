"""What the tests need is installed where it is not there, and where it cannot be, that is said."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def made(folder: Path, apt_get: str, program: str) -> subprocess.CompletedProcess[str]:
    """`make programs` where that one program is wanted, with an `apt-get` that runs this line."""
    stand_in = folder / "apt-get"
    stand_in.write_text(f"#!/bin/sh\n{apt_get}\n")
    stand_in.chmod(0o755)
    return subprocess.run(
        ["make", "--silent", "programs", f"PROGRAMS={program}", "PACKAGES=its-package"],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_missing_program_is_installed(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    done = made(tmp_path, f'echo "$@" >> {asked}', "no-such-program")
    assert done.returncode == 0, done.stderr
    update, install = asked.read_text().splitlines()
    assert update.startswith("update")
    assert install.startswith("install")
    assert install.endswith("its-package")


def test_nothing_is_installed_where_all_is_there(tmp_path: Path) -> None:
    assert made(tmp_path, "exit 1", "sh").returncode == 0


def test_what_cannot_be_installed_is_named(tmp_path: Path) -> None:
    done = made(tmp_path, "exit 1", "no-such-program")
    assert done.returncode != 0
    assert "need its-package; install them" in done.stderr
