from __future__ import annotations

import json
import re
import time

import numpy as np
import pytest

from compare.map_patterns import MAX_NAME, compile_pattern
from compare.name_map import read_map
from compare.pairing import pair_dumps
from dumpers.errors import DataError

A = np.float32([1, 2])


@pytest.fixture
def read(tmp_path):
    def write_and_read(text, name="names.csv"):
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_map(path)

    return write_and_read


def npu(make, *names_, **fields):
    return make.dump(*(make.record(name, A, **fields) for name in names_))


def pairs(pairing):
    return {(p.left.name, p.right.name) for p in pairing.pairs}


def test_plain_lines_and_patterns_go_before_equal_names(make, read):
    names = read('left,right\n# towers\na,b\n"re:model/(.*)_(\\d+)",net_\\2/\\1\n')
    left = npu(make, "a:output:0", "b:output:0", "c:output:0", "model/x/mm_7:output:1")
    right = npu(make, "a:output:0", "b:output:0", "c:output:0", "net_7/x/mm:output:1")
    pairing = pair_dumps(left, right, names=names)
    assert pairs(pairing) == {
        ("a:output:0", "b:output:0"),
        ("c:output:0", "c:output:0"),
        ("model/x/mm_7:output:1", "net_7/x/mm:output:1"),
    }
    reasons = {(u.side, u.tensor): u.reason for u in pairing.unpaired}
    assert "names.csv line 3 pairs it with a" in reasons["left", "b:output:0"]
    assert "names.csv line 3 pairs a with b" in reasons["right", "a:output:0"]
    assert pairing.notes == ()


def test_json_and_csv_say_the_same_and_flattened_names_fit(make, read):
    left = npu(make, "model_fc_MatMul:output:0")
    right = npu(make, "net/fc/MatMul:output:0")
    for text in ('{"model/fc/MatMul":\n "net_fc_MatMul"}', "model/fc/MatMul,net/fc/MatMul\n"):
        assert len(pair_dumps(left, right, names=read(text)).pairs) == 1


def test_the_longer_pattern_does_not_win_the_first_does(make, read):
    names = read("re:m/(.*),x/\\1\nre:m/a/(.*),y/\\1\n")
    pairing = pair_dumps(npu(make, "m/a/op:output:0"), npu(make, "x/a/op:output:0", "y/op:output:0"), names=names)
    assert pairs(pairing) == {("m/a/op:output:0", "x/a/op:output:0")}
    assert pairing.notes == ("names.csv line 2: no op on the left fits re:m/a/(.*)",)


def test_a_line_that_leads_nowhere_is_a_reason_and_never_falls_back(make, read):
    pairing = pair_dumps(
        npu(make, "a:output:0", "b:output:3"),
        npu(make, "a:output:0", "c:output:0", "c:input:1"),
        names=read("a,z\nb,c\nq,a\n"),
    )
    assert pairing.pairs == ()
    reasons = {(u.side, u.tensor): u.reason for u in pairing.unpaired}
    assert reasons["left", "a:output:0"] == "names.csv line 1 pairs a with z: no op z on the right"
    assert "c has output 0, not output 3" in reasons["left", "b:output:3"]
    assert pairing.notes == ("names.csv line 3: no op on the left is called q",)


def graph_and_device(make):
    origin = {"_datadump_origin_name": "m/add", "_datadump_origin_output_index": 0}
    graph = make.graph(
        make.op("m/x", "Data"),
        make.op("m/mul", "MatMulV2", ["m/x:0"], [origin], originals=("m/mul", "m/add")),
        make.op("te_fused_9", "Relu", ["m/mul:0"], originals=()),
    )
    return graph, npu(make, "m_mul:input:0", "m_mul:output:0", "te_fused_9:output:0", "stray:output:0")


LINES = "re:m/(.*),net/\\1\nte_fused_9,net/relu\nstray,net/extra\n"


def test_the_original_name_is_what_a_device_op_is_mapped_by(make, read):
    graph, device = graph_and_device(make)
    ops = ("net/x:output:0", "net/mul:output:0", "net/add:output:0", "net/relu:output:0", "net/extra:output:0")
    reference = npu(make, *ops, device="tf")
    pairing = pair_dumps(device, reference, graph, read(LINES))
    assert pairs(pairing) == {
        ("m_mul:input:0", "net/x:output:0"),
        ("m_mul:output:0", "net/add:output:0"),  # not net/mul: the fused op keeps the name of its first member
        ("te_fused_9:output:0", "net/relu:output:0"),
        ("stray:output:0", "net/extra:output:0"),
    }
    assert pairing.notes == ()


def test_a_map_from_the_framework_to_the_device_goes_the_other_way(make, read):
    graph, device = graph_and_device(make)
    reference = npu(make, "net/x:output:0", "net/add:output:0", device="tf")
    pairing = pair_dumps(reference, device, graph, read("re:net/(.*),m/\\1\n"))
    assert pairs(pairing) == {("net/x:output:0", "m_mul:input:0"), ("net/add:output:0", "m_mul:output:0")}
    with pytest.raises(DataError, match=r"net/x and net/add both lead to m\.x"):
        pair_dumps(reference, device, graph, read("net/x,m/x\nnet/add,m.x\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,c\n", "line 1 has 3 columns"),
        ("x,y\na\n", "line 2 has 1 columns"),
        ("a,b\na,c\n", "line 2 has a, which line 1 has already"),
        ("a,\n", "line 1: the right name is empty"),
        ("re:,b\n", "line 1: the left name is empty"),
        ("", "is empty"),
        ("# only this\n", "is empty"),
        (b"\xff\xfe,b\n", "is no UTF-8 text"),
        ('"a,b\n', "line 1"),
        ("re:a(,b\n", "line 1: the pattern re:a( is no regular expression"),
        ("re:a),b\n", "bracket too many"),
        ("re:(a+)+,b\n", "that can take for ever"),
        ("re:(a|ab)*,b\n", "that can take for ever"),
        ("re:((a*)b){2,},b\n".replace(",}", "}"), "that can take for ever"),
        ("re:(a?)*x,b\n", "that can take for ever"),
        ("re:a**,b\n", "repeats a repeat"),
        ("re:(?=a)a,b\n", "begins with (?"),
        ("re:(?P<n>a),b\n", "begins with (?"),
        ("re:(a)\\1,b\n", "refers back"),
        ("re:.*.*.*.*.*,b\n", "5 open repeats"),
        ("re:a{1000},b\n", "more than 100 times"),
        ("re:" + "a" * 501 + ",b\n", "501 characters"),
        ("re:a,b\\1\n", "uses group \\1; the left part has 0"),
        ("re:(a),b\\q\n", "a backslash that is neither"),
        ('{"a": "b",\n "c": 3}', "line 2: c leads to something that is no name"),
        ('{"a": "b",\n\n "c": {"d": "e"}}', "line 3: c leads to something"),
        ('{"a": "b",\n "a": "c"}', "line 2 has a, which line 1 has already"),
        ('{"a": "b",\n "c" "d"}', "line 2"),
        ('{"a":' * 100_000, "is no JSON object"),
        ("{}", "is empty"),
    ],
)
def test_a_bad_map_is_one_line_with_file_and_line(read, text, message):
    with pytest.raises(DataError) as error:
        read(text)
    assert message in str(error.value)
    assert "names.csv" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_map_that_is_not_there_is_said(tmp_path):
    with pytest.raises(DataError, match=r"none\.csv: cannot be read"):
        read_map(tmp_path / "none.csv")
    with pytest.raises(DataError, match="cannot be read"):
        read_map(tmp_path)


@pytest.mark.parametrize("pattern", ["(.*)/tower_(\\d+)/(.*)_\\d+", "(?:a|b)c+", "[*+(]x{2}", "a\\+b?", "(ab?)c"])
def test_harmless_patterns_are_taken_and_mean_what_re_means(pattern):
    assert compile_pattern(pattern) == re.compile(pattern)


def test_brackets_in_a_class_are_no_groups():
    assert compile_pattern("[(]*[])]+").fullmatch("(()]")


def test_the_worst_pattern_on_the_longest_name_ends():
    pattern = compile_pattern("a*a*a*b")
    start = time.monotonic()
    assert pattern.fullmatch("a" * MAX_NAME) is None
    assert time.monotonic() - start < 20


def test_names_beyond_the_bound_are_left_out_and_it_is_said(make, read):
    long = "m/" + "x" * MAX_NAME
    pairing = pair_dumps(npu(make, f"{long}:output:0"), npu(make, "y:output:0"), names=read("re:m/.*,y\n"))
    assert pairing.pairs == ()
    assert pairing.notes == (f"names.csv line 1: not tried on names of more than {MAX_NAME} characters",)


def test_json_keeps_escapes(read):
    names = read(json.dumps({'a"\\n': "b", "ü": "c"}))
    assert [line.left for line in names.lines] == ['a"\\n', "ü"]
