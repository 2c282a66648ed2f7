"""The reference of this service as Markdown, written from the code: routes, settings, errors, metrics, models."""

import inspect
import typing
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Meta

from embed_svc import errors, models, observe
from embed_svc.answers import TRUNCATED
from embed_svc.api import (
    OPEN_ROUTES,
    capabilities,
    count_tokens,
    embed,
    embeddings,
    livez,
    readyz,
    startupz,
)
from embed_svc.api import metrics as exposed
from embed_svc.bodies import DEADLINE
from embed_svc.failures import STATUS
from embed_svc.folder import DECLARATION_NAME, Declared
from embed_svc.settings import PREFIX, Settings


def reference() -> str:
    """Return the whole reference, the same for the same code."""
    parts = ("# Embedding service", routes(), settings(), failures(), metrics(), declared_models(), own_models())
    return "\n\n".join(parts) + "\n"


def routes() -> str:
    """Return the section on routes: a row each, from their first sentences."""
    rows = []
    for handler in (embed, embeddings, count_tokens, capabilities, livez, readyz, startupz, exposed):
        path = min(handler.paths)
        token = "no" if path in OPEN_ROUTES else "where one is set"
        method = min(handler.http_methods - {"OPTIONS", "HEAD"})
        rows.append((f"`{method} {path}`", inspect.getdoc(handler.fn) or "", token))
    lead = (
        f"Bodies are described by `GET /schema/openapi.json`. With the header `{DEADLINE}` a caller says how long it "
        "waits; a caller that closes the connection takes its waiting texts along. The header "
        f"`{TRUNCATED}` holds the indices of texts that the window cut (`0,3-5`).\n\n"
    )
    return "## Routes\n\n" + lead + _table(("route", "what it does", "token"), rows)


def settings() -> str:
    """Return the section on settings: a row each, in the order they are declared."""
    hints = get_type_hints(Settings, include_extras=True)
    defaults = Settings.__struct_defaults__
    rows = [
        (f"`{PREFIX}{name.upper()}`", _kind(hints[name]), _default(default), _meta(hints[name]).description or "")
        for name, default in zip(Settings.__struct_fields__, defaults, strict=True)
    ]
    lead = "Traces are switched on by OpenTelemetry's own variables: [which](../guides/observe.md#traces).\n\n"
    return "## Settings\n\n" + lead + _table(("variable", "value", "default", "what it sets"), rows)


def failures() -> str:
    """Return the section on failures: a row a kind."""
    rows = [
        (f"`{kind.kind}`", str(int(STATUS[kind.kind])), "yes" if kind.retry else "no", kind.__doc__ or "")
        for kind in errors.PROBLEMS
    ]
    lead = (
        'Every answer that is not 2xx: `{"ok": false, "error": text, "code": kind, "retry": bool}`, with `Retry-After` '
        'where `retry` is true; of `/v1/embeddings`, `error` is `{"message": text, "type": \u2026, "code": kind}`. A '
        "method that a route does not take: 405, `invalid`.\n\n"
    )
    return "## Errors\n\n" + lead + _table(("code", "HTTP", "retry", "when"), rows)


def metrics() -> str:
    """Return the section on metrics: a row each, with every value of its labels."""
    rows = [
        (f"`{metric.name}`", metric.kind, metric.help, "; ".join(_labels(metric.labels))) for metric in observe.METRICS
    ]
    return "## Metrics\n\n" + _table(("metric", "kind", "what it counts", "labels"), rows)


def declared_models() -> str:
    """Return the section on models: a row each."""
    rows = [
        (
            f"`{one.name}`",
            str(one.dimensions),
            str(one.window),
            one.precision or "",
            f"{one.megabytes} MB",
            one.languages,
            one.licence,
        )
        for one in models.MODELS
    ]
    heads = ("model", "dimensions", "window, tokens", "precision", "size", "languages", "licence")
    return "## Models\n\n" + _table(heads, rows)


def own_models() -> str:
    """Return the section on a model of the user's own: a row a field of its `model.toml`."""
    hints = get_type_hints(Declared, include_extras=True)
    required = len(Declared.__struct_fields__) - len(Declared.__struct_defaults__)
    defaults = ["required"] * required + [_default(value) for value in Declared.__struct_defaults__]
    rows = [
        (f"`{name}`", _kind(hints[name]), default, _meta(hints[name]).description or "")
        for name, default in zip(Declared.__struct_fields__, defaults, strict=True)
    ]
    lead = (
        f"`EMBED_MODEL=/path/to/folder` serves the files of that folder: the graph, `tokenizer.json`, "
        f"`tokenizer_config.json`, and a `{DECLARATION_NAME}` with these fields.\n\n"
    )
    return "## A model of your own\n\n" + lead + _table(("field", "value", "default", "what it says"), rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _meta(hint: Any) -> Meta:
    return next(extra for extra in get_args(hint)[1:] if isinstance(extra, Meta))


def _kind(hint: Any) -> str:
    bare, meta = get_args(hint)[0], _meta(hint)
    if get_origin(bare) is Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(bare))
    if bare is bool:
        return "`true` or `false`"
    if bare is int:
        return f"{meta.ge:,} to {meta.le:,}" if meta.le is not None else f"{meta.ge:,} or more"
    choices = [value for part in typing.get_args(bare) for value in typing.get_args(part)]
    return ", ".join(f"`{value}`" for value in choices) or "text"


def _default(value: object) -> str:
    if value in ("", None):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _labels(labels: dict[str, tuple[str, ...]]) -> list[str]:
    return [f"{name}: {', '.join(f'`{value}`' for value in values)}" for name, values in labels.items()]
