"""Settings: the documented keys, read once from the environment.

Kept to Python 3.7 and the standard library, since the capture side on a training host reads them too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional, Sequence

from .errors import UsageError

DATA_DIRECTORY = "precision_data"
MAX_LOOP_TURNS = 100000


DUMP_MODES = ("full", "shapes", "stats", "sketch", "hash")
DUMP_FORMATS = ("pack", "npy")


@dataclass(frozen=True)
class Settings:
    """What a user can set.

    Attributes:
        tf_dump_step: Steps to dump, ``0|3-5|10`` or ``0,3-5,10``; 0 is the first training step, empty means
            every step.
        dump_mode: What to take of each tensor: ``full`` (its values), ``shapes``, ``stats``, ``sketch`` or ``hash``.
        dump_format: How values are stored: ``pack`` (a few large files a step) or ``npy`` (one file a tensor).
        dump_ops: Regular expression; only ops in whose name it is found.
        dump_op_types: Regular expression; only ops whose whole type it matches.
        dump_dtypes: Only tensors of these dtypes, ``float32,int64``.
        dump_scopes: Only ops in these name scopes, ``tower/dense,tower/cross``.
        dump_sizes: Only tensors of so many bytes, ``1K-64M``, ``-64M`` or ``1K-``.
        dump_tensors: File with the names of the only tensors to take, ``op:slot``, one a line.
        dump_budget: Most bytes of values a step, ``100M``; the smallest tensors go first.
        dump_ranks: Ranks of a job that record, ``0|2-3``; all if empty.
        guard: Folder for the ladders of the observer guard, see :mod:`dumpers.capture.guard`; None for no guard.
        guard_plain: Whether nothing is recorded, for the plain side of the guard.
        loop_turns: Turns of a loop to record of each tensor in it, the first ones and the last; at least 2.
        root_dir: Parent of ``precision_data``; the current folder by default.
        cmd_root_path: Accepted for old configurations and unused: no vendor program is called.
        net_type: ``infer`` or ``train``, see ``TF_DUMP`` documents; only used to match dump directories.
        dump_seed: Seed set by ``seed_everything``.
        op_debug_level, dump_ge_graph, dump_graph_level: Values handed to a real device.
    """

    tf_dump_step: str = "0"
    loop_turns: int = 8
    dump_mode: str = "full"
    dump_format: str = "pack"
    dump_ops: str = ""
    dump_op_types: str = ""
    dump_dtypes: str = ""
    dump_scopes: str = ""
    dump_sizes: str = ""
    dump_tensors: str = ""
    dump_budget: str = ""
    dump_ranks: str = ""
    guard: Optional[Path] = None
    guard_plain: bool = False
    root_dir: Path = Path(".")
    cmd_root_path: str = "/usr/local/Ascend/"
    net_type: str = "infer"
    dump_seed: int = 2022
    op_debug_level: int = 4
    dump_ge_graph: str = "2"
    dump_graph_level: str = "3"

    @property
    def keep(self) -> str:
        """What a record keeps of each tensor: the format of the values, or what is known of them."""
        return self.dump_format if self.dump_mode == "full" else self.dump_mode

    @property
    def data_root(self) -> Path:
        """The ``precision_data`` folder."""
        return self.root_dir / DATA_DIRECTORY


def read_settings(environ: Optional[Mapping[str, str]] = None) -> Settings:
    """Returns the settings with what the environment says.

    That is ROOT_DIR, CMD_ROOT_PATH, NET_TYPE and, for what is dumped, TF_DUMP_ with STEP, MODE, FORMAT, OPS, OP_TYPES,
    DTYPES, SCOPES, SIZES, TENSORS, BUDGET, RANKS, LOOP_TURNS, GUARD and GUARD_PLAIN.

    Raises:
        UsageError: TF_DUMP_LOOP_TURNS is no number of turns, or a mode or format is not known.
    """
    env = os.environ if environ is None else environ
    default = Settings()
    return Settings(
        tf_dump_step=env.get("TF_DUMP_STEP", default.tf_dump_step),
        dump_mode=_one_of(env, "TF_DUMP_MODE", DUMP_MODES),
        dump_format=_one_of(env, "TF_DUMP_FORMAT", DUMP_FORMATS),
        dump_ops=env.get("TF_DUMP_OPS", ""),
        dump_op_types=env.get("TF_DUMP_OP_TYPES", ""),
        dump_dtypes=env.get("TF_DUMP_DTYPES", ""),
        dump_scopes=env.get("TF_DUMP_SCOPES", ""),
        dump_sizes=env.get("TF_DUMP_SIZES", ""),
        dump_tensors=env.get("TF_DUMP_TENSORS", ""),
        dump_budget=env.get("TF_DUMP_BUDGET", ""),
        dump_ranks=env.get("TF_DUMP_RANKS", ""),
        guard=Path(env["TF_DUMP_GUARD"]) if env.get("TF_DUMP_GUARD") else None,
        guard_plain=env.get("TF_DUMP_GUARD_PLAIN", "").strip().lower() in ("1", "true"),
        loop_turns=_turns(env.get("TF_DUMP_LOOP_TURNS") or str(default.loop_turns)),
        root_dir=Path(env.get("ROOT_DIR") or "."),
        cmd_root_path=env.get("CMD_ROOT_PATH", default.cmd_root_path),
        net_type=env.get("NET_TYPE", default.net_type),
    )


def _one_of(env: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """The value of a variable, the first choice where it is not set."""
    text = env.get(name) or choices[0]
    if text not in choices:
        raise UsageError("{} {!r}: use one of {}".format(name, text[:60], ", ".join(choices)))
    return text


def _turns(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 2 <= int(text) <= MAX_LOOP_TURNS):
        raise UsageError("TF_DUMP_LOOP_TURNS {!r}: give a number from 2 to {}".format(text[:60], MAX_LOOP_TURNS))
    return int(text)
