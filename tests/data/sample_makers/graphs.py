"""Device graphs and the reports beside them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from sample_makers import wire as sb
from sample_makers.expect import Expected, tensor


def _ge_model(weights_at: int = 0) -> bytes:
    def descriptor(*dims: int) -> bytes:
        return message((2, sb.FLOAT), (3, sb.shape(dims)), (4, "ND"), (10, 32))

    message = sb.message
    value = message((1, message((2, sb.FLOAT), (3, sb.shape((2,))), (4, "ND"), (11, 8), (18, weights_at))))
    const = message((1, "bias"), (2, "Const"), sb.attr("value", sb.field(12, value)), (21, 1), (34, descriptor(2)))
    data = message((1, "x"), (2, "Data"), (34, descriptor(2)))
    originals = sb.attr("_datadump_original_op_names", sb.text_list(["net/Add", "net/Relu"]))
    passes = sb.attr("pass_name", sb.field(2, "AddReluFusionPass"))
    fused = message(
        (1, "net/Addnet/Relu"),
        (2, "Add"),
        (5, "x:0"),
        (5, "bias:0"),
        originals,
        passes,
        (21, 2),
        (22, 1),
        (33, descriptor(2)),
        (33, descriptor(2)),
        (34, descriptor(2)),
    )
    graph = message((1, "ge_default_1"), (6, data), (6, const), (6, fused))
    return message((1, "sample"), (2, 1), (7, graph))


GE_OPS = {"x": ["Data", []], "bias": ["Const", []], "net/Addnet/Relu": ["Add", ["x:0", "bias:0"]]}


def om(folder: Path) -> Expected:
    """A compiled model: the container with a graph and the weights of one constant."""
    folder.mkdir(parents=True)
    bias = np.array([0.5, -1.5], np.float32)
    (folder / "sample.om").write_bytes(sb.om_container(_ge_model(), bias.tobytes()))
    return {"ops": GE_OPS, "constants": {"bias:output:0": tensor(bias)}}


GE_TEXT = """graph {
  name: "ge_default_1"
  op {
    name: "x"
    type: "Data"
    output_desc {
      dtype: DT_FLOAT
      shape {
        dim: 2
      }
      layout: "ND"
    }
  }
  op {
    name: "net/Relu"
    type: "Relu"
    input: "x:0"
    attr {
      key: "pass_name"
      value {
        s: "SomeFusionPass"
      }
    }
    id: 1
    input_desc {
      dtype: DT_FLOAT
      shape {
        dim: 2
      }
      layout: "ND"
    }
    output_desc {
      dtype: DT_FLOAT
      shape {
        dim: 2
      }
      layout: "ND"
    }
  }
}
"""


def ge_text(folder: Path) -> Expected:
    """The compiler's text form."""
    folder.mkdir(parents=True)
    (folder / "ge_proto_00000001_graph_1_Build.txt").write_text(GE_TEXT)
    return {"ops": {"x": ["Data", []], "net/Relu": ["Relu", ["x:0"]]}}


def ge_json(folder: Path) -> Expected:
    """The model converter's JSON, floats as text and a value that is null."""
    folder.mkdir(parents=True)
    desc = {"dtype": "DT_FLOAT", "layout": "ND", "shape": {"dim": [2]}}
    attrs = [{"key": "scale", "value": {"f": "0.5"}}, {"key": "origin_shape_range", "value": None}]
    ops = [
        {"name": "x", "type": "Data", "output_desc": [desc]},
        {
            "name": "y",
            "type": "Relu",
            "id": 1,
            "input": ["x:0"],
            "attr": attrs,
            "input_desc": [desc],
            "output_desc": [desc],
        },
    ]
    text = json.dumps({"name": "sample", "graph": [{"name": "sample_graph", "op": ops}]}, indent=2)
    (folder / "model.json").write_text(text)
    return {"ops": {"x": ["Data", []], "y": ["Relu", ["x:0"]]}}


def fusion_result(folder: Path) -> Expected:
    """All three generations of the fusion report; the second holds two objects one behind the other."""
    folder.mkdir(parents=True)
    passes = {"graph_fusion": {"MulAddFusionPass": {"effect_times": "2", "match_times": "3"}}}
    ub = {"ub_fusion": {"AutomaticUbFusion": {"effect_times": "1", "match_times": "1", "repository_hit_times": "0"}}}
    first = json.dumps({"graphId": "21", "sessionId": "0", **passes, **ub}, indent=4)
    second = [json.dumps({"session_and_graph_id": f"0_{n}", **passes}, indent=4) for n in (21, 31)]
    third = json.dumps({"session_and_graph_id_0_21": {**passes, **ub}}, indent=4)
    (folder / "fusion_result_1.json").write_text(first)
    (folder / "fusion_result_2.json").write_text("".join(second))
    (folder / "fusion_result_3.json").write_text(third)
    return {"graphs": [1, 2, 1], "effect_times": {"MulAddFusionPass": 2}}


def fusion_switch(folder: Path) -> Expected:
    """Which fusion passes are on."""
    folder.mkdir(parents=True)
    graph = {"ALL": "off", "MulAddFusionPass": "on"}
    (folder / "fusion_switch.cfg").write_text(json.dumps({"Switch": {"GraphFusion": graph, "UBFusion": {}}}, indent=2))
    return {"GraphFusion": graph, "UBFusion": {}}


def result_csv(folder: Path) -> Expected:
    """Both column generations of the vendor's comparison."""
    folder.mkdir(parents=True)
    old = "Index,LeftOp,RightOp,TensorIndex,CosineSimilarity,MaxAbsoluteError,AccumulatedRelativeError,"
    old += "RelativeEuclideanDistance,KullbackLeiblerDivergence,StandardDeviation\r\n"
    old += "1,net_fc,net/MatMul net/BiasAdd,net_fc:output:0,0.93,1.5,0.1,0.2,0.01,(0.0;1.0);(0.0;1.1)\r\n"
    (folder / "result_20210101000000.csv").write_bytes(old.encode())
    new = "Index,OpType,NPUDump,DataType,Address,GroundTruth,DataType,TensorIndex,Shape,CosineSimilarity,"
    new += "MaxAbsoluteError,AccumulatedRelativeError,RelativeEuclideanDistance,KullbackLeiblerDivergence,"
    new += "StandardDeviation,MeanAbsoluteError,RootMeanSquareError,MaxRelativeError,MeanRelativeError,"
    new += "CompareFailReason\r\n"
    figures = "0.990000,1.500000,0.1,0.2,0.01,(0.0;1.0);(0.0;1.1),0.1,0.2,0.3,0.4"
    new += f'1,MatMulV2,net_fc,float32,NaN,"net/MatMul,net/BiasAdd",float32,net_fc:output:0,[2],{figures},\r\n'
    (folder / "result_20240125160000.csv").write_bytes(new.encode())
    return {"cosine": {"result_20210101000000.csv": 0.93, "result_20240125160000.csv": 0.99}, "op": "net_fc"}
