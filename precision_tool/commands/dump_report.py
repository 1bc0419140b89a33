"""What ``dump --plan`` answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dumpers.errors import DataError
from precision_tool.result import Cell, Result, Table

if TYPE_CHECKING:
    from precision_tool.dump_plan import DumpPlan, OpTypeShare

_TYPES_SHOWN: Final = 12
_NAMES_SHOWN: Final = 40
_BAR: Final = 40


def planned(plan: DumpPlan, of: str, out: Path | None) -> Result:
    """Shows a plan, and writes the names of its cut set.

    Args:
        plan: The plan.
        of: What was planned for: a script or a record.
        out: File for the names.

    Raises:
        DataError: the file cannot be written, or there is no name for it.
    """
    cut = plan.cut
    size = {tensor.taken.name: tensor.size_bytes for tensor in plan.chosen}
    rows = (
        ("all", len(plan.tensors), plan.size_bytes),
        ("as chosen", len(plan.chosen), sum(size.values())),
        ("cut set", len(cut.names), cut.size_bytes),
    )
    notes = [
        f"cut set within {cut.budget:,} bytes: the first of its tensors that differs leaves {cut.median_region:g} of "
        f"{cut.ops} ops to suspect (median; at most {cut.largest_region}); {cut.unseen} of them lead to none"
    ]
    if plan.selection:
        said = ", ".join(f"{name}={text}" for name, text in plan.selection.items())
        notes.append(f"the record has only what {said} chose; this is no plan of the whole step")
    if out is not None:
        _write_names(out, cut.names, of)
        notes.append(f"wrote {out}; record these tensors with: dump --tensors {out} SCRIPT")
    names = tuple((name, size[name]) for name in cut.names)
    return Result(
        title=f"step {plan.step} of {of}: {len(plan.tensors)} tensors, {plan.size_bytes:,} bytes",
        blocks=[
            Table("Plan", ("What", "Tensors", "Bytes"), rows),
            Table("By op type", ("Type", "Tensors", "Bytes", "Share", ""), _type_rows(plan.types)),
            Table("Cut set", ("Tensor", "Bytes"), names, paged=len(names) > _NAMES_SHOWN),
        ],
        notes=notes,
        data={
            "of": of,
            "step": plan.step,
            "tensors": len(plan.tensors),
            "bytes": plan.size_bytes,
            "types": [asdict(share) for share in plan.types],
            "record_selection": dict(plan.selection),
            "chosen": {"tensors": len(plan.chosen), "bytes": sum(size.values())},
            "cut": asdict(cut),
        },
        files=[] if out is None else [out],
    )


def _type_rows(types: Sequence[OpTypeShare]) -> tuple[tuple[Cell, ...], ...]:
    """The types with most bytes and a bar each; the others together."""
    shown = [(found.op_type, found.tensors, found.size_bytes, found.share) for found in types[:_TYPES_SHOWN]]
    if rest := types[_TYPES_SHOWN:]:
        tensors, size = (sum(numbers) for numbers in zip(*((t.tensors, t.size_bytes) for t in rest), strict=True))
        shown.append((f"{len(rest)} other types", tensors, size, sum(found.share for found in rest)))
    return tuple(
        (name, tensors, size, f"{share:.1%}", "#" * round(_BAR * share)) for name, tensors, size, share in shown
    )


def _write_names(path: Path, names: Sequence[str], of: str) -> None:
    from dumpers.formats.atomic import atomic_file

    if not names:
        raise DataError("the cut set is empty: raise --cut or choose more tensors")
    heading = "# cut set of " + " ".join(of.split())
    try:
        with atomic_file(path) as file:
            file.write("".join(f"{line}\n" for line in (heading, *names)).encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error
