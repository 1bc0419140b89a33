"""Fusion reports of three generations."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from dumpers.errors import DataError
from dumpers.formats.fusion import read_fusion_result

RULES = {"A": {"effect_times": "3", "match_times": "4"}, "B": {"effect_times": "0", "match_times": "2"}}


def save(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("between", ["", " ", "\n", "\n\n\t"])
def test_objects_one_after_another(tmp_path: Path, between: str):
    first = json.dumps({"graphId": "21", "sessionId": "1", "graph_fusion": RULES}, indent=4)
    second = json.dumps({"session_and_graph_id": "0_31", "ub_fusion": RULES})
    one, two = read_fusion_result(save(tmp_path / "f.json", first + between + second + between))
    assert (one.graph_id, one.session_id, one.graph_fusion, one.ub_fusion) == ("21", "1", {"A": 3}, {})
    assert (two.graph_id, two.graph_fusion, two.ub_fusion) == ("0_31", {}, {"A": 3})
    assert one.matched == {"A": 4, "B": 2}


def test_array_and_ids_as_keys(tmp_path: Path):
    tree = {"session_and_graph_id_0_0": {"graph_fusion": RULES}, "session_and_graph_id_0_21": {"ub_fusion": RULES}}
    reports = read_fusion_result(save(tmp_path / "f.json", json.dumps(tree)))
    assert [(r.graph_id, r.graph_fusion, r.ub_fusion) for r in reports] == [
        ("0_0", {"A": 3}, {}),
        ("0_21", {}, {"A": 3}),
    ]
    array = json.dumps([{"graphId": 7, "graph_fusion": {"A": {"effect_times": 2, "repository_hit_times": "1"}}}])
    (report,) = read_fusion_result(save(tmp_path / "g.json", array))
    assert (report.graph_id, report.graph_fusion) == ("7", {"A": 2})


def test_newest_generation_counts_repository_hits(tmp_path: Path):
    rule = {"effect_times": "2", "match_times": "3", "repository_hit_times": "5"}
    tree = {
        "session_and_graph_id_0_0": {"graph_fusion": {"A": RULES["A"]}, "ub_fusion": {"U": rule, "V": RULES["B"]}},
        "session_and_graph_id_0_1": {"graph_fusion": {}},
    }
    first, second = read_fusion_result(save(tmp_path / "f.json", "\ufeff" + json.dumps(tree, indent=4)))
    assert (first.graph_id, first.graph_fusion, first.ub_fusion) == ("0_0", {"A": 3}, {"U": 2})
    assert (first.repository_hits, first.matched) == ({"U": 5}, {"A": 4, "U": 3, "V": 2})
    assert (second.graph_id, second.graph_fusion, second.ub_fusion, second.repository_hits) == ("0_1", {}, {}, {})


def test_fuzz(tmp_path: Path):
    raw = json.dumps({"graphId": "21", "sessionId": "1", "graph_fusion": RULES, "ub_fusion": RULES}).encode()
    rng = random.Random(6)
    said: list[str] = []
    for number in range(len(raw) + 300):
        changed = bytearray(raw[:number] if number < len(raw) else raw + raw)
        for _ in range(2 if changed else 0):
            changed[rng.randrange(len(changed))] = rng.choice(b'0123456789-"{}[],:e\n\xff')
        (tmp_path / "f.json").write_bytes(changed)
        try:
            read_fusion_result(tmp_path / "f.json")
        except DataError as error:
            said.append(str(error))
    assert said
    assert not any("\n" in text for text in said)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no graph_fusion"),
        ('{"graph_fusion": [1]}', "no list of rules"),
        ('{"graph_fusion": {"A": {"effect_times": "-1"}}}', "count '-1'"),
        ('{"graph_fusion": {"A": {"effect_times": true}}}', "count 'True'"),
        ("{}", "no graph_fusion"),
        ("{", "not a fusion report"),
        ("[1]", "int instead"),
        ('{"graph_fusion": {"A": 1}}', "no counts"),
        ('{"graph_fusion": {"A": {"effect_times": "x"}}}', "invalid literal"),
        ("\ud800", None),
    ],
)
def test_files_that_are_no_report(tmp_path: Path, text: str, message: str | None):
    path = tmp_path / "f.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(DataError, match=message or "not a fusion report"):
        read_fusion_result(path)


def test_missing_file(tmp_path: Path):
    with pytest.raises(DataError, match="cannot be read"):
        read_fusion_result(tmp_path / "none.json")


def json_objects(text: str) -> list[dict]:
    """Objects written one after another, split where one ends and the next begins."""
    return [json.loads(part) for part in text.replace("}{", "}\0{").split("\0")]


def test_real_reports(shared_data: Path):
    folder = shared_data / "npu_samples" / "fusion_result"
    resnet = {
        "AutomaticUbFusion": 59,
        "TbeBnupdateEltwiseEltwiseFusionPass": 16,
        "TbeConv2DBackpropElemwiseFusionPass": 32,
        "TbeConvBnreduceFusionPass": 53,
        "TbeFullyconnectionElemwiseDequantFusionPass": 1,
        "TbeReduceElemwiseFusionPass": 1,
    }
    (report,) = read_fusion_result(folder / "resnet50_tf2.json")
    assert (report.graph_id, report.graph_fusion, report.ub_fusion) == ("725", {}, resnet)
    (report,) = read_fusion_result(folder / "squeezenext.json")
    assert (report.graph_id, report.session_id, report.ub_fusion) == ("1", "0", {"AutomaticUbFusion": 106})
    first, second = read_fusion_result(folder / "densenet3d.json")
    assert first.graph_fusion == {"ConstToAttrPass": 19, "ConstToAttrReduceSumFusion": 1, "SparseSoftMaxFusionPass": 1}
    assert first.ub_fusion == {"AutomaticUbFusion": 18, "TbeReduceElemwiseFusionPass": 9}
    assert (second.graph_id, second.graph_fusion, second.ub_fusion) == ("51", {}, {"AutomaticUbFusion": 2})
    ddpg = {(r.graph_id, r.session_id): r for r in read_fusion_result(folder / "ddpg.json")}
    assert set(ddpg) == {("1", "0"), ("1", "1"), ("21", "0"), ("21", "1"), ("31", "0"), ("41", "0")}
    assert ddpg["31", "0"].graph_fusion == {"ApplyAddOutputPass": 6, "ConstToAttrPass": 6, "MatMulBiasAddFusionPass": 3}
    ieg = {r.graph_id: r for r in read_fusion_result(folder / "ieg.json")}
    assert set(ieg) == {"0_1", "0_11", "0_31", "0_41", "0_61"}
    assert len(ieg["0_61"].graph_fusion) == 14
    assert ieg["0_61"].graph_fusion["BatchNormBnInferFusionPass"] == 50
    assert len(ieg["0_61"].ub_fusion) == 4
    assert ieg["0_11"].graph_fusion == {}
    tabnet = {r.graph_id: r for r in read_fusion_result(folder / "tabnet.json")}
    assert len(tabnet["0_21"].graph_fusion) == 15
    assert tabnet["0_21"].ub_fusion["AutomaticUbFusion"] == 436
    assert set(tabnet) == {"0_1", "0_11", "0_21", "0_31"}
    assert (first.graph_id, ddpg["31", "0"].ub_fusion) == ("41", {"ATbeMatmulElemwiseFusionPass": 3})
    raw = json.loads((folder / "squeezenext.json").read_text())
    assert report.matched.keys() >= raw["ub_fusion"].keys()
    without_ub = [r for r in json_objects((folder / "ieg.json").read_text()) if "ub_fusion" not in r]
    assert len(without_ub) == 2
    (vae,) = read_fusion_result(shared_data / "npu_samples/vae_om/fusion_result.json")
    assert vae.graph_fusion == {
        "AABiasaddConvFusion": 2,
        "ConstToAttrPass": 2,
        "MatMulBiasAddFusionPass": 3,
        "RefreshInt64ToInt32FusionPass": 1,
    }
    assert vae.graph_id == "0_0"
    assert vae.ub_fusion == {
        "AutomaticUbFusion": 2,
        "TbeDxElemwisePass": 1,
        "TbeFullyconnectionElemwiseDequantFusionPass": 2,
    }
