"""The commands `models` and `download`: which models there are, which can be had now, and fetching one."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

from embed_svc import choice, files, models, receipt
from embed_svc.errors import Problem
from embed_svc.models import Declaration, Hub, Packaged
from embed_svc.settings import Settings

_BAR = 30


def listing(settings: Settings) -> str:
    """Return a table of the models: the chosen one marked, and for each whether it can be had now, or why not."""
    data_dir = Path(settings.data_dir)
    recorded = choice.read(data_dir / choice.RECORD_NAME)
    with ThreadPoolExecutor(len(models.MODELS)) as asking:
        had = list(asking.map(lambda one: _availability(one, data_dir), models.MODELS))
    rows = [("", "model", "size", "dimensions", "precision", "languages", "licence", "can be had")]
    for one, can in zip(models.MODELS, had, strict=True):
        mark = "*" if recorded and recorded.model == one.name and not recorded.folder else ""
        size = f"{one.megabytes} MB"
        rows.append((mark, one.name, size, str(one.dimensions), one.precision or "", one.languages, one.licence, can))
    if recorded and recorded.folder:
        rows.append(("*", recorded.model, "", "", "", "", "", f"from {recorded.folder}"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    notes = [f"{one.name}: {one.note}" for one in models.MODELS if one.note]
    end = "* is served" if recorded else "none is chosen yet: the first `embed-svc serve` does it"
    return "\n".join([*lines, "", *notes, "", end]) + "\n"


def download(settings: Settings, name: str, out: TextIO) -> None:
    """Bring a model's files here, going on where an earlier try broke off; write what happens to `out`.

    Its revision and digests are recorded at the first time and checked at later ones. Raises Unavailable where it
    cannot be had now, Invalid where there is no such model or its files are not what they were.
    """
    declaration = models.named(name)
    data_dir = Path(settings.data_dir)
    out.write(f"{declaration.name}: {declaration.megabytes} MB, licence {declaration.licence}\n")
    kept = receipt.read(declaration, data_dir)
    found = files.obtain(declaration, kept.revision if kept else None, data_dir, lambda _: None, progress(out))
    digests = files.digests(found)
    files.check_digests(declaration, digests)
    receipt.check(declaration, found.revision, digests, data_dir)
    out.writelines(f"  {digest}  {name}\n" for name, digest in sorted(digests.items()))
    out.write(f"revision {found.revision}: here and checked\n")


def progress(out: TextIO) -> Callable[[str, int, int], None]:
    """Return what draws a bar on a terminal, and writes a line each tenth elsewhere."""
    shown: dict[str, int] = {}

    def told(name: str, done: int, size: int) -> None:
        percent = 100 * done // size if size else 0
        megabytes = f"{done / 1e6:.0f} of {size / 1e6:.0f} MB" if size else ""
        if out.isatty():
            bar = ("#" * (_BAR * percent // 100)).ljust(_BAR, ".")
            out.write(f"\r{name} [{bar}] {percent:3} % {megabytes}" + ("\n" if size and done >= size else ""))
        elif percent // 10 > shown.get(name, -1):
            shown[name] = percent // 10
            out.write(f"{name} {percent} % {megabytes}".rstrip() + "\n")
        out.flush()

    return told


def _availability(declaration: Declaration, data_dir: Path) -> str:
    source = declaration.source
    if isinstance(source, Packaged):
        return "yes, installed" if files.is_installed(declaration) else f"after {source.install}"
    if not isinstance(source, Hub):
        return "no"
    try:
        reached = files.reach(declaration, data_dir=data_dir)
    except Problem as problem:
        return f"no: {problem.text}"
    return f"{'yes' if reached.revision else 'no'}: {reached.reason}"
