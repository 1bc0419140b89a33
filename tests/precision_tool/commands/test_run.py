"""``run``: the system's shell."""

from __future__ import annotations

import pytest

from dumpers.errors import UsageError


def test_output_is_caught_where_there_is_no_terminal_to_lend(tmp_path, ask) -> None:
    result = ask("run printf 'a\\nb\\n'; echo oops >&2", tmp_path)
    assert result.blocks[0].lines == ("a", "b")
    assert list(result.notes) == ["oops"]
    assert result.exit_code == 0


@pytest.mark.parametrize(("line", "code"), [("exit 0", 0), ("false", 1), ("exit 42", 42), ("no-such-program-x", 127)])
def test_exit_code_is_that_of_the_command(line: str, code: int, tmp_path, ask) -> None:
    assert ask(f"run {line}", tmp_path).exit_code == code


def test_bytes_that_are_no_text_survive(tmp_path, ask) -> None:
    assert ask("run printf '\\377x'", tmp_path).data["stdout"] == "\\xffx"


def test_nothing_to_run(tmp_path, ask) -> None:
    with pytest.raises(UsageError, match="no shell command"):
        ask("run", tmp_path)
