"""``demo`` finds what it planted: each fault kind on five operators, faults it has never seen, and no fault at all."""

from __future__ import annotations

import json

import pytest

import cli

H1, H2, H3 = (f"mlp/mlp/h{k}/matmulmlp/mlp/h{k}/bias_addmlp/mlp/h{k + 1}/relu" for k in (1, 2, 3))
USER, ITEM = (f"LazyAdam_0/update_{name}_table/{name}_table" for name in ("user", "item"))

OPERATORS = {
    "scale": [H1, f"{USER}/update_rows", "gradients/mlp/mlp/h2/bias_add_grad/BiasAddGrad", "loss_0/mean", "h0"],
    "drop_tail": [
        "user_table_lookup/gather",
        "gradients/mlp/mlp/h3/matmul_grad/MatMul_1",
        "item_table_pooled",
        "gradients/mlp/mlp/h4/relu_grad/ReluGrad",
        "Adam/update_mlp/mlp/h2_w/ResourceApplyAdam",
    ],
    "nan": [H2, "item_table_lookup/gather", "loss_0/cross_entropy/Log1p", "gradients/h0_grad/Slice", "trans_Cast_2"],
    "bf16_inputs": [
        H2,
        "gradients/mlp/mlp/h1/matmul_grad/MatMul_1",
        "user_table_pooled",
        "gradients/item_table_lookup/unique_embeddings_grad/UnsortedSegmentSum",
        "Adam/update_mlp/mlp/h1_w/ResourceApplyAdam",
    ],
}
UPDATES = {
    f"{USER}/update_rows",
    "Adam/update_mlp/mlp/h1_w/ResourceApplyAdam",
    "Adam/update_mlp/mlp/h2_w/ResourceApplyAdam",
}
FUSED = [H1, H2, H3, f"{USER}/mul{USER}/add", f"{ITEM}/mul_2{ITEM}/add_1"]
OVERWRITTEN = [
    "user_table_lookup/gather",
    "h0",
    H1,
    "gradients/mlp/mlp/h2/matmul_grad/MatMul",
    f"{ITEM}/Sqrt",
]
LOOKUPS = {"user_table": "user_table_lookup/gather", "item_table": "item_table_lookup/gather"}
OTHER_GATHERS = ["user_table_lookup/restore", "item_table_lookup/restore"]


@pytest.fixture
def demo(tmp_path, capsys, monkeypatch):
    """Runs ``demo ... --json`` in a folder of its own; gives the exit code and the document."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TF_DUMP_STEP", raising=False)

    def run(*words):
        code = cli.main(["demo", "--json", "--steps", "1", *words])
        document = json.loads(capsys.readouterr().out)
        assert document["exit_code"] == code
        return code, document

    return run


def found(document):
    result = document["result"]
    return result["verdict"], result["op"]


@pytest.mark.parametrize(
    ("kind", "op", "seed"),
    [(kind, op, seed) for kind, ops in OPERATORS.items() for seed, op in enumerate(ops)],
)
def test_an_operator_fault_names_its_operator(demo, kind, op, seed):
    numerics = ("mix", "fp32")[seed % 2] if not op.startswith("trans_") else "mix"
    code, document = demo("--fault", f"{kind}@{op}", "--seed", str(seed), "--numerics", numerics)
    assert (code, *found(document)) == (1, "optimizer" if op in UPDATES else "operator", op)


@pytest.mark.parametrize("op", FUSED)
def test_a_dropped_member_names_the_fused_op_and_the_member(demo, op):
    code, document = demo("--fault", f"fusion_drop@{op}", "--seed", "3")
    assert (code, *found(document)) == (1, "fusion", op)
    assert document["result"]["suspects"][0]["member"]


@pytest.mark.parametrize("op", OVERWRITTEN)
def test_an_overwritten_tensor_names_its_producer_and_the_readers(demo, op):
    code, document = demo("--fault", f"overwrite@{op}", "--seed", "4")
    assert (code, *found(document)) == (1, "memory_overwritten", op)
    assert all(row["producer"] == op and row["consumer"] for row in document["result"]["evidence"])


@pytest.mark.parametrize("kind", ["wrong_row", "zero_rows"])
@pytest.mark.parametrize("table", LOOKUPS)
@pytest.mark.parametrize("share", ["0.001", "0.01"])
def test_wrong_rows_of_a_table_name_the_table_and_the_keys(demo, kind, table, share):
    code, document = demo("--fault", f"{kind}@{table}:share={share}", "--seed", "5")
    assert (code, *found(document)) == (1, "table_lookup", LOOKUPS[table])
    result = document["result"]
    assert result["table"] == table
    assert len(result["keys"]) == result["keys_total"] >= 1
    cosine = next(row["cosine"] for row in result["evidence"] if "cosine" in row)
    # The norms of random rows vary: 5 wrong rows of width 8 take the cosine to 0.9987 here, 3 of width 32 to 0.9991.
    assert cosine > {("0.001", "user_table"): 0.999, ("0.001", "item_table"): 0.998}.get((share, table), 0.98)


@pytest.mark.parametrize("kind", ["wrong_row", "zero_rows"])
@pytest.mark.parametrize("op", OTHER_GATHERS)
def test_wrong_rows_of_another_gather_are_an_operator(demo, kind, op):
    code, document = demo("--fault", f"{kind}@{op}", "--seed", "6")
    assert (code, *found(document)) == (1, "operator", op)


def test_a_factor_that_the_cosine_cannot_see(demo):
    code, document = demo("--fault", f"scale@{H3}:factor=1.5")
    assert (code, *found(document)) == (1, "operator", H3)
    cosine = next(row["cosine"] for row in document["result"]["evidence"] if "cosine" in row)
    assert cosine > 0.9999


def test_the_default_fault_is_one_that_the_cosine_rule_cannot_see(demo, capsys):
    code, document = demo()
    result = document["result"]
    assert (code, result["verdict"], result["table"]) == (1, "table_lookup", "item_table")
    assert result["op"] not in result["below_threshold"]
    assert len(result["losses"]["golden"]) == len(result["losses"]["npu"]) >= 1


UNSEEN = '''
import numpy as np

def swap_halves(op):
    """Exchanges the halves of one gradient, an arithmetic that no built-in kind has."""
    if op.name == "gradients/mlp/mlp/h2/matmul_grad/MatMul":
        out = op.outputs[0]
        return [np.roll(out, out.shape[0] // 2, axis=0)]

def third_square_root(op):
    if op.type == "Sqrt" and op.name.startswith("LazyAdam_0/update_item"):
        return [np.cbrt(op.outputs[0])]

def breaks(op):
    raise RuntimeError("boom")

def wrong_shape(op):
    return [np.zeros(3, np.float32)] if op.type == "ConcatV2" else None
'''


@pytest.mark.parametrize(
    ("function", "op"),
    [
        ("swap_halves", "gradients/mlp/mlp/h2/matmul_grad/MatMul"),
        ("third_square_root", f"{ITEM}/Sqrt"),
    ],
)
def test_a_fault_nobody_has_seen_is_found(demo, tmp_path, function, op):
    (tmp_path / "unseen_fault.py").write_text(UNSEEN)
    code, document = demo("--fault", f"unseen_fault:{function}")
    assert (code, *found(document)) == (1, "operator", op)


@pytest.mark.parametrize("function", ["breaks", "wrong_shape", "missing"])
def test_a_fault_module_that_misbehaves_is_one_line(demo, tmp_path, function):
    (tmp_path / "bad_fault.py").write_text(UNSEEN)
    code, document = demo("--fault", f"bad_fault:{function}")
    assert code == 2
    assert "bad_fault" in document["error"]
    assert "\n" not in document["error"]


@pytest.mark.parametrize("numerics", ["fp32", "mix"])
@pytest.mark.parametrize("seed", range(20))
def test_without_a_fault_nothing_is_accused(demo, numerics, seed):
    code, document = demo("--fault", "none", "--numerics", numerics, "--seed", str(seed))
    assert code == 0
    assert found(document) in [("fine", None), ("rounding", None)]
    assert document["result"]["suspects"] == []


def test_real_clicks_instead_of_random_batches(demo, shared_data):
    data = str(shared_data / "datasets" / "criteo_sample.txt")
    code, document = demo("--data", data, "--fault", "zero_rows@user_table")
    assert (code, *found(document)) == (1, "table_lookup", "user_table_lookup/gather")
    code, document = demo("--data", data, "--fault", "none")
    assert code == 0
