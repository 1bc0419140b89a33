"""The commands of every front, listed in one place. Adding one is one file and one line here."""

from __future__ import annotations

from precision_tool.commands.auto_check import AutoCheck
from precision_tool.commands.base import Command
from precision_tool.commands.bench import Bench
from precision_tool.commands.checkpoints import CompareCheckpoints
from precision_tool.commands.compare_tensors import CompareTensors
from precision_tool.commands.convert import Convert, DumpConvert
from precision_tool.commands.demo import Demo
from precision_tool.commands.dump import Dump
from precision_tool.commands.import_data import ImportData
from precision_tool.commands.infer import Infer
from precision_tool.commands.info import Info
from precision_tool.commands.kit import Kit
from precision_tool.commands.list_ops import ListOps
from precision_tool.commands.loss import Loss
from precision_tool.commands.nan import Nan
from precision_tool.commands.node_info import NodeInfo
from precision_tool.commands.npu_dump import NpuDump
from precision_tool.commands.print_tensor import PrintTensor
from precision_tool.commands.replay import Replay
from precision_tool.commands.report import Report
from precision_tool.commands.run import Run
from precision_tool.commands.summary import CompareSummary
from precision_tool.commands.tf_dump import TfDump
from precision_tool.commands.train import Train
from precision_tool.commands.vector_compare import VectorCompare
from precision_tool.commands.verdict import Verdict

COMMANDS: tuple[Command, ...] = (
    Demo(),
    ImportData(),
    Info(),
    Verdict(),
    Report(),
    AutoCheck(),
    VectorCompare(),
    CompareSummary(),
    ListOps(),
    NodeInfo(),
    PrintTensor(),
    CompareTensors(),
    CompareCheckpoints(),
    Nan(),
    Replay(),
    Loss(),
    Dump(),
    TfDump(),
    Train(),
    Convert(),
    DumpConvert(),
    Infer(),
    NpuDump(),
    Kit(),
    Bench(),
    Run(),
)
"""In the order of the help."""
