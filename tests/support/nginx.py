"""A real nginx on the configuration of the guide, on a free port of this machine, with a certificate of its own."""

import contextlib
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from tests.support.installed import debian, output_of
from tests.support.processes import ROOT, free_port

GUIDE = ROOT / "docs" / "guides" / "behind-a-proxy.md"
NAME = "memory.example.com"
PREFIX = "/memory"
START_SECONDS = 20.0
AROUND = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/answers;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{inside}
}}
"""


class Proxy(msgspec.Struct, frozen=True):
    """A running nginx: where it publishes the server, whom to trust there, and where it writes what went wrong."""

    url: str
    trusted: ssl.SSLContext
    log: Path


def guided() -> str:
    """The configuration as the guide has it."""
    block = re.search(r"```nginx\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert block
    return block[1]


@contextlib.contextmanager
def nginx(folder: Path, upstream: int, changed: Mapping[str, str] | None = None) -> Iterator[Proxy]:
    """nginx before the server on that port, until the block ends. changed: what stands in for words of the guide."""
    folder.mkdir()
    certificate, key = _certificate(folder)
    port = free_port()
    own = {
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "127.0.0.1:8402;": f"127.0.0.1:{upstream};",
        "/etc/nginx/tls/memory.pem": str(certificate),
        "/etc/nginx/tls/memory.key": str(key),
    }
    inside = guided()
    for before, after in (own | dict(changed or {})).items():
        assert before in inside, before
        inside = inside.replace(before, after)
    written = folder / "nginx.conf"
    written.write_text(AROUND.format(folder=folder, inside=inside), encoding="utf-8")
    with _started(folder, written, port):
        trusted = ssl.create_default_context(cafile=str(certificate))
        yield Proxy(f"https://127.0.0.1:{port}{PREFIX}", trusted, folder / "error.log")


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for the name and for loopback, signed by itself, and its key."""
    certificate, key = folder / "memory.pem", folder / "memory.key"
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    named = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME},IP:127.0.0.1"]
    output_of([debian("openssl", "openssl"), *made, *named, "-out", str(certificate), "-keyout", str(key)])
    return certificate, key


@contextlib.contextmanager
def _started(folder: Path, written: Path, port: int) -> Iterator[None]:
    command = [debian("nginx", "nginx"), "-p", str(folder), "-c", str(written), "-e", str(folder / "error.log")]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        ends = time.monotonic() + START_SECONDS
        while not _listens(port):
            told = (folder / "output").read_text()
            assert process.poll() is None, told
            assert time.monotonic() < ends, told
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait(10)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
