"""Which tensors of a step are recorded, held against a whole record of the same step."""

import re

import numpy as np
import pytest
import tensorflow as tf

from dumpers.capture.plan import How, Taken
from dumpers.capture.record import GraphFile, Item, RunRecord
from dumpers.capture.selection import EVERYTHING, parse_bytes, read_selection
from dumpers.capture.session import record_session
from dumpers.capture.steps import parse_steps
from dumpers.capture.talk import SayOnce
from dumpers.capture.worker import BoundedWorker
from dumpers.errors import UsageError
from dumpers.settings import Settings, read_settings

tf1 = tf.compat.v1


def names(manifest):
    return {"{}:{}".format(entry["op"], entry["output"]) for entry in manifest["tensors"]}


def record(model, config, folder, **settings):
    """Trains one step and returns the loss."""
    selection = read_selection(Settings(**settings))
    session = tf1.Session(graph=model.graph, config=config())
    with record_session(session, folder, parse_steps("0"), selection=selection) as recorded:
        recorded.run(model.init)
        return recorded.run([model.loss, model.train], model.batches[0])[0]


@pytest.fixture(name="click_model", params=[True, False], ids=["resource", "reference"])
def built(request, click_model):
    """The click model."""
    return click_model(request.param)


@pytest.fixture
def whole(click_model, config, tmp_path, manifests):
    """Loss and manifest of the step with everything."""
    loss = record(click_model, config, tmp_path / "whole")
    return loss, manifests(tmp_path / "whole")[0]


CHOICES = [
    ({"dump_ops": "gradients/.*MatMul"}, lambda e, _: re.search("gradients/.*MatMul", e["op"])),
    ({"dump_ops": r"^(?!gradients)"}, lambda e, _: not e["op"].startswith("gradients")),
    ({"dump_op_types": "MatMul|BiasAdd"}, lambda e, _: e["op_type"] in ("MatMul", "BiasAdd")),
    ({"dump_op_types": "Mat"}, lambda e, _: False),
    ({"dump_dtypes": "int64, int32"}, lambda e, _: e["dtype"] in ("int64", "int32")),
    ({"dump_scopes": "gradients/"}, lambda e, _: e["op"].startswith("gradients/")),
    (
        {"dump_scopes": "gradients", "dump_op_types": "M.*", "dump_dtypes": "float32"},
        lambda e, _: e["op"].startswith("gradients/") and e["op_type"].startswith("M") and e["dtype"] == "float32",
    ),
    ({"dump_sizes": "-64"}, lambda e, value: value is None or value.nbytes <= 64),
    ({"dump_sizes": "65-1K"}, lambda e, value: value is None or 65 <= value.nbytes <= 1024),
    ({"dump_sizes": "1k-"}, lambda e, value: value is None or value.nbytes >= 1024),
]


@pytest.mark.parametrize("number", range(len(CHOICES)))
def test_what_is_chosen_is_in_the_record_and_nothing_else(
    number, whole, click_model, config, tmp_path, manifests, values
):
    settings, wanted = CHOICES[number]
    loss = record(click_model, config, tmp_path / "part", **settings)
    assert loss == whole[0]
    full, part = whole[1], manifests(tmp_path / "part")[0]
    found = values(full)
    expected = {
        "{}:{}".format(entry["op"], entry["output"])
        for entry in full["tensors"]
        if wanted(entry, found.get("{}:{}".format(entry["op"], entry["output"])))
    }
    assert names(part) == expected
    assert expected != names(full)
    for name, value in values(part).items():
        assert value.tobytes() == found[name].tobytes()
    assert part["complete"]
    texts = {"TF_" + key.upper(): text for key, text in settings.items()}
    assert part["selection"] == texts


def test_tensors_of_a_file(whole, click_model, config, tmp_path, manifests):
    some = sorted(names(whole[1]))[::7]
    chosen = tmp_path / "chosen.txt"
    chosen.write_text(
        "# the cut\n\n{}\nnot/there:0\n".format("\n".join(n[:-2] if n.endswith(":0") else n for n in some))
    )
    record(click_model, config, tmp_path / "part", dump_tensors=str(chosen))
    assert names(manifests(tmp_path / "part")[0]) == set(some)


def test_only_shapes(whole, click_model, config, tmp_path, manifests, values):
    session = tf1.Session(graph=click_model.graph, config=config())
    with record_session(session, tmp_path / "shapes", parse_steps("0"), keep="shapes") as recorded:
        recorded.run(click_model.init)
        assert recorded.run([click_model.loss, click_model.train], click_model.batches[0])[0] == whole[0]
    part = manifests(tmp_path / "shapes")[0]
    assert part["complete"]
    assert names(part) == names(whole[1])
    found = values(whole[1])
    listed = {"{}:{}".format(e["op"], e["output"]): e for e in part["tensors"]}
    assert {n for n, e in listed.items() if "bytes" in e} == set(found)
    for name, value in found.items():
        assert (listed[name]["bytes"], tuple(listed[name]["shape"])) == (value.nbytes, value.shape)
        assert listed[name]["file"] is None
    assert [path.name for path in part["path"].parent.glob("tensors*")] == []
    assert 0 < part["bytes"] <= sum(e["bytes"] for e in listed.values() if "bytes" in e)


@pytest.mark.parametrize("keep", ["pack", "npy"])
@pytest.mark.parametrize("budget", [0, 1, 500, 5000, 10**9])
def test_a_budget_takes_the_smallest_and_says_what_it_leaves(tmp_path, manifests, values, keep, budget):
    random = np.random.RandomState(3)
    arrays = [random.bytes(n) for n in (4000, 10, 300, 10, 0, 900)]
    items = []
    for index, raw in enumerate(arrays):
        taken = Taken(f"op{index}:0", f"op{index}", 0, "Const", "uint8", None, index + 1, How.FETCH)
        items.append(Item(taken, index, np.frombuffer(raw, np.uint8), "uint8"))
    twin = items[0].value.reshape(2, 2000)  # the same memory: costs nothing in a pack
    items.append(Item(Taken("twin:0", "twin", 0, "Reshape", "uint8", None, 9, How.FETCH), 9, twin, "uint8"))
    header = {"format": 2, "run": 1, "step": 0, "start_us": 1, "graph": None, "fetches": []}
    worker = BoundedWorker()
    with tf.Graph().as_default() as graph:
        tf.zeros([], name="op0")
    content = graph.as_graph_def().SerializeToString()
    RunRecord(tmp_path, header, SayOnce(), keep, budget).submit(worker, GraphFile(content), items)
    worker.flush()
    manifest = manifests(tmp_path)[0]
    kept = values(manifest)
    sizes = {item.taken.name: item.value.nbytes for item in items}
    shared = {"twin:0"} if keep == "pack" and "op0:0" in kept else set()
    assert sum(sizes[name] for name in set(kept) - shared) <= budget
    left = set(sizes) - set(kept)
    largest_kept = max([sizes[name] for name in kept], default=0)
    assert all(sizes[name] >= largest_kept for name in left)
    for entry in manifest["tensors"]:
        if entry["op"] + ":0" in left:
            assert re.match(rf"not taken: \d+ bytes do not fit into a budget of {budget} a step", entry["note"])
            assert entry["file"] is None
    assert bool(left) == (budget < sum(sizes.values()) - sizes["twin:0"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dump_ops": "("}, r"TF_DUMP_OPS '\(': is no regular expression"),
        ({"dump_op_types": "[a"}, r"TF_DUMP_OP_TYPES '\[a': is no regular expression"),
        ({"dump_dtypes": "float32,flot"}, "'flot' is no dtype"),
        ({"dump_dtypes": "float"}, "'float' is no dtype|float32"),
        ({"dump_sizes": "1K"}, "give a range of bytes as 1K-64M"),
        ({"dump_sizes": "-"}, "give a range of bytes as 1K-64M"),
        ({"dump_sizes": "2K-1K"}, "runs backwards"),
        ({"dump_sizes": "1X-"}, "give bytes as 4096, 64K"),
        ({"dump_budget": "2%"}, "TF_DUMP_BUDGET '2%': give bytes"),
        ({"dump_budget": "-3"}, "TF_DUMP_BUDGET '-3': give bytes"),
        ({"dump_tensors": "/nowhere/names.txt"}, "cannot be read: No such file"),
        ({"dump_tensors": "/"}, "cannot be read: Is a directory"),
    ],
)
def test_what_cannot_be_read_is_said(settings, message):
    with pytest.raises(UsageError, match=message):
        read_selection(Settings(**settings))


@pytest.mark.parametrize(("content", "message"), [(b"# none\n\n", "names no tensor"), (b"\xff\xfe\x00", "is no text")])
def test_files_without_names(tmp_path, content, message):
    path = tmp_path / "names"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_selection(Settings(dump_tensors=str(path)))


def test_bytes():
    texts = ("0", "4096", "64K", " 100m ", "2G")
    assert [parse_bytes("x", text) for text in texts] == [0, 4096, 65536, 100 << 20, 2 << 30]


def test_settings_of_the_environment():
    env = {"TF_DUMP_" + name: name.lower() for name in ("OPS", "OP_TYPES", "DTYPES", "SCOPES", "SIZES", "TENSORS")}
    found = read_settings(dict(env, TF_DUMP_BUDGET="1M", TF_DUMP_RANKS="0|2"))
    assert (found.dump_ops, found.dump_op_types, found.dump_dtypes) == ("ops", "op_types", "dtypes")
    assert (found.dump_scopes, found.dump_sizes, found.dump_tensors) == ("scopes", "sizes", "tensors")
    assert (found.dump_budget, found.dump_ranks) == ("1M", "0|2")
    assert read_selection(Settings()) == EVERYTHING
