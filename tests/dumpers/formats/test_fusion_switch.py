"""Fusion switch files, the real ones among them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from dumpers.errors import DataError
from dumpers.formats.fusion_switch import read_fusion_switch
from dumpers.formats.kinds import identify


def save(path: Path, graph: object, ub: object, **other: object) -> Path:
    path.write_text(json.dumps({"Switch": {"GraphFusion": graph, "UBFusion": ub} | other}))
    return path


def test_a_named_pass_beats_all(tmp_path: Path):
    switch = read_fusion_switch(
        save(
            tmp_path / "x.cfg", {"A": "on", "B": "OFF ", "ALL": "off"}, {"C": "off", "D": "on"}, ThirdFusion={"E": "on"}
        )
    )
    assert (switch.graph, switch.ub) == ({"A": True, "B": False}, {"C": False, "D": True})
    assert (switch.graph_default, switch.ub_default, switch.unknown) == (False, True, ("ThirdFusion",))
    assert [switch.is_on(name, "graph") for name in ("A", "B", "other")] == [True, False, False]
    assert [switch.is_on(name, "ub") for name in ("C", "D", "other", "A")] == [False, True, True, True]
    assert (switch.off("graph"), switch.off("ub")) == (("B",), ("C",))


def test_sections_may_be_missing(tmp_path: Path):
    (tmp_path / "x.cfg").write_text('\ufeff{"Switch": {"UBFusion": {"ALL": "off"}}}')
    switch = read_fusion_switch(tmp_path / "x.cfg")
    assert (switch.graph, switch.graph_default, switch.ub_default) == ({}, True, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no fusion switch file"),
        ("[]", "no Switch"),
        ('{"Switch": 1}', "no Switch"),
        ('{"Switch": {"GraphFusion": ["A"]}}', "GraphFusion is no list of passes"),
        ('{"Switch": {"GraphFusion": {"A": true}}}', "A' is 'True', neither on nor off"),
        ('{"Switch": {"UBFusion": {"A": "maybe"}}}', "neither on nor off"),
        ('{"Switch": {"UBFusion": {"A": "on", "A": "off"}}}', "'A' is switched twice"),
        ("[" * 100_000, "is no fusion switch file"),
        ("\udcff", "is no fusion switch file"),
    ],
)
def test_files_that_are_none(tmp_path: Path, text: str, message: str):
    path = tmp_path / "x.cfg"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=message) as caught:
        read_fusion_switch(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file(tmp_path: Path):
    with pytest.raises(DataError, match="cannot be read"):
        read_fusion_switch(tmp_path / "none.cfg")


def test_real_files(shared_data: Path):
    """Counts of section 5 of the samples' README."""
    folder = shared_data / "npu_samples" / "fusion_switch"
    found = {path.name: read_fusion_switch(path) for path in folder.glob("*.cfg")}
    assert all(identify(path).kind.name == "fusion_switch" for path in folder.glob("*.cfg"))
    off, template = found["precision_tool_fusion_off.cfg"], found["precision_tool_fusion_switch.cfg"]
    assert (off.graph, off.ub, off.graph_default, off.ub_default) == ({}, {}, False, False)
    assert (template.graph, template.ub, template.graph_default, template.ub_default) == ({}, {}, True, True)
    counts = {
        name: tuple(
            (sum(on for on in rules.values()), sum(not on for on in rules.values())) for rules in (s.graph, s.ub)
        )
        for name, s in found.items()
    }
    assert counts["ieg_fusion_switch.cfg"] == ((0, 8), (0, 1))
    assert counts["amoebanet_fusion_switch.cfg"] == ((0, 27), (0, 2))
    assert counts["swin_fusion_off_layer.cfg"] == ((1, 3), (1, 0))
    assert len(found) == 5
    swin = found["swin_fusion_off_layer.cfg"]
    assert swin.is_on("AReduceSumFusionPass", "graph")
    assert not swin.is_on("LayerNormGradFusionPass", "graph")
    assert swin.is_on("AutomaticUbFusion", "ub")


def test_fuzz(tmp_path: Path):
    raw = save(tmp_path / "x.cfg", {"A": "on", "ALL": "off"}, {"C": "off"}).read_bytes()
    rng = random.Random(2)
    said: list[str] = []
    for number in range(len(raw) + 400):
        changed = bytearray(raw[:number] if number < len(raw) else raw)
        for _ in range(2 if changed else 0):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        (tmp_path / "x.cfg").write_bytes(changed)
        try:
            read_fusion_switch(tmp_path / "x.cfg")
        except DataError as error:
            said.append(str(error))
    assert said
    assert not any("\n" in text for text in said)
