"""On which file systems a database is opened."""

from pathlib import Path

import msgspec
import pytest

from memory_svc.app import open_storage
from memory_svc.errors import Unavailable
from memory_svc.settings import Settings
from memory_svc.storage.sqlite import host

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:31 / /data rw,relatime shared:1 master:2 - nfs4 store:/export rw
31 30 8:1 / /data/local rw,relatime - xfs /dev/sdb1 rw
32 27 0:33 / /with\\040blank rw,relatime - fuse.sshfs far:/ rw
33 27 8:2 / /twice rw - ext4 /dev/sdc1 rw
34 27 0:34 / /twice rw - virtiofs shared rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/memory.db", "ext4"),
        ("/data/memory.db", "nfs4"),
        ("/data/local/memory.db", "xfs"),
        ("/database/memory.db", "ext4"),
        ("/with blank/memory.db", "fuse.sshfs"),
        ("/twice/memory.db", "virtiofs"),
    ],
)
def test_the_mount_nearest_to_the_path_says_what_it_lies_on(path: str, kind: str) -> None:
    assert host.file_system(Path(path), MOUNTS) == kind


def test_where_nothing_is_mounted_nothing_is_said() -> None:
    assert host.file_system(Path("/data"), "") == ""


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse.sshfs", "fuse", "ceph"])
def test_a_shared_file_system_is_refused_with_its_kind_and_the_remedy(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "MOUNTS", mounts(tmp_path, kind))
    with pytest.raises(Unavailable, match=rf"{kind}\).*MEMORY_DATA_DIR.*MEMORY_ALLOW_SHARED_FILES"):
        host.refuse_shared(tmp_path / "memory.db")


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "fuseblk", "fuse.fuse-overlayfs"])
def test_a_local_file_system_is_taken(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "MOUNTS", mounts(tmp_path, kind))
    host.refuse_shared(tmp_path / "memory.db")


def test_a_system_that_does_not_tell_its_mounts_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "MOUNTS", tmp_path / "none")
    host.refuse_shared(tmp_path / "memory.db")


async def test_on_a_shared_file_system_nothing_is_made_unless_it_is_allowed(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "MOUNTS", mounts(tmp_path, "nfs4"))
    with pytest.raises(Unavailable, match="nfs4"):
        open_storage(settings)
    assert [path.name for path in tmp_path.iterdir()] == ["mountinfo"]
    await open_storage(msgspec.structs.replace(settings, allow_shared_files=True)).close()
    assert (tmp_path / "memory.db").exists()


def test_a_host_is_its_boot_or_what_it_is_told_to_be() -> None:
    assert host.tenant().host == host.tenant().host != ""
    assert host.tenant("b", 3.0).host == "b"
    assert host.tenant("b", 3.0).seconds == 3.0


def mounts(folder: Path, kind: str) -> Path:
    """A file like /proc/self/mountinfo in which this folder is mounted."""
    file = folder / "mountinfo"
    file.write_text(f"27 1 254:0 / {folder.resolve()} rw - {kind} source rw\n")
    return file
