"""``pt`` and ``cp``: one tensor, two tensors."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dumpers.errors import DataError, UsageError
from dumpers.formats.npy import write_npy
from precision_tool.render import plain_data


def save(path: Path, value: object, dtype: str = "float32") -> Path:
    write_npy(path, np.asarray(value, dtype=dtype))
    return path


def test_first_values_eight_a_row_sixteen_rows(tmp_path, ask) -> None:
    file = save(tmp_path / "a.npy", np.arange(1000).reshape(10, 100))
    table, panel = ask(f"pt {file}", tmp_path).blocks
    assert table.columns == ("Index", "Data")
    assert len(table.rows) == 16
    assert table.rows[0] == (0, "0 1 2 3 4 5 6 7")
    assert table.rows[-1] == (120, "120 121 122 123 124 125 126 127")
    assert panel.lines[0] == "[Shape: (10, 100)] [Dtype: float32] [Max: 999] [Min: 0] [Mean: 499.5]"
    assert panel.lines[1] == f"Path: {file}"


def test_text_file_has_a_row_per_last_axis_and_is_made_again(tmp_path, ask) -> None:
    file = save(tmp_path / "a.npy", [[1.5, 2], [3, np.nan]])
    (text,) = ask(f"pt {file}", tmp_path).files
    assert text.is_relative_to(tmp_path / "precision_data/temp/decode")
    assert text.read_text() == "1.5 2\n3 nan\n"
    assert ask(f"pt {file}", tmp_path).files == []
    save(file, [[7, 8]])
    os.utime(file, ns=(text.stat().st_mtime_ns + 10**9,) * 2)
    assert ask(f"pt {file}", tmp_path).files == [text]
    assert text.read_text() == "7 8\n"


def test_integers_are_written_in_full(tmp_path, ask) -> None:
    file = save(tmp_path / "ids.npy", [2**63 - 1, -5], "int64")
    result = ask(f"pt {file}", tmp_path)
    assert result.blocks[0].rows == ((0, "9223372036854775807 -5"),)
    assert result.files[0].read_text() == "9223372036854775807 -5\n"
    assert result.data["tensors"][0]["max"] == 2**63 - 1


@pytest.mark.parametrize(("value", "shape"), [([], "(0,)"), (3.0, "()"), (np.zeros((2, 0)), "(2, 0)")])
def test_empty_and_scalar(value: object, shape: str, tmp_path, ask) -> None:
    file = save(tmp_path / "a.npy", value)
    result = ask(f"pt {file}", tmp_path)
    assert f"[Shape: {shape}]" in result.blocks[-1].lines[0]
    assert result.data["tensors"][0]["count"] == np.asarray(value).size


def test_non_finite_elements_are_counted(tmp_path, ask) -> None:
    file = save(tmp_path / "a.npy", [1, np.nan, np.inf, 3])
    (facts,) = ask(f"pt {file}", tmp_path).data["tensors"]
    assert (facts["nan"], facts["inf"], facts["max"], facts["mean"]) == (1, 1, 3.0, 2.0)


def test_name_of_an_op_prints_all_its_tensors(data, ask) -> None:
    result = ask("pt dense/Relu", data.root)
    names = [tensor["tensor"] for tensor in result.data["tensors"]]
    assert names[:2] == ["dense/Relu:input:0", "dense/Relu:output:0"]
    assert len(names) == 3  # and the reference


def test_one_tensor_of_an_op_and_of_a_file(data, ask) -> None:
    (facts,) = ask("pt dense/Relu:input:0", data.root).data["tensors"]
    assert facts["max"] == data.values["dense/BiasAdd"].max()
    (facts,) = ask(f"pt {data.file('Relu')}:output:0", data.root).data["tensors"]
    assert facts["max"] == pytest.approx(1.5 * data.values["dense/Relu"].max())


def test_pickled_array_is_refused_unread(tmp_path, ask) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (os.mkdir, (str(tmp_path / "boom"),))

    file = tmp_path / "bomb.npy"
    np.save(file, np.array([Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="bomb"):
        ask(f"pt {file}", tmp_path)
    assert not (tmp_path / "boom").exists()


def test_unknown_name_offers_the_nearest(data, ask) -> None:
    with pytest.raises(DataError, match="did you mean dense/Relu"):
        ask("pt dense/Reluu", data.root)


# --------------------------------------------------------------------------------------------------------------- cp


def compare(ask, tmp_path: Path, left: object, right: object, options: str = "", dtype: str = "float32"):  # type: ignore[no-untyped-def]
    one, two = save(tmp_path / "l.npy", left, dtype), save(tmp_path / "r.npy", right, dtype)
    return ask(f"cp {one} {two} {options}", tmp_path)


def test_equal_tensors(tmp_path, ask) -> None:
    result = compare(ask, tmp_path, [1, 2, 3], [1, 2, 3])
    assert result.exit_code == 0
    assert result.data["all_close"] is True
    assert "CosSim: 1.000000" in result.blocks[-1].lines


def test_tables_show_errors_and_first_elements(tmp_path, ask) -> None:
    result = compare(ask, tmp_path, [1, 2, 3, 4], [1, 2.5, 3, 5], "-p 3")
    errors, top, _ = result.blocks
    assert errors.title == "Error Item Table"
    assert errors.columns == ("Index", "Left", "Right", "Diff")
    assert errors.rows == ((1, 2.0, 2.5, 0.5), (3, 4.0, 5.0, 1.0))
    assert [row[0] for row in top.rows] == [0, 1, 2]
    assert result.exit_code == 1
    assert result.data["error_share"] == 0.5


@pytest.mark.parametrize(("options", "errors"), [("-al 0 -rl 0", 2), ("-al 0.6 -rl 0", 1), ("-al 0 -rl 0.2", 0)])
def test_tolerances(options: str, errors: int, tmp_path, ask) -> None:
    assert compare(ask, tmp_path, [1, 2, 3, 4], [1, 2.5, 3, 5], options).data["errors"] == errors


def test_nan_counts_as_an_error(tmp_path, ask) -> None:
    result = compare(ask, tmp_path, [1, np.nan, 3], [1, 2, 3])
    assert (result.data["errors"], result.data["non_finite_errors"], result.exit_code) == (1, 1, 1)
    assert result.data["non_finite_mismatches"] == 1
    plain_data(result.data)  # and still strict JSON


def test_shapes_are_never_padded(tmp_path, ask) -> None:
    result = compare(ask, tmp_path, [1, 2, 3], [1, 2])
    assert result.exit_code == 1
    assert result.data["all_close"] is False
    assert "shapes differ" in result.data["reason"]
    assert len(result.blocks) == 1


def test_same_data_in_another_shape_says_both(tmp_path, ask) -> None:
    result = compare(ask, tmp_path, [[1, 2], [3, 4]], [1, 2, 3, 4])
    assert result.exit_code == 1
    assert "shapes differ" in result.data["reason"]
    assert result.data["differing"] == 0


def test_ids_beyond_float_precision_differ(tmp_path, ask) -> None:
    result = compare(ask, tmp_path, [2**60 + 1], [2**60], "-al 0 -rl 0", "int64")
    assert result.data["errors"] == 1
    assert result.blocks[0].rows == ((0, 2**60 + 1, 2**60, 1),)


def test_empty_tensors_do_not_divide_by_zero(tmp_path, ask) -> None:
    result = compare(ask, tmp_path, [], [])
    assert result.exit_code == 0
    assert result.data["error_share"] is None


def test_save_writes_both_texts(tmp_path, ask) -> None:
    result = compare(ask, tmp_path, [1, 2], [1, 3], "-s")
    assert [file.read_text() for file in result.files] == ["1 2\n", "1 3\n"]
    assert compare(ask, tmp_path, [1, 2], [1, 3]).files == []


def test_names_from_the_dumps(data, ask) -> None:
    result = ask("cp dense/Relu:output:0 dense_Relu.0", data.root)
    assert result.data["pattern"].startswith("scaled by 1.5")


@pytest.mark.parametrize("words", ["a", "a b c", ""])
def test_cp_needs_two_names(words: str, data, ask) -> None:
    with pytest.raises(UsageError, match="two names"):
        ask(f"cp {words}", data.root)


def test_file_with_several_tensors_asks_which(data, ask) -> None:
    with pytest.raises(UsageError, match=r"holds 2 tensors; name one of them: .*:input:0"):
        ask(f"cp {data.file('Relu')} {data.file('Relu')}", data.root)


def test_a_damaged_file_shows_what_is_whole_and_is_3(data, ask) -> None:
    file = data.file("Relu")
    os.truncate(file, file.stat().st_size - 40)
    result = ask(f"pt {file}", data.root)
    assert result.exit_code == 3
    (problem,) = result.problems
    assert problem.startswith(f"{file}: dense/Relu:output:0: ")
    assert "cut off" in problem
    listed = ask("ls dump", data.root)
    assert (listed.exit_code, len(listed.problems)) == (3, 1)


def test_data_of_unknown_type_have_no_path_none(tmp_path, ask) -> None:
    np.save(tmp_path / "raw.npy", np.zeros(3, "V2"))
    (panel,) = ask(f"pt {tmp_path}/raw.npy", tmp_path).blocks
    assert any("unknown type" in line for line in panel.lines)
    assert not any("None" in line for line in panel.lines)


def test_cp_says_what_explains_the_difference(tmp_path, ask) -> None:
    right = np.arange(60, dtype=np.float32).reshape(10, 6) ** 2
    left = right[[0, 1, 2, 4, 3, *range(5, 10)]]
    result = compare(ask, tmp_path, left, right)
    lines = result.blocks[-1].lines
    assert "Explanation: rows 3 and 4 swapped" in lines
    details = result.data["details"]
    assert details["explanation"] == "rows 3 and 4 swapped"
    assert details["differing"] == 12
    assert details["tolerance"]["atol"] == float(np.abs(left - right).max())
    assert any(line.startswith("MaxUlp: ") and line.endswith(" of the elements within 1") for line in lines)
    assert any(line.startswith("ErrorByDecade: 0: 48, 1e2: 12") for line in lines), lines
    assert any(line.startswith("RequiredTolerance, rl alone: ") for line in lines)
    plain_data(result.data)


def test_cp_gives_the_reason_of_what_does_not_exist(tmp_path, ask) -> None:
    lines = compare(ask, tmp_path, [1, np.nan, 0], [0, 2, 0]).blocks[-1].lines
    assert "NonFinite: nan against finite: 1" in lines
    assert any(line.startswith("RequiredTolerance, al alone: NaN (1 element(s) are not finite") for line in lines)
    assert compare(ask, tmp_path, [1, 2], [1, 2]).data["details"] is None
    integers = compare(ask, tmp_path, [1, 2], [1, 9], dtype="int64").blocks[-1].lines
    assert any(line.startswith("MaxUlp: NaN (integers") for line in integers)


def test_cp_of_a_transposed_tensor_says_so(tmp_path, ask) -> None:
    right = np.random.default_rng(0).normal(size=(4, 6))
    result = compare(ask, tmp_path, right.T, right)
    assert result.exit_code == 1
    assert "shapes differ" in result.data["reason"]
    assert result.data["details"]["explanation"] == "transposed"
