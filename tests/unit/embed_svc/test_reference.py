"""The reference written from the code, and the command that writes it."""

from pathlib import Path

import pytest

from embed_svc import __main__, failures, models, observe, reference
from embed_svc.errors import PROBLEMS
from embed_svc.settings import Settings


def test_every_setting_error_metric_and_model_has_its_row_in_order() -> None:
    written = reference.reference()
    names = [f"| `EMBED_{field.upper()}` |" for field in Settings.__struct_fields__]
    names += [f"| `{problem.kind}` | {int(failures.STATUS[problem.kind])} |" for problem in PROBLEMS]
    names += [f"| `{metric.name}` |" for metric in observe.METRICS]
    names += [f"| `{one.name}` |" for one in models.MODELS]
    places = [written.find(name) for name in names]
    assert -1 not in places
    assert places == sorted(places)


def test_rows_tell_range_default_and_meaning() -> None:
    assert "| `EMBED_PORT` | 0 to 65,535 | `8401` | Port to listen on" in reference.settings()
    assert "| `EMBED_ALLOW_REMOTE` | `true` or `false` | `false` |" in reference.settings()
    assert "`debug`, `info`, `warning`, `error`" in reference.settings()


def test_it_is_the_same_each_time_and_names_no_folder_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["reference"]) == 0
    written = capsys.readouterr().out
    assert written == reference.reference()
    assert str(Path.home()) not in written
    assert str(Path.cwd()) not in written


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        __main__.main(["--help"])
    assert left.value.code == 0
    assert "serve" in capsys.readouterr().out
    with pytest.raises(SystemExit) as refused:
        __main__.main([])
    assert refused.value.code == 2
