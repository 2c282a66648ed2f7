"""Run inside a network without a route: a memory server, and Claude Code told of it over every wire."""

import fcntl
import json
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

SET_FLAGS = 0x8914
UP_AND_RUNNING = 0x41


def bring_loopback_up() -> None:
    """What `ip link set lo up` does, where there is no ip."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh", b"lo", UP_AND_RUNNING).ljust(40, b"\0"))


def run(plan: dict[str, Any], *arguments: str) -> str:
    """What Claude Code prints."""
    done = subprocess.run(
        [plan["claude"], *arguments], cwd=plan["environment"]["HOME"], env=plan["environment"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout


def wait_until_ready(url: str) -> None:
    """Wait, with a bound, until the server is ready."""
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/readyz", timeout=2).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
        else:
            return
    raise SystemExit("the server did not become ready")


def main() -> None:
    """Serve, register, list; the list is printed."""
    plan: dict[str, Any] = json.loads(sys.argv[1])
    bring_loopback_up()
    server = subprocess.Popen(plan["serve"], env=plan["settings"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait_until_ready(plan["url"])
        bearer = f"Authorization: Bearer {Path(plan['token_file']).read_text().strip()}"
        add = ("mcp", "add")
        run(plan, *add, "--transport", "http", "memory-http", f"{plan['url']}/mcp", "--header", bearer)
        run(plan, *add, "--transport", "sse", "memory-sse", f"{plan['url']}/sse", "--header", bearer)
        wrong = "Authorization: Bearer wrong"
        run(plan, *add, "--transport", "http", "memory-wrong", f"{plan['url']}/mcp", "--header", wrong)
        variables = [part for name, value in plan["stdio_env"].items() for part in ("-e", f"{name}={value}")]
        run(plan, *add, "memory-stdio", *variables, "--", *plan["stdio"])
        sys.stdout.write(run(plan, "mcp", "list"))
    finally:
        server.terminate()
        server.wait(20)


if __name__ == "__main__":
    main()
