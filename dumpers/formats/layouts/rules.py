"""The private layouts: their axes, how sure the rule is, and where it comes from.

How sure a rule is:

* ``verified``: constants of a real compiled model come back bit for bit;
* ``documented``: stated in the vendor's documentation or done so by its public comparison program;
* ``derived``: read off public source: the graph engine's format transfer and shape transfer, the conversion operator
  and its tests. No real file was at hand.

C0 is the length of the last stored axis, Ni that of the other block axis. They are read from the stored shape, never
assumed; only ND_RNN_BIAS, whose shape does not show it, takes 16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Certainty = Literal["verified", "documented", "derived"]
Family = Literal["blocks", "matrix", "small_channels", "lstm", "rnn", "rnn_bias"]

_IMAGES: Final = ("NCHW", "NHWC", "HWCN")
_VOLUMES: Final = ("NCDHW", "NDHWC")
_FILTERS_3D: Final = ("NCDHW", "NDHWC", "DHWCN")


@dataclass(frozen=True)
class Rule:
    """How a private layout lies in memory.

    Attributes:
        axes: Stored axes: ``C1`` counts blocks, ``C0`` runs inside one, ``C1.H.W`` is one axis that runs over three.
        plain: Layouts that the original shape may have where nothing tells it, the usual one first.
        certainty: How sure the rule is (see the module).
        basis: Where it comes from, and what is special about it.
        family: The code that knows it.
        fewer_axes: Whether an original shape with fewer axes is taken as one whose other axes have length 1.
        grouped: Whether the filters of a grouped convolution are packed.
        diagonal: Whether an axis ``Co`` beside C0 holds the values on its diagonal.
    """

    axes: str
    plain: tuple[str, ...]
    certainty: Certainty
    basis: str
    family: Family = "blocks"
    fewer_axes: bool = False
    grouped: bool = False
    diagonal: bool = False


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "NC1HWC0": Rule(
            "N C1 H W C0", _IMAGES, "documented", "Public documentation and the vendor's comparison.", fewer_axes=True
        ),
        "NC1HWC0_C04": Rule(
            "N C1 H W C0", _IMAGES, "documented", "NC1HWC0 with blocks of four channels.", fewer_axes=True
        ),
        "NDC1HWC0": Rule(
            "N D C1 H W C0", _VOLUMES, "documented", "Documentation; four axes mean a depth of 1.", fewer_axes=True
        ),
        "FRACTAL_Z": Rule(
            "C1.H.W N1 N0 C0", _IMAGES, "verified",
            "Filters. A matrix is taken as (C, N). Packed groups: derived, and in agreement with the operator's tests.",
            grouped=True,
        ),
        "FRACTAL_Z_G": Rule(
            "C1.H.W N1 N0 C0", _IMAGES, "derived", "The operator's tests: FRACTAL_Z with packed groups.", grouped=True
        ),
        "FRACTAL_Z_3D": Rule(
            "D.C1.H.W N1 N0 C0", _FILTERS_3D, "derived",
            "Graph engine's transfer from DHWCN, operator's from NCDHW and NDHWC.", grouped=True,
        ),
        "FRACTAL_Z_3D_TRANSPOSE": Rule(
            "D.N1.H.W C1 C0 N0", ("DHWNC", *_VOLUMES), "derived",
            "Graph engine's transfer from DHWNC: FRACTAL_Z_3D with C and N in each other's place.",
        ),
        "FRACTAL_Z_C04": Rule(
            "P1 N1 N0 P0.C0", _IMAGES, "derived",
            "Graph engine's transfer from NCHW: four channels a pixel P = H.W, as many pixels as fill C0.",
            family="small_channels",
        ),
        "FRACTAL_NZ": Rule(
            "B W1 H1 H0 W0", (), "verified",
            "The last two axes are cut, those before are a batch. A stored matrix may also have merged axes.",
            family="matrix",
        ),
        "FRACTAL_ZZ": Rule(
            "B H1 W1 H0 W0", (), "derived", "Graph engine's transfer: as FRACTAL_NZ, blocks row by row.",
            family="matrix",
        ),
        "C1HWNCoC0": Rule(
            "C1 H W N C0", _IMAGES, "derived",
            "Graph engine's transfer from HWCN (depthwise filters): values where Co = C0, zeros elsewhere.",
            diagonal=True,
        ),
        "C1HWNC0": Rule("C1 H W N C0", _IMAGES, "derived", "Public convolution tests pack filters so."),
        "NHWC1C0": Rule("N H W C1 C0", _IMAGES, "derived", "Spelled out by the name; no code that uses it was found."),
        "C1HWC0": Rule(
            "N1 H W N0", ("HWCN", "NCHW", "NHWC"), "derived",
            "Host operator's transfer: depthwise filters with one input channel, N in the place of C.",
        ),
        "FRACTAL_ZN_LSTM": Rule(
            "C1.H.W N1 N0 C0", ("HWCN", "NCHW", "NHWC"), "derived",
            "The operator's tests: FRACTAL_Z whose four gates (N) and two inputs (C) are padded one by one.",
            family="lstm",
        ),
        "FRACTAL_ZN_RNN": Rule(
            "C1 N1 N0 C0", ("CN",), "derived",
            "The operator's tests and the shape transfer: gates (N) padded one by one, input and state (C) too.",
            family="rnn",
        ),
        "ND_RNN_BIAS": Rule(
            "N", ("N",), "derived", "Operator: each gate is padded to a multiple of 16.", family="rnn_bias"
        ),
    }
)  # fmt: skip
"""Layouts that are undone and made, by name."""

WITHOUT_RULE: Final = frozenset(
    {
        *("NC1C0HWPAD", "FSR_NCHW", "FRACTAL_DECONV", "FRACTAL_DECONV_TRANSPOSE", "FRACTAL_DECONV_SP_STRIDE_TRANS"),
        *("FRACTAL_DECONV_SP_STRIDE8_TRANS", "NC1KHKWHWC0", "BN_WEIGHT", "FRACTAL_Z_WINO", "YUV", "YUV_A"),
        *("NYUV", "NYUV_A"),
    }
)
"""Private layouts for which no rule is public: such data are shown as they are stored."""

PLAIN: Final = frozenset({"NCHW", "NHWC", "HWCN", "CHWN", "NCDHW", "NDHWC", "DHWCN", "DHWNC", "NC", "CN", "NCL", "ND"})
"""Layouts of frameworks: the letters are the axes, in order."""
