"""Every small reference model on both sides without a fault: each op that can be run again lies within its bound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compare.isolation import examine
from dumpers.settings import Settings
from precision_tool.bench.fault_sides import Case, dump_device, record_golden
from precision_tool.bench.faults import MODELS
from precision_tool.workbench import Workbench

NEVER_REPLAYED = {"FrameworkOp", "RandomUniform", "ReadVariableOp", "ResourceGather"}
"""What runs on the host or draws numbers, and reads of a variable that only its handle is known of."""


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_all_ops_of_both_sides_are_within_their_bounds(tmp_path, model, resource):
    case = Case(model, resource, "mix" if resource else "fp32")
    dump_device(case, tmp_path, 0)
    record_golden(case, tmp_path, 0)
    workbench = Workbench(replace(Settings(), root_dir=tmp_path))
    leaf = max(workbench.latest_leaves()[0], key=lambda one: len(workbench.read_dump(one)))
    left, right = workbench.read_dump(leaf), workbench.read_dump(workbench.last_reference_run())
    sides = ((left, workbench.graph_beside(leaf), right), (right, right.graph, left))
    for dump, graph, other in sides:
        checks = examine(dump, graph, lender=other).checks
        assert len(checks) > 150
        assert {c.op.name: c.ratio for c in checks if c.ratio is not None and c.ratio > 1} == {}
        assert {c.op.type for c in checks if c.ratio is None} <= NEVER_REPLAYED
        written, replayed = sum(c.written_bytes for c in checks), sum(c.replayed_bytes for c in checks)
        assert replayed > 0.85 * written
