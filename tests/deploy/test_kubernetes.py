"""What the manifests promise, in every way in which they can be put together."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from embed_svc import models
from embed_svc import settings as embed_settings
from memory_svc import settings as memory_settings
from memory_svc.storage.sqlite.engine import WRITE_SECONDS_MAX
from memory_svc.transports.serving import ANSWER_SECONDS_MAX, CLOSE_SECONDS_MAX
from tests.support.installed import output_of
from tests.support.kubernetes import (
    K8S,
    Manifest,
    Tree,
    containers,
    environment,
    of_kind,
    pods,
    tool,
)
from tests.support.processes import ROOT

# Kustomize is run for each combination.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
VERSIONS = ("1.30", "1.34", "1.37")
OF_OPERATORS = {"ServiceMonitor", "PrometheusRule"}
STARTUP_SECONDS_MIN = 300
EMBED_TAKEN_DOWN_SECONDS = 5
OWN_TOKENS = {"memory-token", "embed-token"}
POD = {"status_podIP": "10.1.2.3", "metadata_namespace": "agent-memory"}
DNS = "k8s-app=kube-dns"
Everything = dict[str, list[Manifest]]


def distinct(everything: Everything, *, with_those_of_operators: bool = False) -> list[Manifest]:
    """Every manifest that comes out anywhere, once."""
    found = {json.dumps(each, sort_keys=True): each for manifests in everything.values() for each in manifests}
    return [each for each in found.values() if with_those_of_operators or each["kind"] not in OF_OPERATORS]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_what_kubernetes_of_that_version_knows(
    version: str, everything: Everything, tmp_path: Path
) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([*distinct(everything), yaml.safe_load((K8S / "namespace.yaml").read_text())]))
    output_of([tool("kubernetes", "kubernetes-validate"), "--strict", "--quiet", "-k", version, str(file)])


def test_a_misspelt_key_would_be_found(whole: list[Manifest], tmp_path: Path) -> None:
    deployment = of_kind(whole, "Deployment")["memory-svc"]
    wrong = json.loads(json.dumps(deployment).replace("terminationGracePeriodSeconds", "terminationGraceSeconds"))
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(wrong))
    with pytest.raises(AssertionError, match="terminationGraceSeconds"):
        output_of([tool("kubernetes", "kubernetes-validate"), "--strict", "-k", "1.34", str(tmp_path / "wrong.yaml")])


def test_every_pod_passes_the_restricted_standard_and_holds_no_credentials_of_the_cluster(
    everything: Everything,
) -> None:
    for name, manifests in everything.items():
        for maker, pod in pods(manifests).items():
            spec = pod["spec"]
            where = f"{name}: {maker}"
            assert spec["automountServiceAccountToken"] is False, where
            assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), where
            held = spec["securityContext"]
            assert held["runAsNonRoot"] is True, where
            assert (held["runAsUser"], held["fsGroup"]) == (10001, 10001), where
            assert held["seccompProfile"] == {"type": "RuntimeDefault"}, where
            kinds = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
            assert kinds <= {"emptyDir", "persistentVolumeClaim", "secret", "configMap"}, where
            assert all("sizeLimit" in volume["emptyDir"] for volume in spec["volumes"] if "emptyDir" in volume), where
        for maker, container in containers(manifests):
            where = f"{name}: {maker}"
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, where
            assert {"cpu", "memory"} <= set(container["resources"]["requests"]), where
            assert "memory" in container["resources"]["limits"], where


def test_no_variable_of_a_service_is_taken_for_a_setting(everything: Everything) -> None:
    for manifests in everything.values():
        assert all(pod["spec"]["enableServiceLinks"] is False for pod in pods(manifests).values())


def test_a_start_may_take_five_minutes_and_what_lives_is_never_asked_about_embeddings(everything: Everything) -> None:
    for manifests in everything.values():
        for deployment in of_kind(manifests, "Deployment").values():
            (container,) = deployment["spec"]["template"]["spec"]["containers"]
            start = container["startupProbe"]
            assert start["periodSeconds"] * start["failureThreshold"] >= STARTUP_SECONDS_MIN
            probes = ("startupProbe", "readinessProbe", "livenessProbe")
            assert [container[probe]["httpGet"] for probe in probes] == [
                {"path": path, "port": "http"} for path in ("/startupz", "/readyz", "/livez")
            ]


def test_a_pod_is_given_the_time_to_stop_that_its_service_takes(everything: Everything) -> None:
    for manifests in everything.values():
        deployments = of_kind(manifests, "Deployment")
        if not deployments:
            continue
        memory, embed = (deployments[name]["spec"]["template"]["spec"] for name in ("memory-svc", "embed-svc"))
        drain = int(environment(manifests, "embed-svc", **POD)["EMBED_STOP_SECONDS_MAX"])
        before = embed["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert embed["terminationGracePeriodSeconds"] > before + drain + EMBED_TAKEN_DOWN_SECONDS
        assert memory["terminationGracePeriodSeconds"] > ANSWER_SECONDS_MAX + CLOSE_SECONDS_MAX + WRITE_SECONDS_MAX


def test_every_image_is_named_once_and_has_the_version_of_the_project(everything: Everything) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    images = {container["image"] for manifests in everything.values() for _, container in containers(manifests)}
    assert images == {f"agent-memory/{name}:{version}" for name in ("memory-svc", "embed-svc")}


def test_both_services_can_be_started_by_the_settings_in_the_manifests(everything: Everything) -> None:
    for manifests in everything.values():
        for name in of_kind(manifests, "Deployment"):
            variables = environment(manifests, name, **POD)
            if name == "memory-svc":
                assert memory_settings.load(variables).host == "0.0.0.0"
            else:
                assert embed_settings.load(variables).token_file


def test_every_name_that_a_manifest_gives_is_that_of_something_there(everything: Everything) -> None:
    for name, manifests in everything.items():
        if name in ("base", "maintenance"):
            continue
        there = {kind: set(of_kind(manifests, kind)) for kind in ("ConfigMap", "Secret", "PersistentVolumeClaim")}
        if "tokens" not in name:
            there["Secret"] = OWN_TOKENS
        there["Secret"] |= {"memory-tls"}
        for kind, asked in named(manifests):
            assert asked in there[kind], f"{name}: {kind} {asked}"
        for monitor in of_kind(manifests, "ServiceMonitor").values():
            selected = monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"]
            (endpoint,) = monitor["spec"]["endpoints"]
            service = of_kind(manifests, "Service")[selected]
            assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
            assert f"{service['metadata']['labels'][monitor['spec']['jobLabel']]}-svc" == selected


def named(value: Any) -> list[tuple[str, str]]:
    """Every (kind, name) that is named anywhere in a manifest."""
    keys = {
        "secretName": lambda found: ("Secret", found),
        "claimName": lambda found: ("PersistentVolumeClaim", found),
        "configMapRef": lambda found: ("ConfigMap", found["name"]),
        "configMapKeyRef": lambda found: ("ConfigMap", found["name"]),
        "credentials": lambda found: ("Secret", found["name"]),
    }
    if isinstance(value, list):
        return [each for item in value for each in named(item)]
    if not isinstance(value, dict):
        return []
    own = [keys[key](item) for key, item in value.items() if key in keys]
    return own + [each for item in value.values() for each in named(item)]


def test_a_new_token_replaces_the_pods_that_hold_it(tree: Tree) -> None:
    before = pods(tree.render("single", ("tokens",)))
    tree.put_tokens("f" * 40)
    after = pods(tree.render("single", ("tokens",)))
    tree.put_tokens("0" * 40)
    assert all(before[name] != after[name] for name in ("memory-svc", "embed-svc"))


def test_there_is_one_memory_server_and_the_old_one_ends_before_the_new_one_starts(everything: Everything) -> None:
    for name, manifests in everything.items():
        if name in ("base", "maintenance"):
            continue
        spec = of_kind(manifests, "Deployment")["memory-svc"]["spec"]
        assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"}), name
        assert of_kind(manifests, "PersistentVolumeClaim")["memory-data"]["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_what_an_autoscaler_counts_is_counted_by_nobody_else_and_can_be_drained(everything: Everything) -> None:
    scaled = [manifests for name, manifests in everything.items() if name.startswith("embed-scaled")]
    for manifests in scaled:
        (scaler,) = of_kind(manifests, "HorizontalPodAutoscaler").values()
        target = of_kind(manifests, "Deployment")[scaler["spec"]["scaleTargetRef"]["name"]]
        assert "replicas" not in target["spec"]
        assert {"hostname", "zone"} == {
            each["topologyKey"].rpartition("/")[2]
            for each in target["spec"]["template"]["spec"]["topologySpreadConstraints"]
        }
        assert of_kind(manifests, "PodDisruptionBudget")["embed-svc"]["spec"]["maxUnavailable"] == 1


def test_nothing_goes_out_but_to_the_embedding_server_and_to_ask_for_names(everything: Everything) -> None:
    """A policy that names no destination allows every one, so each must."""
    for name in ("single", "embed-scaled", "single+ingress+monitoring+tokens"):
        assert goes_out(everything[name], "memory-svc") == {"app.kubernetes.io/name=embed-svc", DNS}
        assert goes_out(everything[name], "embed-svc") == set()
    asked = everything["single+model+traces"]
    assert goes_out(asked, "embed-svc") == {"kubernetes.io/metadata.name=observability", DNS}
    assert goes_out(asked, "model-download") == {"0.0.0.0/0", "::/0", DNS}


def test_traces_are_sent_where_they_are_let_out_and_nowhere_else(everything: Everything) -> None:
    for name, manifests in everything.items():
        for service in of_kind(manifests, "Deployment"):
            variables = environment(manifests, service, **POD)
            settings = memory_settings if service == "memory-svc" else embed_settings
            assert settings.traces_asked(variables) is ("traces" in name), name
            if "traces" in name:
                assert urlsplit(variables["OTEL_EXPORTER_OTLP_ENDPOINT"]).port == 4318
                assert "kubernetes.io/metadata.name=observability" in goes_out(manifests, service)


def goes_out(manifests: list[Manifest], name: str) -> set[str]:
    """Where the pods of that name may go."""
    labels = pods(manifests)[name]["metadata"]["labels"]
    found, is_closed = set(), False
    for policy in of_kind(manifests, "NetworkPolicy").values():
        if not selects(policy["spec"]["podSelector"], labels) or "Egress" not in policy["spec"]["policyTypes"]:
            continue
        is_closed = True
        for rule in policy["spec"].get("egress", ()):
            assert rule["ports"], policy["metadata"]["name"]
            found |= {destination(peer) for peer in rule["to"]}
    assert is_closed, name
    return found


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    """Whether a selector of pods means one with these labels."""
    among = all(labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", ()))
    return among and selector.get("matchLabels", {}).items() <= labels.items()


def destination(peer: Manifest) -> str:
    """What a policy allows, in a word: the pods' label, else the namespace's, else the addresses."""
    if "ipBlock" in peer:
        return str(peer["ipBlock"]["cidr"])
    chosen = (peer.get("podSelector") or peer["namespaceSelector"])["matchLabels"]
    ((label, value),) = chosen.items()
    return f"{label}={value}"


def test_streams_pass_the_ingress_as_they_come_and_metrics_do_not(whole: list[Manifest]) -> None:
    ingress = of_kind(whole, "Ingress")["memory-svc"]
    notes = {key.rpartition("/")[2]: value for key, value in ingress["metadata"]["annotations"].items()}
    assert notes["proxy-buffering"] == "off"
    assert min(int(notes["proxy-read-timeout"]), int(notes["proxy-send-timeout"])) >= 3600
    (rule,) = ingress["spec"]["rules"]
    assert [rule["host"]] == ingress["spec"]["tls"][0]["hosts"]
    assert rule["host"] in memory_settings.load(environment(whole, "memory-svc", **POD)).allowed_hosts.split(",")
    paths = [each["path"] for each in rule["http"]["paths"]]
    assert paths == ["/mcp", "/sse", "/messages", "/v1", "/openapi.json"]


def test_every_finding_of_checkov_is_waived_with_a_reason_and_every_waiver_is_needed(
    everything: Everything, tmp_path: Path
) -> None:
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(distinct(everything, with_those_of_operators=True)))
    asked = ["-d", str(tmp_path), "--framework", "kubernetes", "--skip-download", "--soft-fail", "--output", "json"]
    report = json.loads(output_of([tool("checkov", "checkov"), *asked]))
    assert report["summary"]["passed"] > 500
    assert report["summary"]["parsing_errors"] == 0
    waived = tomllib.loads((K8S / "checkov.toml").read_text())
    found: dict[str, set[str]] = {}
    for check in report["results"]["failed_checks"]:
        found.setdefault(check["check_id"], set()).add(check["resource"].replace(".agent-memory.", "."))
    assert found == {name: set(waiver["on"]) for name, waiver in waived.items()}
    assert all(len(waiver["why"].split()) > 3 for waiver in waived.values())


def test_the_kustomizations_in_the_guides_can_be_built(tree: Tree) -> None:
    guides = (ROOT / "docs" / "guides" / f"{name}.md" for name in ("kubernetes", "sizing"))
    guide = "\n".join(path.read_text(encoding="utf-8") for path in guides)
    first, *more = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", guide, flags=re.DOTALL))
    asked = json.loads(json.dumps(first).replace("../agent-memory/k8s/", "../"))
    asked["components"] += ["../components/model", "../components/ingress", "../components/traces"]
    for part in more:
        for key, value in part.items():
            asked.setdefault(key, []).extend(value)
    built = tree.built_of(asked)
    assert {container["image"].partition("/")[0] for _, container in containers(built)} == {"registry.example.com"}
    assert environment(built, "embed-svc", **POD)["EMBED_MODEL"] == "bge-m3"
    assert dict(containers(built))["memory-svc"]["resources"]["limits"]["memory"] == "2Gi"
    assert of_kind(built, "PersistentVolumeClaim")["embed-models"]["spec"]["accessModes"] == ["ReadWriteMany"]
    ingress = of_kind(built, "Ingress")["memory-svc"]["spec"]
    assert ingress["rules"][0]["host"] == ingress["tls"][0]["hosts"][0] == "memory.your-company.example"
    assert environment(built, "memory-svc", **POD)["PUBLIC_NAMES"] == "memory.your-company.example"
    for name in ("memory-svc", "embed-svc"):
        assert environment(built, name, **POD)["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://alloy.observability:4318"


def test_the_model_that_is_fetched_is_one_there_is_and_the_one_that_is_served(whole: list[Manifest]) -> None:
    served = environment(whole, "embed-svc", **POD)["EMBED_MODEL"]
    fetched = environment(whole, "model-download", **POD)
    assert models.named(served).name == fetched["MODEL"]
    assert (fetched["HF_HUB_OFFLINE"], environment(whole, "embed-svc", **POD)["HF_HUB_OFFLINE"]) == ("0", "1")
    places = {
        name: {each["mountPath"]: each.get("readOnly", False) for each in container["volumeMounts"]}["/data/models"]
        for name, container in containers(whole)
        if name != "memory-svc"
    }
    assert places == {"embed-svc": True, "model-download": False}
