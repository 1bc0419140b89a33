"""dispatch: words -> a command with its arguments, and what is said when that fails."""

from __future__ import annotations

import pytest

from dumpers.errors import DataError, UsageError
from precision_tool import dispatch
from precision_tool.commands import COMMANDS

OPTIONS = {
    "ac": {"-c", "--vector_compare", "-l", "--limit"},
    "vc": {"-lt", "--left", "-rt", "--right", "-g", "--graph"},
    "vcs": {"-f", "--file", "-c", "--cos_sim", "-l", "--limit"},
    "ls": {"-t", "--type", "-n", "--name", "-f", "--fusion", "-k", "--kernel_name"},
    "ni": {"-n", "--name", "-g", "--graph", "-a", "--attr", "-c", "--check", "-s", "--save"},
    "pt": {"-n", "--name"},
    "cp": {"-n", "--name", "-p", "--print", "-s", "--save", "-al", "--atol", "-rl", "--rtol"},
    "demo": {"--fault", "--numerics", "--model", "--data", "--seed", "--steps", "--out"},
}
"""The letters that users know, from commands.md and design.md."""


@pytest.mark.parametrize("name", OPTIONS)
def test_documented_options_exist(name: str) -> None:
    command = dispatch.find_command(name)
    assert command is not None
    parser = dispatch.parser_for(command)
    options = {option for action in parser._actions for option in action.option_strings}
    assert OPTIONS[name] <= options
    assert {"--json", "-h", "--help"} <= options


def test_all_commands_of_the_issue_are_there() -> None:
    names = "demo ac vc vcs ni ls pt cp run nan replay verdict tf_dump"
    assert sorted(command.name for command in COMMANDS if command.name in names.split(" ")) == sorted(names.split(" "))


def test_names_are_unique_and_long_names_work() -> None:
    names = dispatch.names()
    assert len(names) == len(set(names))
    assert dispatch.find_command("compare") is dispatch.find_command("cp")
    assert dispatch.find_command("vector_compare") is dispatch.find_command("vc")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.name)
def test_every_command_has_help(command) -> None:  # type: ignore[no-untyped-def]
    assert dispatch.summary(command).endswith(".")
    with pytest.raises(dispatch.HelpRequest) as caught:
        dispatch.parse_words([command.name, "-h"])
    assert dispatch.summary(command) in caught.value.text
    assert caught.value.text.isascii()


def test_defaults_are_the_documented_ones() -> None:
    vcs = dispatch.parse_line("vcs").args
    assert (vcs.file, vcs.cos_sim, vcs.limit) == (None, 0.98, 3)
    cp = dispatch.parse_line("cp a b").args
    assert (cp.print, cp.save, cp.atol, cp.rtol) == (20, False, 0.001, 0.001)
    ac = dispatch.parse_line("ac").args
    assert (ac.vector_compare, ac.limit) == (False, 3)
    ni = dispatch.parse_line("ni x").args
    assert (ni.graph, ni.attr, ni.check, ni.save) == (None, False, False, 0)


@pytest.mark.parametrize(
    "line", ["cp -n A B -p 5 -al 1e-3 -rl 1e-3", "cp A B -p 5 -al 1e-3 -rl 1e-3", "cp -p 5 -al 1e-3 -rl 1e-3 A B"]
)
def test_name_option_may_be_left_out(line: str) -> None:
    args = dispatch.parse_line(line).args
    assert (args.name or args.operands) == ["A", "B"]
    assert (args.print, args.atol, args.rtol) == (5, 1e-3, 1e-3)


def test_quotes_keep_blanks() -> None:
    args = dispatch.parse_line("ni 'a b/c' -a").args
    assert args.operand == "a b/c"
    assert args.attr


def test_option_value_may_look_like_an_option() -> None:
    assert dispatch.parse_words(["ni", "--name=-Tpng"]).args.name == "-Tpng"


def test_unknown_command_offers_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown command verdikt; did you mean verdict"):
        dispatch.parse_line("verdikt")


@pytest.mark.parametrize(
    "line", ["vc -x", "vcs -c abc", "ni a b", "vc --lef x"], ids=["option", "type", "extra", "short"]
)
def test_wrong_options_are_one_line(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        dispatch.parse_line(line)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(line.split(maxsplit=1)[0] + ": ")


@pytest.mark.parametrize("line", ["", "   ", "ni 'a"])
def test_lines_that_are_no_command(line: str) -> None:
    with pytest.raises(UsageError):
        dispatch.parse_line(line)


def test_run_takes_the_rest_of_the_line_as_it_stands() -> None:
    assert dispatch.parse_line('run echo "a  b" | wc -c').args.words == ['echo "a  b" | wc -c']
    assert dispatch.parse_words(["run", "ls", "-l", "--json"]).args.words == ["ls", "-l", "--json"]


def test_exit_codes_of_errors() -> None:
    assert dispatch.exit_code_of(UsageError("x")) == 2
    assert dispatch.exit_code_of(DataError("x")) == 3
    assert dispatch.exit_code_of(KeyboardInterrupt()) == 130
    assert dispatch.exit_code_of(OSError("x")) == 3
