"""What F1 and an empty workbench show: keys, commands, and the shortest way to a verdict."""

from __future__ import annotations

from precision_tool import commands as registry
from precision_tool import dispatch
from precision_tool.result import Block, Panel

KEYS = (
    ("Up Down PgUp PgDn Home End", "move the cursor; j k g G do too"),
    ("b  B", "the next row marked bad, the one before"),
    ("Left Right", "choose a column (underlined in the header)"),
    ("Enter", "open the op under the cursor over the whole screen"),
    ("/", "filter: rows that hold every word typed; Esc shows all again"),
    ("s", "sort by the chosen column: up, down, original order"),
    ("c  C", "copy the op's name; copy the chosen cell (the original text)"),
    ("v", "the whole row with nothing cut"),
    ("n", "show or hide the panel of the op"),
    ("Tab", "the next part of the screen; on the command line: complete the word"),
    (":", "command line; Up and Down bring earlier lines"),
    ("Ctrl-P", "all commands"),
    ("Esc", "cancel what runs; else leave filter, command line, screen"),
    ("Ctrl-C", "cancel what runs"),
    ("F1  q", "this help; quit"),
)

FIRST_STEPS = (
    "Nothing has been compared here yet. The shortest way from two dumps to a verdict:",
    "",
    "  1. import PATH   puts dumps and graphs into their places: the device's below",
    "                   precision_data/npu/debug_0, the reference's into precision_data/tf/dump",
    "                   (tf_dump fills that from a recorded run in tf/tf_debug)",
    "  2. vc            compares the two, tensor by tensor",
    "  3. verdict       names the guilty op, shows the evidence and says what to do next",
    "",
    "What is this file?          info PATH",
    "Dumps that lie elsewhere:   vc -lt LEFT -rt RIGHT      (LEFT is the device, RIGHT the reference)",
    "No dumps at hand:           demo                       (trains, injects a fault, finds it; takes minutes)",
    "",
    "Press : and type, or Ctrl-P for all commands. F1 lists the keys.",
)


def first_steps() -> tuple[Block, ...]:
    """Returns what an empty workbench shows."""
    return (Panel("What to do next", FIRST_STEPS), *help_blocks())


def help_blocks() -> tuple[Block, ...]:
    """Returns the keys and, from the registry, the commands."""
    width = max(len(key) for key, _ in KEYS)
    keys = tuple(f"{key:<{width}}  {does}" for key, does in KEYS)
    names = [", ".join((command.name, *command.aliases)) for command in registry.COMMANDS]
    width = max((len(name) for name in names), default=0)
    commands = tuple(
        f"{name:<{width}}  {dispatch.summary(command)}" for name, command in zip(names, registry.COMMANDS, strict=True)
    )
    return Panel("Keys", keys), Panel("Commands (NAME -h shows the options of one)", commands)
