"""The commands of every front, listed in one place. Adding one is one file and one line here."""

from __future__ import annotations

from precision_tool.commands.auto_check import AutoCheck
from precision_tool.commands.base import Command
from precision_tool.commands.compare_tensors import CompareTensors
from precision_tool.commands.convert import TfDump
from precision_tool.commands.demo import Demo
from precision_tool.commands.list_ops import ListOps
from precision_tool.commands.nan import Nan
from precision_tool.commands.node_info import NodeInfo
from precision_tool.commands.print_tensor import PrintTensor
from precision_tool.commands.replay import Replay
from precision_tool.commands.run import Run
from precision_tool.commands.summary import CompareSummary
from precision_tool.commands.vector_compare import VectorCompare
from precision_tool.commands.verdict import Verdict

COMMANDS: tuple[Command, ...] = (
    Demo(),
    Verdict(),
    AutoCheck(),
    VectorCompare(),
    CompareSummary(),
    ListOps(),
    NodeInfo(),
    PrintTensor(),
    CompareTensors(),
    Nan(),
    Replay(),
    TfDump(),
    Run(),
)
"""In the order of the help."""
