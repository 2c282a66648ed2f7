"""How many processors the process may use, read from files laid out as the kernel does."""

from pathlib import Path

import pytest

from embed_svc import machine


def laid(root: Path, files: dict[str, str]) -> tuple[Path, Path]:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root / "cgroup", root / "self"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, []),
        ({"cgroup/cpu.max": "max 100000\n"}, []),
        ({"cgroup/cpu.max": "200000 100000\n"}, [2]),
        ({"cgroup/cpu.max": "150000 100000\n"}, [2]),
        ({"cgroup/cpu.max": "50000 100000\n"}, [1]),
        ({"self": "0::/a/b\n", "cgroup/a/b/cpu.max": "max 100000\n", "cgroup/a/cpu.max": "300000 100000\n"}, [3]),
        ({"self": "0::/../outside\n", "cgroup/cpu.max": "400000 100000\n"}, [4]),
        ({"cgroup/cpu/cpu.cfs_quota_us": "250000\n", "cgroup/cpu/cpu.cfs_period_us": "100000\n"}, [3]),
        (
            {
                "self": "5:memory:/m\n4:cpu,cpuacct:/docker/a\n0::/\n",
                "cgroup/cpu/docker/a/cpu.cfs_quota_us": "150000\n",
                "cgroup/cpu/docker/a/cpu.cfs_period_us": "100000\n",
            },
            [2],
        ),
        ({"cgroup/cpu/cpu.cfs_quota_us": "-1\n", "cgroup/cpu/cpu.cfs_period_us": "100000\n"}, []),
    ],
)
def test_quotas_are_read_of_the_group_and_those_above(
    tmp_path: Path, files: dict[str, str], expected: list[int]
) -> None:
    cgroups, own = laid(tmp_path, files)
    assert machine._quotas(cgroups, own) == expected


def test_the_quota_cuts_what_affinity_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = machine.processors()
    assert free >= 1
    cgroups, own = laid(tmp_path, {"cgroup/cpu.max": "100000 100000\n"})
    monkeypatch.setattr(machine, "_CGROUPS", cgroups)
    monkeypatch.setattr(machine, "_SELF_CGROUP", own)
    assert machine.processors() == 1


def test_resident_memory_is_that_of_a_python_process() -> None:
    assert 5e6 < machine.resident_bytes() < 1e11


def test_where_the_system_does_not_tell_resident_memory_is_nought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_STATM", tmp_path / "absent")
    assert machine.resident_bytes() == 0
