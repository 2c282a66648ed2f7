"""`memory-svc eval`: labelled questions in; how good recall's answers are and what they take out."""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from memory_svc import app
from memory_svc.domain.evaluation import Interval, Moved, moved, paired_bootstrap
from memory_svc.errors import Invalid, NotFound, Problem
from memory_svc.observe import configure_logging
from memory_svc.reference import table
from memory_svc.services.evaluation import ALL, Missing, Outcome, Question, existing, objects, outcome, questions
from memory_svc.services.operation import Call
from memory_svc.settings import PREFIX, Settings, environment, load


class Change(msgspec.Struct, frozen=True):
    """A question whose relevant rows stand elsewhere under the second settings."""

    line: int
    query: str
    moved: list[Moved]


class Comparison(msgspec.Struct, frozen=True):
    """By how much the second settings are better, by measure, and which questions changed."""

    gains: dict[str, Interval]
    changed: list[Change]


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """All that is told: an outcome for each set of settings, by the settings given on the command line."""

    limit: int
    missing: list[Missing]
    outcomes: dict[str, Outcome]
    comparison: Comparison | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The questions, whom they go to, and under which settings."""
    parser.add_argument("questions", type=Path, help="JSONL: query, relevant (refs or own ids), agent_id, category")
    parser.add_argument("--agent", default="", help="asked where a question names no agent_id")
    parser.add_argument("--limit", type=int, default=10, help="rows a question gets at most")
    parser.add_argument("--corpus", type=Path, help="JSONL of arguments of `store`, kept for this run alone")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="MEMORY_X=Y", help="settings")
    parser.add_argument(
        "--against", nargs="+", action="extend", default=[], metavar="MEMORY_X=Y", help="a second set, over --set"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON, every answer too")


def run(arguments: argparse.Namespace) -> int:
    """Ask every question and print the measures. Recall changes no row; the store is opened as a server opens it.

    Raises Invalid for a file, a limit or a setting that cannot be used, NotFound where there is no store to ask.
    """
    if not 1 <= arguments.limit <= 100:
        raise Invalid("--limit: expected a number from 1 to 100")
    sets = [arguments.set, [*arguments.set, *arguments.against]][: 1 + bool(arguments.against)]
    configure_logging("warning")
    with _store(arguments.corpus) as data_dir:
        chosen = {" ".join(given) or "settings as they are": _settings(given, data_dir) for given in sets}
        _refuse_other_store(list(chosen.values()))
        found = asyncio.run(_evaluated(arguments, chosen))
    sys.stdout.write(_json(found) if arguments.json else page(found))
    return 0


def page(found: Evaluation) -> str:
    """The tables of an evaluation."""
    parts = [_outcome(name, outcome) for name, outcome in found.outcomes.items()]
    if found.comparison:
        parts.append(_comparison(found.comparison))
    if found.missing:
        rows = ", ".join(f"line {each.line} {each.row}" for each in found.missing[:20])
        parts.append(f"Not in the store, so not looked for ({len(found.missing)}): {rows}")
    return "\n\n".join(parts) + "\n"


async def _evaluated(arguments: argparse.Namespace, chosen: Mapping[str, Settings]) -> Evaluation:
    outcomes: dict[str, Outcome] = {}
    asked: list[Question] = []
    missing: list[Missing] = []
    for at, (name, settings) in enumerate(chosen.items()):
        async with app.assembled(settings) as parts:
            if at == 0:
                agent = arguments.agent or settings.default_agent
                read = questions(_lines(arguments.questions), arguments.questions.name, agent)
                if arguments.corpus:
                    await _fill(parts, arguments.corpus, agent)
                asked, missing = await existing(parts.catalogue.runtime, read)
            if arguments.corpus:
                await _embed(parts)
            if not asked:
                raise Invalid(f"{arguments.questions.name}: the store holds none of the relevant rows")
            outcomes[name] = await outcome(parts.catalogue, asked, arguments.limit)
    told = list(outcomes.values())
    comparison = _compared(told[0], told[1], asked) if len(told) == 2 else None
    return Evaluation(limit=arguments.limit, missing=missing, outcomes=outcomes, comparison=comparison)


async def _fill(parts: app.Parts, corpus: Path, agent: str) -> None:
    """Store the memories of a file, in order, so that the n-th new one is `mem:n`."""
    for number, line in objects(_lines(corpus), corpus.name):
        given = {**({"agent_id": agent} if agent else {}), **line}
        try:
            answer = await parts.catalogue.call("store", given, Call())
        except Problem as problem:
            raise type(problem)(f"{corpus.name} line {number}: {problem.text}") from problem
        if answer["result"] == "rejected":
            raise Invalid(f"{corpus.name} line {number}: {answer['reason']}")
        if answer["result"] == "skipped":
            sys.stderr.write(f"{corpus.name} line {number}: skipped, {answer['reason']} (mem:{answer['id']})\n")


async def _embed(parts: app.Parts) -> None:
    """Give every row a vector of the model that answers now, as far as one does."""
    more = True
    while more and not parts.embedder.failure:
        more = await parts.worker.backfill()


def _compared(first: Outcome, second: Outcome, asked: Sequence[Question]) -> Comparison:
    pairs = [(one, other) for one, other in zip(first.answers, second.answers, strict=True) if one.measures]
    names = pairs[0][0].measures if pairs else ()
    gains = {
        name: paired_bootstrap([other.measures[name] for _, other in pairs], [one.measures[name] for one, _ in pairs])
        for name in names
    }
    changed = []
    for question, one, other in zip(asked, first.answers, second.answers, strict=True):
        if found := moved(one.rows, other.rows, question.relevant):
            changed.append(Change(question.line, one.query, found))
    return Comparison(gains, changed)


def _outcome(name: str, found: Outcome) -> str:
    measures = list(found.categories[ALL].means)
    rows = [
        (category, str(group.questions), *(f"{group.means[measure]:.1%}" for measure in measures))
        for category, group in found.categories.items()
        if group.questions
    ]
    silent, answered = found.abstention.silent_share, found.abstention.answered_share
    facts = [
        f"answered: {answered:.1%} of {found.abstention.answerable} answerable" if answered is not None else "",
        f"silent: {silent:.1%} of {found.abstention.unanswerable} unanswerable" if silent is not None else "",
        f"tokens of an answer: {found.tokens:.0f} (estimate: a third of its bytes)",
        f"milliseconds by the clock: p50 {found.wall_ms.p50:.1f}, p95 {found.wall_ms.p95:.1f};"
        f" of this process's CPU: p50 {found.cpu_ms.p50:.1f}, p95 {found.cpu_ms.p95:.1f}",
        f"asked without vectors: {found.without_vectors} of {len(found.answers)}" if found.without_vectors else "",
        f"rows that wait for a vector of this model: {found.waiting}" if found.waiting else "",
    ]
    shown = [table(("category", "questions", *measures), rows)] if rows else []
    return "\n\n".join([f"## {name}", *shown, "\n".join(f"- {fact}" for fact in facts if fact)])


def _comparison(found: Comparison) -> str:
    rows = [
        (name, f"{gain.mean:+.1%}", f"{gain.low:+.1%} to {gain.high:+.1%}", "yes" if gain.is_clear else "no")
        for name, gain in found.gains.items()
    ]
    lines = [
        f"- line {change.line} `{change.query}`: "
        + ", ".join(f"{each.row} {_rank(each.before)} → {_rank(each.after)}" for each in change.moved)
        for change in found.changed
    ]
    head = "## Second settings − first\n\nPaired bootstrap over questions, 95 %."
    gains = [table(("measure", "gain", "interval", "clear of 0"), rows)] if rows else []
    told = [f"Questions whose relevant rows moved: {len(lines)}", "\n".join(lines)] if lines else ["No rank changed."]
    return "\n\n".join([head, *gains, *told])


def _rank(rank: int | None) -> str:
    return str(rank) if rank else "–"


def _json(found: Evaluation) -> str:
    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"


@contextlib.contextmanager
def _store(corpus: Path | None) -> Iterator[str]:
    """The folder of a store for this run alone; "" = the one that the settings name."""
    if not corpus:
        yield ""
        return
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def _settings(given: Sequence[str], data_dir: str) -> Settings:
    pairs = dict(pair.partition("=")[::2] for pair in given)
    for pair in given:
        if "=" not in pair or not pair.startswith(PREFIX):
            raise Invalid(f"--set, --against: {pair!r} is no setting; write it like {PREFIX}PREVIEW_CHARS=300")
    settings = load({**environment(), **pairs})
    kept = data_dir or settings.data_dir
    if not data_dir and not (Path(kept) / app.DATABASE).is_file():
        raise NotFound(f"There is no store in {kept}: set {PREFIX}DATA_DIR to where one is, or give --corpus")
    return msgspec.structs.replace(settings, data_dir=kept, calls_per_second_max=0.0, recall_counts=False)


def _refuse_other_store(chosen: Sequence[Settings]) -> None:
    if len({os.path.realpath(each.data_dir) for each in chosen}) > 1:
        raise Invalid(f"--against: {PREFIX}DATA_DIR names another store; both must answer from one")


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except OSError as error:
        raise Invalid(f"{path}: cannot be read ({error.strerror})") from error
