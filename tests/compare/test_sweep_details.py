"""Which pairs of a sweep get a second look, and that large pairs come out the same by several threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compare import second_look, sums, sweep, units
from compare.sweep import SweepOptions, compare_dumps
from compare.table import Comparison, csv_text
from dumpers.formats.npy import write_npy
from dumpers.formats.registry import read_dump

TIME = 1_700_000_000_000_000
RNG = np.random.default_rng(5)
X = RNG.standard_normal((40, 25)).astype(np.float32)
SWAPPED = X.copy()
SWAPPED[[5, 6]] = SWAPPED[[6, 5]]
NAN = X.copy()
NAN[1, 2] = np.nan
IDS = np.arange(100)
PAIRS = {
    "equal": (X, X),
    "rounded": (X, X * (1 + 1e-4 * RNG.standard_normal(X.shape)).astype(np.float32)),
    "doubled": (2 * X, X),
    "swapped": (SWAPPED, X),
    "turned": (X.T.copy(), X),
    "nan": (NAN, X),
    "ids": (IDS, np.where(IDS == 50, 51, IDS)),
}


@pytest.fixture
def dumps(tmp_path: Path) -> tuple[Path, Path]:
    for number, (name, arrays) in enumerate(PAIRS.items()):
        for side, array in zip(("left", "right"), arrays, strict=True):
            (tmp_path / side).mkdir(exist_ok=True)
            write_npy(tmp_path / side / f"{name}.0.{TIME + number}.npy", array)
    return tmp_path / "left", tmp_path / "right"


def compared(dumps: tuple[Path, Path], options: SweepOptions | None = None, threads: int = 2) -> Comparison:
    return compare_dumps(read_dump(dumps[0]), read_dump(dumps[1]), threads=threads, options=options)


def explanations(comparison: Comparison) -> dict[str, str]:
    return {row.op: row.figures.details.explanation for row in comparison.rows if row.figures and row.figures.details}


def test_suspicious_pairs_get_a_second_look(dumps: tuple[Path, Path]) -> None:
    found = explanations(compared(dumps))
    assert set(found) == {"doubled", "swapped", "turned", "nan", "ids"}
    assert found["doubled"] == "scaled by 2 (left = 2 x right)"
    assert "rows 5 and 6 swapped" in found["swapped"]
    assert "transposed" in found["turned"]


def test_all_or_none(dumps: tuple[Path, Path]) -> None:
    assert set(explanations(compared(dumps, SweepOptions(details="all")))) == set(PAIRS) - {"equal"}
    assert explanations(compared(dumps, SweepOptions(details="none"))) == {}


def test_the_result_file_says_what_explains_a_difference(dumps: tuple[Path, Path]) -> None:
    lines = {line.split(",")[2]: line for line in csv_text(compared(dumps)).splitlines()}
    assert "rows 5 and 6 swapped" in lines["swapped"]
    assert "scaled by 2" in lines["doubled"]
    assert "transposed" in lines["turned"]


def test_too_large_pairs_are_left_out_and_it_is_said(dumps: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_look, "LARGEST", 1000)
    comparison = compared(dumps)
    assert set(explanations(comparison)) == {"ids"}
    notes = {row.op: row.note for row in comparison.rows}
    assert "no second look" in notes["doubled"]
    assert notes["rounded"] == notes["equal"] == ""


def test_mapped_and_loaded_tensors_look_the_same(dumps: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = compared(dumps)
    monkeypatch.setattr(second_look, "_SMALL", 0)
    assert compared(dumps).rows == loaded.rows


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_large_pairs_by_several_threads(
    dumps: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(sums, "CHUNK_BYTES", 512)
    alone = csv_text(compared(dumps, threads=1))
    for bound in ("SMALL_BYTES", "LARGE_BYTES"):
        monkeypatch.setattr(units, bound, 0)
    asked = []
    whole = sweep.threaded_map
    monkeypatch.setattr(sweep, "threaded_map", lambda count: asked.append(count) or whole(count))
    assert csv_text(compared(dumps, threads=threads)) == alone
    assert asked == ([threads] * (len(PAIRS)) if threads > 1 else [])
