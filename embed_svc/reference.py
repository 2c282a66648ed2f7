"""The reference of this service as Markdown, written from the code: settings, routes, errors, metrics, models."""

import typing
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Meta

from embed_svc import errors, models, observe
from embed_svc.failures import STATUS
from embed_svc.settings import PREFIX, Settings


def reference() -> str:
    """Return the whole reference, the same for the same code."""
    parts = ("# Embedding service", settings(), failures(), metrics(), declared_models())
    return "\n\n".join(parts) + "\n"


def settings() -> str:
    """Return the section on settings: a row each, in the order they are declared."""
    hints = get_type_hints(Settings, include_extras=True)
    defaults = Settings.__struct_defaults__
    rows = [
        (f"`{PREFIX}{name.upper()}`", _kind(hints[name]), _default(default), _meta(hints[name]).description or "")
        for name, default in zip(Settings.__struct_fields__, defaults, strict=True)
    ]
    return "## Settings\n\n" + _table(("variable", "value", "default", "what it sets"), rows)


def failures() -> str:
    """Return the section on failures: a row a kind."""
    rows = [
        (f"`{kind.kind}`", str(int(STATUS[kind.kind])), "yes" if kind.retry else "no", kind.__doc__ or "")
        for kind in errors.PROBLEMS
    ]
    lead = (
        'Every answer that is not 2xx: `{"ok": false, "error": text, "code": kind, "retry": bool}`, with `Retry-After` '
        "where `retry` is true. A method that a route does not take: 405, `invalid`.\n\n"
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
        return f"{meta.ge:,} to {meta.le:,}"
    return "text"


def _default(value: object) -> str:
    if value == "":
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _labels(labels: dict[str, tuple[str, ...]]) -> list[str]:
    return [f"{name}: {', '.join(f'`{value}`' for value in values)}" for name, values in labels.items()]
