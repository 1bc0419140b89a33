"""Text of the script that shows one op's fault with NumPy alone; nothing from a dump ever becomes part of it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from compare.kernels.table import device_type, find_kernel
from precision_tool.repro_formulas import BODIES
from precision_tool.repro_raw_op import RAW_OP

_HEAD = '''\
"""Runs one operator again in float64 and holds what a device wrote against it. Needs Python 3.7 and {needs}.

    python THIS_FILE.py        reads the .npz of the same name beside it

Exit code 1: an element is off by more than LIMIT times its bound, which rounding does not explain; 0: none is;
3: this could not be found out, the reason is on the standard error.
The bound of each element is in the .npz: {bound}
"""
import json
import os
import sys

try:
    import numpy as np
except ImportError as error:
    sys.stderr.write("%s\\n" % error)
    sys.exit(3)

LIMIT = {limit}
LARGEST = {{"float64": np.finfo(np.float64).max, "float32": float(np.finfo(np.float32).max),
           "float16": 65504.0, "bfloat16": 2.0 ** 128 - 2.0 ** 120}}
DATA = os.path.splitext(os.path.abspath(__file__))[0] + ".npz"
NORMAL = {{"float64": 2.0 ** -1022, "float32": 2.0 ** -126, "bfloat16": 2.0 ** -126}}

'''

_TAIL = '''

def wide(values, dtype):
    """Floats as float64 (bfloat16 is stored as the upper 16 bits of a float32), anything else as it is."""
    if dtype == "bfloat16":
        bits = np.asarray(values.astype(np.uint32) << np.uint32(16), dtype=np.uint32)
        return bits.view(np.float32).astype(np.float64)
    return values.astype(np.float64) if values.dtype.kind == "f" else values


def judge(got, right, bound, dtype):
    """Returns the error and the ratio of error to bound of each element."""
    if dtype not in LARGEST or right.dtype.kind in "iub":
        far = np.abs(got.astype(np.float64) - right.astype(np.float64))
        error, wrong = np.where(got == right, 0.0, np.where(far > 0, far, 1.0)), np.zeros(got.shape, bool)
    else:
        both = np.isfinite(got) & np.isfinite(right)
        if dtype == "float16":  # some devices write the largest number in place of infinity
            full = np.isfinite(got) & (np.abs(right) > LARGEST[dtype])
            right, both = np.where(full, np.copysign(LARGEST[dtype], right), right), both | full
        over = np.abs(right) + np.where(np.isinf(bound), 0.0, bound) >= LARGEST[dtype]
        over &= np.isinf(got) & (np.sign(got) == np.sign(right))
        wrong = ~(both | (np.isnan(got) & np.isnan(right)) | over)
        error = np.where(both, np.abs(got - right), 0.0)
    ratio = np.where(error > 0, error / bound, 0.0)
    ratio = np.where(wrong & ~np.isinf(bound), np.inf, np.where(np.isnan(ratio), 0.0, ratio))
    return np.where(wrong, np.inf, error), ratio


def main():
    """Prints the op and its worst elements; returns the exit code."""
    data = np.load(DATA, allow_pickle=False)
    meta = json.loads(data["meta"].tobytes().decode("ascii"))
    print("op:", json.dumps(meta["op"])[:300])
    shown = {k: v for k, v in meta["attributes"].items() if k not in ("node", "types", "output_dtypes")}
    print("type:", json.dumps(meta["type"]), " attributes:", json.dumps(shown, sort_keys=True)[:2000])
    inputs = [wide(data["input_%d" % k], port["dtype"]) for k, port in enumerate(meta["inputs"])]
    for k, port in enumerate(meta["inputs"]):
        print("input %d: %s %s" % (k, port["dtype"], port["shape"]), "here: %s" % list(inputs[k].shape))
    rows = data["rows"] if "rows" in data.files else None
    if rows is not None:
        print("only these rows (axis 0) are here:", rows.tolist())
    right = compute(inputs, meta["attributes"])
    if meta["subnormal"]:  # as right: subnormal inputs taken as zero
        limits = [NORMAL.get(port["dtype"], 0.0) for port in meta["inputs"]]
        flushed = compute([np.where(np.abs(x) < n, 0, x) if n else x for x, n in zip(inputs, limits)],
                          meta["attributes"])
    found = False
    for port in meta["outputs"]:
        k = port["slot"]
        got, bound = wide(data["output_%d" % k], port["dtype"]), data["bound_%d" % k]
        error, ratio = judge(got, right[k], bound, port["dtype"])
        if meta["subnormal"]:
            error2, ratio2 = judge(got, flushed[k], data["flushed_bound_%d" % k], port["dtype"])
            error, ratio = np.where(ratio2 < ratio, error2, error), np.minimum(ratio, ratio2)
        beyond = int((ratio > LIMIT).sum())
        found = found or beyond > 0
        print("output %d: %s %s, %d of %d elements here beyond %g times the bound"
              % (k, port["dtype"], port["shape"], beyond, ratio.size, LIMIT))
        flat = np.lexsort((-error.reshape(-1), -ratio.reshape(-1)))[:5]
        for place in flat[ratio.reshape(-1)[flat] > 0].tolist():
            at = tuple(int(i) for i in np.unravel_index(place, ratio.shape))
            index = list(at) if rows is None else [int(rows[at[0]])] + list(at[1:])
            print("  at %s dumped %r expected %r error %r bound %r ratio %.6g"
                  % ((index,) + tuple(float(v[at]) for v in (got, right[k], error, bound)) + (ratio[at],)))
    print("FAULT: rounding does not explain this" if found else "no fault: rounding explains all of it")
    return 1 if found else 0


if __name__ == "__main__":
    np.seterr(all="ignore")
    try:
        code = main()
    except Exception as error:  # a missing package, a damaged file: not the fault that this script shows
        sys.stderr.write("%s: %s: %s\\n" % (DATA, type(error).__name__, (str(error).splitlines() or [""])[0]))
        code = 3
    sys.exit(code)
'''


def script_text(op_type: str, chain: Sequence[tuple[str, tuple[int, ...]]], limit: float) -> str:
    """Returns the script of one op.

    Args:
        op_type: Type in the graph.
        chain: Members of a fused op, device type and the inputs each reads from outside; empty for a plain op.
        limit: Ratio of error to bound above which an element is wrong.
    """
    types = [kind for kind, _ in chain] or [device_type(op_type)]
    plain = all(kind in BODIES for kind in types)
    needs = "NumPy" if plain else "NumPy, TensorFlow 1.15 or later"
    head = _HEAD.format(needs=needs, limit=limit, bound=" Then: ".join(dict.fromkeys(map(bound_words, types))))
    return head + compute_text(op_type, chain) + _TAIL


def compute_text(op_type: str, chain: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    """Returns the definition of ``compute(x, a)``, and of a function per member of a fused op."""
    if not chain:
        return _function("compute", BODIES.get(device_type(op_type), RAW_OP))
    parts, calls, taken = [], [], 0
    for position, (kind, externals) in enumerate(chain):
        parts.append(_function(f"step_{position}", BODIES[kind]))
        given = ([f"y{position - 1}"] if position else []) + [f"x[{k}]" for k in externals]
        calls.append(f"y{position} = step_{position}([{', '.join(given)}], a)[0]")
        taken += len(externals)
    return "\n\n".join((*parts, _function("compute", "\n".join((*calls, f"return [y{len(chain) - 1}]")))))


def bound_words(kind: str) -> str:
    """Says in words where the bound of a device type comes from."""
    kernel = find_kernel(kind)
    if kernel is None or kernel.bound is None:
        return "0, the op rounds nothing."
    if kernel.accumulates or kind in ("ReduceSum", "ReduceMean", "UnsortedSegmentSum", "SegmentSum", "AddN"):
        return (
            "K terms t with partial sums s: the\nsmaller of K u sum|t| and lambda u/2 sqrt(W), W = max(sum s^2, "
            "K/3 (sum t)^2 + K/6 sum t^2) (+ sum t^2 for products),\nlambda^2 = 2 ln(2 elements / 1e-9), u the unit "
            "roundoff of the accumulator; plus one rounding to the output. Higham and\nMary, SIAM J. Sci. Comput. 41 "
            "(2019)."
        )
    return (
        "running error analysis\n(Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.3): each "
        "basic operation may be off by 2 u of\nits result, each elementary function by 8 u, u the unit roundoff of "
        "the dtype."
    )


def _function(name: str, body: str) -> str:
    return f"def {name}(x, a):\n{textwrap.indent(body, '    ')}\n"
