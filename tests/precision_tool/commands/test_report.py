"""``report`` as every front runs it: the file, its numbers against what was judged, saved verdicts, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from compare.isolation import examine
from compare.judge import judge
from compare.measured import Watch
from dumpers.errors import DataError, UsageError
from dumpers.settings import Settings
from precision_tool.commands.verdict import default_sides
from precision_tool.render import json_document
from precision_tool.workbench import Workbench
from tests.precision_tool.conftest import make_data
from tests.precision_tool.html_page import check, marks, pictures

SUSPECTS = "Suspects in order of execution"


def page_of(result):
    return check(result.files[0].read_text(encoding="utf-8"))


def cells(value):
    """A value of the JSON document as a table shows it; null beside a bound is an infinite ratio."""
    return "-" if value is None or value == "" else repr(value) if isinstance(value, float) else str(value)


def test_the_report_says_what_the_verdict_says(data, ask):
    verdict, result = ask("verdict", data.root), ask("report", data.root)
    assert result.exit_code == verdict.exit_code == 1
    assert result.title == verdict.title
    assert {k: v for k, v in result.data.items() if k != "report"} == dict(verdict.data)
    (path,) = result.files
    assert path.parent == data.data / "temp" / "report"
    assert path.suffix == ".html"
    assert str(path) in result.blocks[0].lines
    page = page_of(result)
    assert verdict.title in page.text
    for line in (*[row["text"] for row in verdict.data["evidence"]], *verdict.data["next"]):
        assert line in page.text
    rows = page.tables[SUSPECTS][1:]
    assert len(rows) == len(verdict.data["suspects"]) == 1
    for row, suspect in zip(rows, verdict.data["suspects"], strict=True):
        ratio = "infinite" if suspect["ratio"] is None and suspect["bound"] is not None else cells(suspect["ratio"])
        wanted = [suspect[key] for key in ("op", "op_type", "side", "local_error", "bound")]
        assert row[2:] == [*map(cells, wanted), ratio, cells(suspect["member"]), cells(suspect["note"])]
    assert str(verdict.data["coverage"]["compared_bytes"]) in {row[1] for row in page.tables["Coverage"]}
    assert str(data.leaf()) in page.text
    assert str(data.reference) in page.text
    assert "2023-11-14 22:13:20 UTC" in page.text  # of the dump files, not of the clock


def test_each_op_that_was_run_again_is_a_point(data, ask):
    sides = default_sides(None, Workbench(Settings(root_dir=data.root)))
    exam = examine(sides.left, sides.left_graph, lender=sides.right)
    judged = [check for check in exam.checks if check.ratio is not None]
    assert len(judged) == 3
    charts = pictures(ask("report", data.root).files[0].read_text())
    tips = marks(charts[0])
    assert len(tips) == len(judged)
    for found in judged:
        assert any(tip.startswith(f"{found.op.name} [{found.op.type}] at place {found.position}") for tip in tips)
    assert len(marks(charts[0], "bad")) == len(exam.sources(2.0)) == 1


def test_the_difference_is_drawn_where_it_is_born_and_where_it_is_carried(data, ask):
    result = ask("report", data.root)
    tips = marks(pictures(result.files[0].read_text())[2])
    figures = {tip.split(" ")[0]: tip for tip in tips}
    assert "distance 0, cosine 1.000000" in figures["dense/MatMuldense/BiasAdd:output:0"]
    assert "distance 0.5, cosine 1.000000" in figures["dense/Relu:output:0"]  # times 1.5
    assert "to_int:output:0" in figures
    rows = page_of(result).tables["Outputs against the other side, largest distance first"][1:]
    assert len(rows) == len(tips)
    assert float(next(row[4] for row in rows if row[1] == "dense/Relu:output:0")) == pytest.approx(0.5)


def test_a_watch_changes_nothing_of_the_verdict(data):
    sides = default_sides(None, Workbench(Settings(root_dir=data.root)))
    graphs = {"left_graph": sides.left_graph, "right_graph": sides.right_graph}
    watch = Watch()
    assert judge(sides.left, sides.right, **graphs, watch=watch) == judge(sides.left, sides.right, **graphs)
    assert watch.sides == ("left",)  # something was found there
    assert [op.position for op in watch.of("left")] == [0, 1, 2]
    assert watch.carried(threads=1) == watch.carried(threads=4)
    assert Watch().carried() == []


def test_two_runs_of_one_input_give_the_same_bytes(data, ask):
    one = ask(f"report -o {data.root / 'one.html'}", data.root).files[0].read_bytes()
    two = ask(f"report -o {data.root / 'two.html'}", data.root).files[0].read_bytes()
    assert one == two


def test_without_the_dot_program_the_picture_is_the_same(data, ask, monkeypatch):
    first = ask("report", data.root).files[0].read_bytes()
    monkeypatch.setenv("PATH", "")
    second = ask("report", data.root).files[0].read_bytes()
    assert first == second
    svg = pictures(first.decode())[-1]
    assert svg.get("aria-label") == "Neighbourhood of dense/Relu"


def test_a_new_name_each_time(data, ask):
    paths = [ask("report", data.root).files[0] for _ in range(3)]
    assert len(set(paths)) == 3


def test_equal_runs_are_fine(tmp_path, ask):
    data = make_data(tmp_path, reference=False, runs=("debug_1", "debug_2"))
    result = ask(f"report {data.leaf('debug_1')} {data.leaf('debug_2')}", data.root)
    assert (result.exit_code, result.data["verdict"]) == (0, "fine")
    page = page_of(result)
    assert "No operator is accused." in page.text
    charts = pictures(result.files[0].read_text())
    assert [svg.get("aria-label") for svg in charts] == [
        "Local error over its bound by depth, left side",
        "Ratios of the left side",
        "Local error over its bound by depth, right side",
        "Ratios of the right side",
        "Relative distance of each output from the other side by depth",
    ]


def test_one_side_alone(data, ask):
    result = ask(f"report {data.leaf()}", data.root)
    assert result.data["op"] == "dense/Relu"
    assert "the left one was examined alone" in page_of(result).text
    assert len(pictures(result.files[0].read_text())) == 3  # no difference from anybody


def test_without_a_graph(two_runs, ask):
    for run in ("debug_0", "debug_1"):
        two_runs.graph(run).unlink()
    result = ask(f"report {two_runs.leaf()} {two_runs.leaf('debug_1')}", two_runs.root)
    assert result.exit_code == ask(f"verdict {two_runs.leaf()} {two_runs.leaf('debug_1')}", two_runs.root).exit_code
    text = page_of(result).text
    assert "No op was run again: there is no graph of either side" in text
    assert len(pictures(result.files[0].read_text())) == 1


def test_a_hostile_name_from_files(hostile, ask):
    page = page_of(ask("report", hostile.root))
    assert page.tables[SUSPECTS][1][2] == "層[/red][b]\\x1b[2J\\u202e"


def test_damaged_files_are_exit_code_3_and_stand_in_the_report(data, ask):
    data.file("Cast").write_bytes(b"\0" * 40)
    result = ask("report", data.root)
    assert result.exit_code == 3
    assert result.problems
    assert "Cast.to_int" in page_of(result).text


# ------------------------------------------------------------------------------------------------------------- file


def test_nothing_is_overwritten_untold(data, ask):
    path = data.root / "mine.html"
    path.write_text("mine")
    with pytest.raises(UsageError, match=r"mine\.html: exists; give another name, or --overwrite"):
        ask(f"report -o {path}", data.root)
    assert path.read_text() == "mine"
    ask(f"report -o {path} --overwrite", data.root)
    check(path.read_text())


def test_a_link_to_nothing_is_not_replaced(data, ask):
    path = data.root / "link.html"
    path.symlink_to(data.root / "elsewhere")
    with pytest.raises(UsageError, match="exists"):
        ask(f"report -o {path}", data.root)


@pytest.mark.parametrize("place", [".", "missing/r.html", "plain/r.html"])
def test_where_no_file_can_be(place, data, ask):
    (data.root / "plain").write_text("")
    with pytest.raises(UsageError, match="no file can be made there"):
        ask(f"report -o {data.root / place}", data.root)


def test_not_into_the_dump(data, ask):
    with pytest.raises(UsageError, match="lies in the dump"):
        ask(f"report -o {data.leaf() / 'r.html'}", data.root)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(data, ask):
    folder = data.root / "locked"
    folder.mkdir(mode=0o500)
    with pytest.raises(UsageError, match="cannot be written"):
        ask(f"report -o {folder / 'r.html'}", data.root)


def test_a_full_disk_is_one_line_and_leaves_nothing(data, project_root):
    words = [sys.executable, str(project_root / "cli.py"), "report", "--root", str(data.root), "-o", "r.html"]
    limit = "import resource, sys, os; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); "
    limit += "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", limit, *words], cwd=data.root, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert "r.html" in done.stderr
    assert [name for name in os.listdir(data.root) if name != "precision_data"] == []


# ------------------------------------------------------------------------------------------------- saved verdicts


@pytest.fixture
def saved(data, ask):
    path = data.root / "verdict.json"
    path.write_text(json_document("verdict", ask("verdict", data.root)))
    return path


def test_a_saved_verdict_is_the_same_verdict(saved, data, ask):
    live, later = ask("report", data.root), ask(f"report --from {saved}", data.root)
    assert (later.exit_code, later.title) == (live.exit_code, live.title)
    assert {k: v for k, v in later.data.items() if k != "report"} == {
        k: v for k, v in live.data.items() if k != "report"
    }
    one, two = page_of(live), page_of(later)
    assert [row[2:] for row in one.tables[SUSPECTS]] == [row[2:] for row in two.tables[SUSPECTS]]
    assert one.tables["Findings"] == two.tables["Findings"]
    assert pictures(later.files[0].read_text()) == []


def test_unknown_keys_are_ignored_and_the_bare_object_will_do(saved, data, ask):
    tree = json.loads(saved.read_text())["result"]
    tree["new"] = {"<b>": 1}
    tree["suspects"][0]["new"] = 2
    saved.write_text(json.dumps(tree))
    assert ask(f"report --from {saved}", data.root).exit_code == 1


def test_an_error_of_the_document_is_exit_code_3(saved, data, ask):
    tree = json.loads(saved.read_text())
    tree |= {"ok": False, "exit_code": 3, "error": "x.npy: damaged"}
    saved.write_text(json.dumps(tree))
    result = ask(f"report --from {saved}", data.root)
    assert (result.exit_code, result.problems) == (3, ["x.npy: damaged"])


BROKEN = [
    (lambda t: t["result"].pop("verdict"), "has no verdict"),
    (lambda t: t["result"].update(verdict="guilty"), r"result\.verdict is not a kind of verdict"),
    (lambda t: t["result"].update(verdict=["fine"]), r"result\.verdict is not text"),
    (lambda t: t["result"].pop("suspects"), r"result\.suspects is missing"),
    (lambda t: t["result"].update(suspects=[3]), r"result\.suspects\[0\] is no object"),
    (lambda t: t["result"]["suspects"][0].update(ratio="9"), r"result\.suspects\[0\]\.ratio is not a number"),
    (lambda t: t["result"]["suspects"][0].update(bound=True), r"suspects\[0\]\.bound is not a number"),
    (lambda t: t["result"]["suspects"][0].update(side="up"), r"suspects\[0\]\.side is not left or right"),
    (lambda t: t["result"]["suspects"][0].update(bound=10**400), r"suspects\[0\]\.bound is not a number"),
    (lambda t: t["result"].update(evidence=[{"op": "a"}]), r"result\.evidence\[0\]\.text is missing"),
    (lambda t: t["result"].update(confidence=2), r"confidence is not between 0 and 1"),
    (lambda t: t["result"].update(next=[1]), r"result\.next is not a list of texts"),
    (lambda t: t["result"].update(keys=["1"]), r"result\.keys is not a list of whole numbers"),
    (lambda t: t["result"].update(coverage=None), r"result\.coverage is not an object"),
    (lambda t: t["result"]["coverage"].update(compared_bytes=-1), "compared_bytes is not a whole number"),
    (lambda t: t["result"]["coverage"].update(compared_bytes=10**400), "compared_bytes is not a whole number"),
    (lambda t: t["result"]["coverage"].update(replayed_share=1.5), "replayed_share is not between 0 and 1"),
    (lambda t: t.update(result={}, error="no dump"), r"verdict\.json: no dump"),
    (lambda t: t.update(error=3), "error is not text"),
]


@pytest.mark.parametrize(("breaking", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_a_document_that_is_not_whole(breaking, message, saved, data, ask):
    tree = json.loads(saved.read_text())
    breaking(tree)
    saved.write_text(json.dumps(tree))
    with pytest.raises(DataError, match=message) as caught:
        ask(f"report --from {saved}", data.root)
    assert "\n" not in str(caught.value)
    assert not (data.data / "temp" / "report").exists()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "is no JSON document"),
        (b"\xff\xfe\0", "is no JSON document"),
        (b"[" * 100_000, "is no JSON document"),
        (b'{"result": {"verdict": NaN}}', "NaN is no number"),
        (b'{"a": ' + b"1" * 5000 + b"}", "is no JSON document"),
        (b"[1]", "single value or list"),
        (b"{}", "has no verdict"),
        (b"PK\x03\x04", "is no JSON document"),
    ],
)
def test_files_that_are_something_else(raw, message, data, ask):
    path = data.root / "x.json"
    path.write_bytes(raw)
    with pytest.raises(DataError, match=message) as caught:
        ask(f"report --from {path}", data.root)
    assert len(str(caught.value)) < 400


def test_cut_and_missing_documents(saved, data, ask):
    saved.write_bytes(saved.read_bytes()[:-40])
    for path in (saved, data.root / "gone.json", data.root):
        with pytest.raises(DataError, match=str(path)):
            ask(f"report --from {path}", data.root)


def test_a_document_that_is_too_large(saved, data, ask, monkeypatch):
    monkeypatch.setattr("precision_tool.saved_verdict.MAX_BYTES", 100)
    with pytest.raises(DataError, match="larger than any verdict"):
        ask(f"report --from {saved}", data.root)


def test_hostile_values_in_a_document(saved, data, ask):
    tree = json.loads(saved.read_text())
    name = "</title><script>alert(1)</script>\u202e\0\ud800"
    tree["result"].update(op=name, next=[name], table=name, keys=[10**30], keys_total=1)
    tree["result"]["evidence"].append({"text": name, name: [{name: [1e999, None]}], "ratio": None, "bound": 0.0})
    tree["result"]["suspects"][0].update(op=name, note=name)
    saved.write_text(json.dumps(tree).replace("Infinity", "1e999"))
    result = ask(f"report --from {saved}", data.root)
    page = page_of(result)
    assert "<script>alert(1)</script>\\u202e\\x00\\ud800" in page.text
    assert "ratio = infinite" in page.text
    json_document("report", result)


def test_from_and_dumps_do_not_go_together(saved, data, ask):
    with pytest.raises(UsageError, match="--from takes a saved verdict instead of dumps"):
        ask(f"report {data.leaf()} --from {saved}", data.root)


# ------------------------------------------------------------------------------------------------------------ fronts


def test_the_batch_front(data, project_root):
    words = [sys.executable, str(project_root / "cli.py"), "report", "--root", str(data.root)]
    done = subprocess.run(words, cwd=data.root, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Verdict: operator: dense/Relu")
    assert any(line.endswith(".html") and os.path.exists(line) for line in lines)
    done = subprocess.run([*words, "--json"], cwd=data.root, capture_output=True, text=True, timeout=120, check=False)
    document = json.loads(done.stdout)
    assert document["result"]["verdict"] == "operator"
    assert document["files"] == [document["result"]["report"]]


def test_the_shell_takes_it_too(data, monkeypatch, capsys):
    from precision_tool.shell import PrecisionShell

    shell = PrecisionShell(Workbench(Settings(root_dir=data.root)))
    shell.onecmd_plus_hooks("report")
    assert len(list((data.data / "temp" / "report").glob("*.html"))) == 1
