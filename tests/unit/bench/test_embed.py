"""The comparison of embedding servers: what a result says of how it came about."""

from bench.embed import report


def test_the_command_that_repeats_a_run_names_the_loads_where_not_all_were_asked() -> None:
    assert report.command("m", [1, 0], [8], 3) == "python -m bench.embed --model m --threads 1 0 --clients 8 --rounds 3"
    assert report.command("m", [1], [8], 3, ["uniform 16"]).endswith("--rounds 3 --loads 'uniform 16'")
