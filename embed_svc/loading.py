"""From a recorded choice to a running, tested model: choose, fetch, check, load, test, record, in this order."""

from collections.abc import Callable
from pathlib import Path

from embed_svc import choice, files, machine, models, observe
from embed_svc.choice import Record
from embed_svc.model import OnnxModel
from embed_svc.models import Declaration, Info
from embed_svc.service import self_test
from embed_svc.settings import Settings


def obtain_model(settings: Settings, say: Callable[[str], None]) -> OnnxModel:
    """Return the model of the record, running and tested; `say` hears each step.

    Raises Unavailable where it cannot be had now, Invalid where it is not what it should be.
    """
    data_dir = Path(settings.data_dir)
    record_file = data_dir / choice.RECORD_NAME
    say("choosing the model")
    record, is_new = choice.settle(
        settings.model, settings.model_replaces, record_file, files.reach, files.is_installed
    )
    declaration = models.named(record.model)
    _announce(record, is_new, declaration, record_file)
    found = files.obtain(declaration, record.revision, data_dir, say)
    say(f"reading the files of {declaration.name}")
    info = _info(declaration, found)
    completed = choice.completed(record, info.revision, info.fingerprint, record_file)
    say(f"loading {declaration.name}")
    threads = settings.threads or machine.processors()
    model = OnnxModel(declaration, info, found.graph, found.tokenizer, threads)
    say(f"testing {declaration.name}")
    self_test(model)
    if completed != record:
        choice.keep(record_file, completed)
    return model


def _info(declaration: Declaration, found: files.Files) -> Info:
    digests = files.digests(found)
    files.check_digests(declaration, digests)
    return Info(
        name=declaration.name,
        revision=found.revision,
        dimensions=declaration.dimensions,
        window=declaration.window,
        fingerprint=models.fingerprint(declaration, found.revision, digests),
        alone=declaration.alone,
    )


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
