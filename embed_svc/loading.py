"""From a recorded choice to a running, tested model: choose, fetch, check, load, test, record, in this order."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from embed_svc import choice, files, folder, identity, machine, models, observe, receipt
from embed_svc.choice import Record
from embed_svc.identity import Capabilities
from embed_svc.model import OnnxModel
from embed_svc.models import Declaration, Info
from embed_svc.self_test import REFERENCE_NAME, compare, self_test
from embed_svc.settings import Settings


def obtain_model(settings: Settings, say: Callable[[str], None], declare: Callable[[Capabilities], None]) -> OnnxModel:
    """Return the model of the record, running and tested; `say` hears each step, `declare` who it turns out to be.

    Raises Unavailable where it cannot be had now, Invalid where it is not what it should be.
    """
    data_dir = Path(settings.data_dir)
    record_file = data_dir / choice.RECORD_NAME
    say("choosing the model")
    reach = partial(files.reach, data_dir=data_dir)
    record, is_new = choice.settle(settings.model, settings.model_replaces, record_file, reach, files.is_installed)
    declaration = folder.declaration(record.folder) if record.folder else models.named(record.model)
    declare(identity.identify(declaration, record.revision))
    _announce(record, is_new, declaration, record_file)
    model, who = load(record, declaration, data_dir, settings.threads, say)
    completed = choice.completed(record, model.info.revision, who.fingerprint, record_file)
    declare(who)
    say(f"testing {declaration.name}")
    compare(model, self_test(model), data_dir / REFERENCE_NAME)
    if completed != record:
        choice.keep(record_file, completed)
    return model


def load(
    record: Record, declaration: Declaration, data_dir: Path, threads: int, say: Callable[[str], None]
) -> tuple[OnnxModel, Capabilities]:
    """Return a recorded model running, not yet tested, and who it is; its files are fetched where they are not there.

    Raises Unavailable where they cannot be had now, Invalid where they are not what they should or used to be.
    """
    found = files.obtain(declaration, record.revision, data_dir, say)
    say(f"reading the files of {declaration.name}")
    digests = files.digests(found)
    files.check_digests(declaration, digests)
    receipt.check(declaration, found.revision, digests, data_dir)
    say(f"loading {declaration.name}")
    info = Info(
        name=declaration.name,
        revision=found.revision,
        dimensions=declaration.dimensions,
        window=declaration.window,
        fingerprint=None,
        alone=declaration.alone,
        dimensions_min=declaration.dimensions_min,
    )
    model = OnnxModel(declaration, info, found.graph, found.tokenizer, threads or machine.processors())
    graph = next(name for name, path in found.every.items() if path == found.graph)
    by_part = {identity.part(name, graph): digest for name, digest in digests.items()}
    who = identity.identify(declaration, found.revision, model.end_token, by_part, record.generation)
    model.info = msgspec.structs.replace(info, fingerprint=who.fingerprint)
    return model, who


def _announce(record: Record, is_new: bool, declaration: Declaration, record_file: Path) -> None:
    """Say which model is served and why; aloud when it has just been chosen, before anything is downloaded."""
    facts = {"model": record.model, "reason": record.reason, "licence": declaration.licence, "record": str(record_file)}
    if not is_new:
        observe.say("info", "model recorded", **facts)
        return
    observe.say(
        "warning",
        "model chosen",
        **facts,
        languages=declaration.languages,
        megabytes=declaration.megabytes,
        otherwise=f"its choice stands from now on; for another, set EMBED_MODEL (one of "
        f"{', '.join(one.name for one in models.MODELS)}) and EMBED_MODEL_REPLACES={record.model}",
    )
