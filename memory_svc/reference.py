"""Writes docs/reference/ from the code, so that no page can say anything else."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from memory_svc.observe import Metrics
from memory_svc.services import OPERATIONS
from memory_svc.services.operation import Operation
from memory_svc.settings import PREFIX, Settings
from memory_svc.transports.failures import ROWS
from memory_svc.transports.schema import hints, input_schema

Properties = Mapping[str, Mapping[str, Any]]
LIMITS = {"minimum": "≥", "maximum": "≤", "exclusiveMinimum": ">", "minLength": "length ≥", "maxLength": "length ≤"}
GENERATED = "<!-- Written by `make docs` from the code; edit the code instead. -->\n"


def pages(verbs: Mapping[str, str]) -> dict[str, str]:
    """Every page of the reference by its file name. `verbs`: those of the command line with their summaries."""
    made = {
        "settings.md": settings_page(),
        "operations.md": operations_page(),
        "errors.md": errors_page(),
        "metrics.md": metrics_page(),
        "cli.md": cli_page(verbs),
    }
    return {name: GENERATED + "\n" + text.strip() + "\n" for name, text in made.items()}


def settings_page() -> str:
    """Every setting with its type, default, limits and meaning."""
    schema = msgspec.json.schema(Settings)["$defs"]["Settings"]
    rows = [
        (f"`{PREFIX}{name.upper()}`", _type(field), _default(name, field), field.get("description", ""))
        for name, field in schema["properties"].items()
    ]
    return (
        "# Settings of the memory server\n\nRead from the environment when the server starts. An unknown `MEMORY_` name"
        " or a value that does not fit stops the start and is named. Traces are switched on by OpenTelemetry's own"
        " variables: [which](../guides/observe.md#traces).\n\n"
        + table(("setting", "value", "default", "meaning"), rows)
    )


def operations_page() -> str:
    """Every operation: what it does, what it takes, what it answers."""
    return (
        "# Operations\n\nEach is an MCP tool of that name and `POST /v1/<name>` with the arguments as a JSON object."
        " Arguments that an operation does not know are ignored and named in `ignored_arguments`.\n\n"
        + "\n\n".join(operation_section(operation) for operation in OPERATIONS)
    )


def operation_section(operation: Operation) -> str:
    """One operation."""
    schema = input_schema(operation.request)
    told = ", ".join(name for name, holds in hints(operation).items() if holds) or "none"
    arguments = [
        (f"`{name}`", _type(field), "yes" if name in schema.get("required", ()) else "", field.get("description", ""))
        for name, field in schema["properties"].items()
    ]
    answer = msgspec.json.schema(operation.result)["$defs"]
    fields = answer[operation.result.__name__]
    results = [
        (f"`{name}`", _result_type(field), "" if name in fields.get("required", ()) else "not always")
        for name, field in fields["properties"].items()
    ]
    return "\n\n".join(
        (
            f"## `{operation.name}`",
            operation.summary,
            f"Needs `{operation.needs.name.lower()}`; hints: {told}.",
            table(("argument", "type", "required", "meaning"), arguments),
            f"Answers: {' '.join((operation.result.__doc__ or '').split())}",
            table(("field", "type", ""), results),
        )
    )


def errors_page() -> str:
    """The table of failures."""
    rows = [
        (f"`{row.problem.kind}`", str(row.status), row.mcp, "yes" if row.retry else "no", row.meaning) for row in ROWS
    ]
    body = '{"ok": false, "error": "…", "code": "<kind>", "retry": false, "request_id": "…"}'
    return (
        "# Errors\n\nEvery failure has one body on every wire. `error` names what is wrong and how to mend it.\n\n"
        f"```json\n{body}\n```\n\n" + table(("kind", "HTTP", "MCP", "retry", "when"), rows)
    )


def metrics_page() -> str:
    """Every metric with its labels."""
    rows = []
    for family in Metrics().registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        rows.append((f"`{family.name}{suffix}`", family.type, family.documentation))
    head = (
        "# Metrics of the memory server\n\n`GET /metrics`, with the token. On Linux also `process_…`: memory, processor"
        " time, open files and start of the process. How to watch them: [observe](../guides/observe.md).\n\n"
    )
    return head + table(("metric", "type", "meaning"), sorted(rows))


def cli_page(verbs: Mapping[str, str]) -> str:
    """Every verb of the command line."""
    rows = [(f"`memory-svc {name}`", summary) for name, summary in verbs.items()]
    return "# Command line\n\n" + table(("command", "what it does"), rows)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    columns = tuple(head)
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _type(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    limits = ", ".join(f"{sign} {field[name]}" for name, sign in LIMITS.items() if name in field)
    return f"{field.get('type', 'any')}{f' ({limits})' if limits else ''}"


def _result_type(field: Mapping[str, Any]) -> str:
    if "$ref" in field:
        return "object"
    if "anyOf" in field:
        return " or ".join(_result_type(choice) for choice in field["anyOf"])
    if field.get("type") == "array":
        return f"list of {_result_type(field['items'])}"
    return _type(field)


def _default(name: str, field: Mapping[str, Any]) -> str:
    if name == "data_dir":
        return "the user's data folder, `agent-memory` in it"
    value = field.get("default", "")
    return f"`{str(value).lower() if isinstance(value, bool) else value}`" if value != "" else "empty"
