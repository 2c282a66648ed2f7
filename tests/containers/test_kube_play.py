"""The manifests, played for real: by podman, which takes pods as Kubernetes does, from the images of this checkout."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.containers import Memory, Podman, until
from tests.support.kubernetes import TOKEN, Manifest, Tree, of_kind, pods
from tests.support.processes import free_port

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]
# Aliases on podman's network stand for the services, and nothing there holds anybody to a policy.
LEFT_OUT = {"Service", "NetworkPolicy"}
PLAYED = {"ConfigMap", "Secret", "PersistentVolumeClaim", "Deployment"}
SERVICES = ("embed-svc", "memory-svc")
STATE = """
import os
status = dict(line.split(":", 1) for line in open("/proc/1/status").read().splitlines() if ":" in line)
print(os.getuid(), os.getgid(), *(int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")))
print(int(status["NoNewPrivs"]), int(status["Seccomp"]))
"""


class Cluster:
    """The overlay `single` on a network of its own, under names that nothing else on this machine has."""

    def __init__(self, podman: Podman, folder: Path, port: int) -> None:
        self.podman, self._folder, self._network = podman, folder, f"tests-{port}"
        asked = yaml.safe_load((Path(__file__).parent / "played.yaml").read_text()) | {"nameSuffix": f"-{port}"}
        manifests = Tree(folder).built_of(asked)
        assert {each["kind"] for each in manifests} == PLAYED | LEFT_OUT
        self.pods = {name: pods(manifests)[f"{name}-{port}"] for name in SERVICES}
        self.pods["memory-svc"]["spec"]["containers"][0]["ports"][0]["hostPort"] = port
        self.containers = {name: f"{name}-{port}-pod-0-{name}" for name in SERVICES}
        self._secrets, maps, self._claims, deployments = (
            list(of_kind(manifests, kind).values())
            for kind in ("Secret", "ConfigMap", "PersistentVolumeClaim", "Deployment")
        )
        self._files = {
            name: self._file(name, *maps, deployment) for name, deployment in zip(SERVICES, deployments, strict=True)
        }

    def prepare(self) -> None:
        """What outlives the pods: the network, the secrets, the claim."""
        self.podman.run("network", "create", self._network)
        for secret in self._secrets:
            # Podman hands the values on as they are written here, encoded or not.
            plain = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
            file = self._file("secret", secret | {"data": plain})
            self.podman.run("secret", "create", secret["metadata"]["name"], str(file))
        self.podman.run("kube", "play", f"--network={self._network}", str(self._file("claim", *self._claims)))

    def play(self) -> None:
        """Make the pods, and wait until every probe of theirs passes."""
        for name, file in self._files.items():
            self.podman.run("kube", "play", f"--network={self._network}:alias={name}", str(file))
        for name in SERVICES:
            until(lambda name=name: self.is_healthy(name), 90, f"{name}: {self.podman.logs(self.containers[name])}")

    def is_healthy(self, name: str) -> bool:
        """Whether the probes pass, and podman has taken over the one that it knows."""
        container = self.pods[name]["spec"]["containers"][0]
        probes = [container[probe]["exec"]["command"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")]
        asked = [("exec", self.containers[name], *command) for command in probes]
        asked.append(("healthcheck", "run", self.containers[name]))
        return not any(self.podman.run(*each, status=None).strip() for each in asked)

    def down(self) -> None:
        """Take the pods away."""
        for file in reversed(self._files.values()):
            self.podman.run("kube", "down", str(file))

    def remove(self) -> None:
        """Take everything away."""
        for file in self._files.values():
            self.podman.run("kube", "down", str(file), status=None)
        names = [each["metadata"]["name"] for each in (*self._claims, *self._secrets)]
        self.podman.run("volume", "rm", "--force", *names, status=None)
        self.podman.run("secret", "rm", *names[len(self._claims) :], status=None)
        self.podman.run("network", "rm", "--force", self._network, status=None)

    def _file(self, name: str, *manifests: Manifest) -> Path:
        file = self._folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump_all(manifests))
        return file


@pytest.fixture(scope="module")
def port() -> int:
    """Where the memory server is published."""
    return free_port()


@pytest.fixture(scope="module")
def cluster(podman: Podman, port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Both pods, played and healthy."""
    made = Cluster(podman, tmp_path_factory.mktemp("played"), port)
    try:
        made.prepare()
        made.play()
        yield made
    finally:
        made.remove()


@pytest.mark.parametrize("name", SERVICES)
def test_a_pod_runs_as_it_is_restricted(cluster: Cluster, name: str) -> None:
    def told(program: str, status: int = 0) -> str:
        return cluster.podman.run("exec", cluster.containers[name], "python", "-c", program, status=status)

    assert told(STATE).split() == ["10001", "10001", "0", "0", "0", "1", "2"]
    for place in ("/opt/agent-memory/x", f"/secrets/{name.removesuffix('-svc')}/x"):
        assert "Read-only file system" in told(f"open({place!r}, 'w')", status=1)
    held = cluster.podman.inspect(cluster.containers[name])["HostConfig"]
    assert (held["ReadonlyRootfs"], held["Privileged"], held["Memory"]) == (True, False, 1 << 30)


def test_what_was_stored_is_in_the_claim_when_the_pods_are_gone(cluster: Cluster, port: int) -> None:
    memory = Memory(port, TOKEN)
    assert memory.call("store", agent_id="me", content="The staging database is called harbour.")["embedded"] is True
    cluster.down()
    assert not any(
        cluster.podman.run("ps", "--quiet", "--filter", f"name={each}") for each in cluster.containers.values()
    )
    cluster.play()
    answer = memory.call("recall", agent_id="me", query="What is the database called?")
    assert [row["content"] for row in answer["messages"]] == ["The staging database is called harbour."]
    assert answer["channels"]["vectors"] == "ran"
    assert memory.gauge("memory_embedding_degraded") == 0
