"""Writes the rules of Prometheus as the one PrometheusRule that its operator reads; `make rules`."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RULES = ROOT / "observability" / "prometheus" / "rules"
WRITTEN = ROOT / "k8s" / "components" / "monitoring" / "rules.yaml"
GROUPS = "groups:"
HEAD = """\
# Written by `make rules` from observability/prometheus/rules/; edit those instead.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: agent-memory
spec:
  groups:
"""


def prometheus_rule(files: list[str]) -> str:
    """The groups of these files, in order, in one PrometheusRule. What stands before them is left out."""
    groups = [text.partition(f"{GROUPS}\n")[2] for text in files]
    lines = [line for text in groups for line in text.splitlines()]
    return HEAD + "".join(f"  {line}\n" if line else "\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(prometheus_rule([path.read_text(encoding="utf-8") for path in sorted(RULES.glob("*.yml"))]))
