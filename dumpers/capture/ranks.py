"""Which rank of a job this process is, and where a rank records."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping, Optional, Tuple

from ..errors import UsageError
from .steps import Steps, parse_steps

_VARIABLES = (
    ("RANK_ID", "RANK_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""What launchers set: this process's number, and how many there are."""

NO_STEPS = Steps([(0, -1)])
"""Steps of a rank that is not wanted."""


def find_rank(environ: Mapping[str, str]) -> Optional[int]:
    """Returns the number of this process among several, None if it is the only one or no launcher tells."""
    for rank, size in _VARIABLES:
        number, count = environ.get(rank, ""), environ.get(size, "")
        if number.isascii() and number.isdigit():
            return None if count.strip() == "1" else int(number)
    return None


def at_rank(environ: Mapping[str, str], folder: Path, steps: Steps, ranks: str) -> Tuple[Path, Steps]:
    """Returns where this process records and which steps: each rank has a folder of its own.

    Args:
        environ: The environment.
        folder: Of the records of a job with one process.
        steps: Steps that are wanted.
        ranks: Ranks that are wanted, ``0|2-3``; all if empty.

    Raises:
        UsageError: the ranks cannot be read.
    """
    try:
        wanted = parse_steps(ranks)
    except UsageError as error:
        raise UsageError("TF_DUMP_RANKS: {}".format(str(error).replace("steps ", "ranks ", 1))) from error
    rank = find_rank(environ)
    if rank is None:
        return folder, steps if 0 in wanted else NO_STEPS
    return folder / "rank_{}".format(rank), steps if rank in wanted else NO_STEPS
