"""Mixed precision as the device's compiler declares it: Cast operators in front of products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.npu.kernels import cast_half
from engine.npu.optypes import PRODUCTS
from engine.npu.tasks import Draft, Place
from engine.observe import DevicePort


def insert_casts(drafts: Mapping[str, Draft]) -> dict[str, Draft]:
    """Puts a Cast to float16 in front of each float32 operand of a product.

    One Cast serves all products that read the same place, unless that place is a variable, which changes in between.

    Args:
        drafts: All operators in order of execution; products are changed in place.

    Returns:
        All operators in order of execution, Casts included.
    """
    result: dict[str, Draft] = {}
    casts: dict[Place, Draft] = {}
    count = 0
    for draft in drafts.values():
        if draft.type in PRODUCTS and draft.attrs.get("T") == "float32":
            for index in range(2):
                source = draft.inputs[index]
                cast = casts.get(source)
                if cast is None:
                    cast = _cast(f"trans_Cast_{count}", source, draft.input_ports[index])
                    count += 1
                    result[cast.name] = cast
                    if not drafts[source[0]].variable:
                        casts[source] = cast
                draft.inputs[index] = (cast.name, 0)
                draft.input_ports[index] = cast.output_ports[0]
        result[draft.name] = draft
    return result


def _cast(name: str, source: Place, port: DevicePort) -> Draft:
    cast = Draft(name, "Cast", inputs=[source], originals=(), kernel=cast_half)
    cast.input_ports = [port]
    cast.output_ports = [replace(port, dtype="float16", origin=None)]
    cast.attrs = {"SrcT": "float32", "DstT": "float16"}
    return cast
