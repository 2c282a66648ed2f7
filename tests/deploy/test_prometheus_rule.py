"""The rules of the Prometheus operator are those of Prometheus."""

import importlib.util

import yaml

from tests.support.kubernetes import K8S, Manifest, of_kind

SPEC = importlib.util.spec_from_file_location("prometheus_rule", K8S / "prometheus_rule.py")
assert SPEC
assert SPEC.loader
WRITER = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(WRITER)
ONE = """\
# what they are for
groups:
  - name: one
    rules:
      - record: a:b
        expr: |
          (
            sum(x)

          )
"""
TWO = "groups:\n  - name: two\n    rules: []\n"


def test_the_groups_of_every_file_stand_in_one_resource_as_they_were() -> None:
    written = yaml.safe_load(WRITER.prometheus_rule([ONE, TWO]))
    assert written["kind"] == "PrometheusRule"
    assert written["spec"]["groups"] == [*yaml.safe_load(ONE)["groups"], *yaml.safe_load(TWO)["groups"]]


def test_what_is_written_is_current_and_comes_with_the_monitoring(whole: list[Manifest]) -> None:
    rules = [path.read_text() for path in sorted(WRITER.RULES.glob("*.yml"))]
    assert WRITER.WRITTEN.exists() == bool(rules), "run `make rules`"
    if rules:
        assert WRITER.WRITTEN.read_text() == WRITER.prometheus_rule(rules), "run `make rules`"
    assert bool(of_kind(whole, "PrometheusRule")) == bool(rules), "name rules.yaml in the component `monitoring`"
