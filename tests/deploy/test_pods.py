"""Both services as the manifests start them: what probes, a scrape, and clients are answered."""

import contextlib
import http.client
from collections.abc import Iterator

import pytest

from tests.support.kubernetes import TOKEN, Manifest, Tree, environment, of_kind, pods
from tests.support.processes import Process, free_port

pytestmark = pytest.mark.e2e
POD = {"status_podIP": "10.1.2.3", "metadata_namespace": "agent-memory"}
PODS = {"memory-svc": "memory_svc", "embed-svc": "embed_svc"}


@pytest.fixture(scope="module")
def manifests(tree: Tree) -> list[Manifest]:
    """One of each, with tokens and a name outside."""
    return tree.render("single", ("ingress", "monitoring", "tokens"))


@pytest.fixture(scope="module")
def running_pods(manifests: list[Manifest], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Process]]:
    """Both services with the environment of their pods; only places and ports are this machine's."""
    folder = tmp_path_factory.mktemp("pods")
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    ports = {name: free_port() for name in PODS}
    with contextlib.ExitStack() as stack:
        found = {}
        for name, module in sorted(PODS.items()):
            variables = environment(manifests, name, **POD)
            here = {key: str(folder / "token") for key in variables if key.endswith("_TOKEN_FILE")}
            here |= {key: str(folder / name) for key in variables if key.endswith("_DATA_DIR")}
            here |= {key: str(ports[name]) for key in variables if key.endswith("_PORT")}
            if "MEMORY_EMBEDDING_URL" in variables:
                here["MEMORY_EMBEDDING_URL"] = f"http://127.0.0.1:{ports['embed-svc']}"
            process = Process(module, folder / name, ports[name], **{**variables, **here})
            stack.callback(process.kill)
            found[name] = process.wait_until_ready()
        yield found


def status(process: Process, path: str, host: str, token: str = "") -> int:
    """What a GET of that path is answered, asked under that host name."""
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=30)
    with contextlib.closing(connection):
        headers = {"Host": host} | ({"Authorization": f"Bearer {token}"} if token else {})
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status


@pytest.mark.parametrize("name", sorted(PODS))
def test_a_kubelet_that_asks_by_the_address_of_the_pod_is_answered_without_a_token(
    name: str, manifests: list[Manifest], running_pods: dict[str, Process]
) -> None:
    container = pods(manifests)[name]["spec"]["containers"][0]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        for host in ("10.1.2.3:8402", "10.9.9.9:8402", "[fd00::7]:8402"):
            assert status(running_pods[name], container[probe]["httpGet"]["path"], host) == 200


def test_prometheus_that_asks_by_the_address_of_the_pod_is_answered_with_the_token(
    manifests: list[Manifest], running_pods: dict[str, Process]
) -> None:
    for monitor in of_kind(manifests, "ServiceMonitor").values():
        process = running_pods[monitor["metadata"]["name"]]
        (endpoint,) = monitor["spec"]["endpoints"]
        assert status(process, endpoint["path"], "10.1.2.3:8402", TOKEN) == 200
        assert status(process, endpoint["path"], "10.1.2.3:8402") == 401


@pytest.mark.parametrize(
    "host", ["memory-svc:8402", "memory-svc.agent-memory.svc.cluster.local:8402", "memory.example.com"]
)
def test_clients_call_by_the_names_of_the_service_and_of_the_ingress(
    host: str, running_pods: dict[str, Process]
) -> None:
    assert status(running_pods["memory-svc"], "/openapi.json", host, TOKEN) == 200


def test_other_names_are_refused(running_pods: dict[str, Process]) -> None:
    assert status(running_pods["memory-svc"], "/openapi.json", "elsewhere.example.com", TOKEN) == 421


def test_the_memory_server_uses_the_embedding_server_with_its_token(running_pods: dict[str, Process]) -> None:
    memory = running_pods["memory-svc"]
    (memory.folder / "token").write_text(TOKEN)
    assert memory.call("store", agent_id="a", content="the harbour is deep")["embedded"] is True
    assert memory.call("recall", agent_id="a", query="harbour")["channels"]["vectors"] == "ran"
