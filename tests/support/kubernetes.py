"""The manifests of k8s/ as they come out of kustomize, in each way in which they can be put together."""

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.support.installed import environment_of, output_of
from tests.support.processes import ROOT

Manifest = dict[str, Any]
LOCKS = Path(__file__).parent / "deploy"
K8S = ROOT / "k8s"
OVERLAYS = ("single", "embed-scaled")
COMPONENTS = tuple(sorted(path.name for path in (K8S / "components").iterdir()))
TOKEN = "0123456789abcdef0123456789abcdef"


def tool(environment: str, name: str) -> str:
    """Where a program of a locked environment is, which is installed where it is not there yet."""
    return str(environment_of(environment, LOCKS) / "bin" / name)


class Tree:
    """A copy of k8s/ with tokens in it, from which anything can be rendered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "k8s"
        shutil.copytree(K8S, self.folder)
        self.put_tokens(TOKEN)

    def put_tokens(self, token: str) -> None:
        """Write both tokens."""
        for name in ("memory-token", "embed-token"):
            (self.folder / "components" / "tokens" / name).write_text(token)

    def render(self, overlay: str, components: tuple[str, ...] = ()) -> list[Manifest]:
        """An overlay with these components, as somebody's own kustomization names them."""
        return self.built_of(
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "namespace": "agent-memory",
                "resources": [f"../overlays/{overlay}"],
                "components": [f"../components/{name}" for name in components],
            }
        )

    def built_of(self, asked: Manifest) -> list[Manifest]:
        """What a kustomization gives that stands in a folder beside ours."""
        use = self.folder / "use"
        use.mkdir(exist_ok=True)
        (use / "kustomization.yaml").write_text(json.dumps(asked))
        return self.built("use")

    def built(self, place: str) -> list[Manifest]:
        """What the kustomization in this folder gives."""
        text = output_of([tool("kubernetes", "kubectl"), "kustomize", str(self.folder / place)])
        return list(yaml.load_all(text, Loader=yaml.CSafeLoader))

    def everything(self) -> dict[str, list[Manifest]]:
        """Each overlay with each set of components, and what stands beside them, by name."""
        found = {place: self.built(place) for place in ("base", "maintenance")}
        for overlay in OVERLAYS:
            for count in range(len(COMPONENTS) + 1):
                for components in itertools.combinations(COMPONENTS, count):
                    found["+".join((overlay, *components))] = self.render(overlay, components)
        return found


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    """Those of a kind, by name."""
    return {each["metadata"]["name"]: each for each in manifests if each["kind"] == kind}


def pod_of(manifest: Manifest) -> Manifest | None:
    """The metadata and spec of the pods that a manifest makes, None where it makes none."""
    if manifest["kind"] == "Pod":
        return manifest
    found: Manifest | None = manifest.get("spec", {}).get("template")
    return found


def pods(manifests: list[Manifest]) -> dict[str, Manifest]:
    """The pods that are made, by the name of what makes them."""
    made = ((each["metadata"]["name"], pod_of(each)) for each in manifests)
    return {name: pod for name, pod in made if pod}


def containers(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Every container, with the name of what makes its pod."""
    for name, pod in pods(manifests).items():
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            yield name, container


def environment(manifests: list[Manifest], name: str, **known: str) -> dict[str, str]:
    """What a deployment's container finds in its environment, as a kubelet puts it together.

    known: what only a running pod has, by the path of the field that tells it, its dot an underscore.
    """
    maps = of_kind(manifests, "ConfigMap")
    container = pods(manifests)[name]["spec"]["containers"][0]
    found: dict[str, str] = {}
    for source in container["envFrom"]:
        found |= maps[source["configMapRef"]["name"]]["data"]
    own: dict[str, str] = {}
    for variable in container.get("env", ()):
        source = variable.get("valueFrom", {})
        if "configMapKeyRef" in source:
            value = maps[source["configMapKeyRef"]["name"]]["data"][source["configMapKeyRef"]["key"]]
        elif "fieldRef" in source:
            value = known[source["fieldRef"]["fieldPath"].replace(".", "_")]
        else:
            value = variable["value"]
            for other, text in own.items():
                value = value.replace(f"$({other})", text)
        own[variable["name"]] = value
    return found | own
