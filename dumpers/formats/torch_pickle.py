"""What a PyTorch file's ``data.pkl`` says, told without running it.

A pickle is a program; unpickling one that somebody else wrote runs what they like. Here its instructions are only read
(:func:`pickletools.genops`) and a short list of them is acted out on plain data: containers, numbers, texts, references
to storages, and the few calls that make a tensor of a storage. Whatever else stands in the file is named and refused.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from dumpers.errors import DataError


@dataclass(frozen=True)
class TorchGlobal:
    """The name of a class or function; it is never looked up."""

    name: str


@dataclass(frozen=True)
class TorchStorage:
    """A reference to a storage.

    Attributes:
        kind: ``FloatStorage`` and the like, ``UntypedStorage`` where the tensor tells the type.
        key: Name of the member below ``data/``.
        count: Elements, bytes for an untyped one.
    """

    kind: str
    key: str
    count: int


@dataclass(frozen=True)
class TorchTensor:
    """A tensor as the file describes it; nothing in it has been checked against the storage.

    Attributes:
        storage: Where the elements lie, None for a tensor of a kind that is not read.
        offset: Of the first element, in elements.
        shape: Sizes.
        strides: Steps, in elements.
        dtype: ``float8_e5m2`` and the like where the storage is untyped, else empty.
        note: Why it is not read.
    """

    storage: TorchStorage | None
    offset: int = 0
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dtype: str = ""
    note: str = ""


Value: TypeAlias = (
    "bool | int | float | str | bytes | TorchGlobal | TorchStorage | TorchTensor | tuple[Value, ...] | list[Value] "
    "| dict[Value, Value] | None"
)

_MOST_STEPS: Final = 20_000_000
"""Instructions; a state of a hundred thousand tensors has about five million."""

_REBUILD: Final = {
    "torch._utils._rebuild_tensor": (4, 4),
    "torch._utils._rebuild_tensor_v2": (6, 7),
    "torch._utils._rebuild_tensor_v3": (7, 8),
    "torch_npu.utils.storage._rebuild_npu_tensor": (7, 7),
}
"""Calls that make a tensor of ``(storage, offset, size, strides, ...)``, with the number of arguments they take."""

_UNREAD: Final = {
    "torch._utils._rebuild_sparse_tensor": "sparse tensor",
    "torch._utils._rebuild_qtensor": "quantised tensor",
    "torch._utils._rebuild_meta_tensor_no_storage": "tensor without data (meta)",
    "torch._utils._rebuild_nested_tensor": "nested tensor",
}
_PARAMETER: Final = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")
_SUBCLASS: Final = "torch._tensor._rebuild_from_type_v2"
_KNOWN: Final = frozenset(
    {
        *_REBUILD, *_UNREAD, *_PARAMETER, _SUBCLASS, "collections.OrderedDict", "torch.Size", "torch.device",
        "_codecs.encode", "torch.Tensor", "torch.nn.parameter.Parameter",
        "torch.storage.UntypedStorage", "torch.storage.TypedStorage", "torch.serialization._get_layout",
        "torch.FloatStorage", "torch.DoubleStorage", "torch.HalfStorage", "torch.BFloat16Storage",
        "torch.LongStorage", "torch.IntStorage", "torch.ShortStorage", "torch.CharStorage", "torch.ByteStorage",
        "torch.BoolStorage", "torch.ComplexFloatStorage", "torch.ComplexDoubleStorage", "torch.QInt8Storage",
        "torch.QUInt8Storage", "torch.QInt32Storage", "torch.QUInt4x2Storage", "torch.QUInt2x4Storage",
    }
)  # fmt: skip
_DTYPE: Final = re.compile(r"torch\.(float|bfloat|int|uint|bool|complex|qint|quint)\w{0,16}")


def interpret(program: bytes) -> Value:
    """Returns the plain data that a ``data.pkl`` describes.

    Raises:
        DataError: it is damaged, or holds Python objects beyond the short list.
    """
    machine = _Machine()
    position = 0
    try:
        for step, (opcode, argument, where) in enumerate(pickletools.genops(program)):
            position = where or 0
            if step > _MOST_STEPS:
                raise DataError(f"data.pkl has more than {_MOST_STEPS} instructions")
            machine.run(opcode.name, argument)
    except DataError as error:
        raise DataError(f"{error} (byte {position} of data.pkl)") from error
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, EOFError, MemoryError, RecursionError) as error:
        raise DataError(f"data.pkl is damaged at byte {position}: {_first_line(error)}") from error
    if len(machine.stack) != 1:
        raise DataError(f"data.pkl is damaged: {len(machine.stack)} values instead of one at its end, byte {position}")
    return machine.stack[0]


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no detail'}"[:200]


class _Machine:
    """The stack machine of the pickle format, for the instructions that tensor files need."""

    def __init__(self) -> None:
        self.stack: list[Value] = []
        self._marks: list[list[Value]] = []
        self._memo: dict[int, Value] = {}

    def run(self, name: str, argument: object) -> None:
        """Acts out one instruction.

        Raises:
            DataError: it is not one of those that plain data need.
        """
        if name in _PUSH:
            self.stack.append(cast("Value", argument))
        elif name in _CONSTANT:
            self.stack.append(_CONSTANT[name])
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[_number(argument)] = self.stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self.stack.append(self._memo[_number(argument)])
        elif name == "GLOBAL":
            self.stack.append(_global(str(argument).replace(" ", ".", 1)))
        elif name in _ACTIONS:
            _ACTIONS[name](self)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise DataError(f"holds Python objects (instruction {name}); it is not opened, since that could run code")

    def mark(self) -> None:
        self._marks.append(self.stack)
        self.stack = []

    def _since_mark(self) -> list[Value]:
        items, self.stack = self.stack, self._marks.pop()
        return items

    def make_tuple(self) -> None:
        items = self._since_mark()
        self.stack.append(tuple(items))

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise IndexError("not enough values for a tuple")
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        self.stack.append(items)

    def append(self) -> None:
        item = self.stack.pop()
        _list(self.stack[-1]).append(item)

    def appends(self) -> None:
        items = self._since_mark()
        _list(self.stack[-1]).extend(items)

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _set_items(_dict(self.stack[-1]), [key, value])

    def set_items(self) -> None:
        items = self._since_mark()
        _set_items(_dict(self.stack[-1]), items)

    def fresh(self, kind: Callable[[], Value]) -> None:
        self.stack.append(kind())

    def stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise TypeError("a name that is no text")
        self.stack.append(_global(f"{module}.{name}"))

    def persistent(self) -> None:
        self.stack.append(_storage(self.stack.pop()))

    def reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, TorchGlobal) or not isinstance(arguments, tuple):
            raise TypeError("a call of what is no function")
        self.stack.append(_call(function.name, arguments))

    def build(self) -> None:
        """Attributes of an object (the ``_metadata`` of a state dict): dropped, they hold no tensor of the model."""
        self.stack.pop()
        if not isinstance(self.stack[-1], (dict, TorchTensor)):
            raise DataError("holds Python objects (attributes); it is not opened, since that could run code")

    def pop(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.stack = self._marks.pop()

    def pop_mark(self) -> None:
        self._since_mark()

    def dup(self) -> None:
        self.stack.append(self.stack[-1])


_PUSH: Final = frozenset(
    {
        "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
        "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    }
)  # fmt: skip
_CONSTANT: Final[Mapping[str, Value]] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_ACTIONS: Final[Mapping[str, Callable[[_Machine], None]]] = {
    "MARK": _Machine.mark,
    "TUPLE": _Machine.make_tuple,
    "TUPLE1": lambda machine: machine.tuple_of(1),
    "TUPLE2": lambda machine: machine.tuple_of(2),
    "TUPLE3": lambda machine: machine.tuple_of(3),
    "EMPTY_LIST": lambda machine: machine.fresh(list),
    "EMPTY_DICT": lambda machine: machine.fresh(dict),
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "STACK_GLOBAL": _Machine.stack_global,
    "BINPERSID": _Machine.persistent,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
    "POP": _Machine.pop,
    "POP_MARK": _Machine.pop_mark,
    "DUP": _Machine.dup,
}


def _global(name: str) -> TorchGlobal:
    name = name.removeprefix("__builtin__.").removeprefix("builtins.")
    if name not in _KNOWN and not _DTYPE.fullmatch(name):
        raise DataError(f"holds Python objects ({ascii(name)[1:81]}); it is not opened, since that could run code")
    return TorchGlobal(name)


def _storage(value: Value) -> TorchStorage:
    if not isinstance(value, tuple) or len(value) < 5 or value[0] != "storage":
        raise DataError("refers to something that is no storage; the file is damaged or of an old PyTorch")
    _, kind, key, _, count = value[:5]
    if not isinstance(kind, TorchGlobal) or not kind.name.endswith("Storage") or not isinstance(key, str):
        raise TypeError("a storage without type or name")
    return TorchStorage(kind.name.rpartition(".")[2], key, _size(count))


def _call(name: str, arguments: tuple[Value, ...]) -> Value:
    if name in _UNREAD:
        return TorchTensor(None, note=_UNREAD[name])
    if name in _REBUILD or name in _PARAMETER or name == _SUBCLASS:
        return _rebuilt(name, arguments)
    if name == "collections.OrderedDict":
        return _ordered_dict(arguments)
    if name == "torch.Size":
        return tuple(_size(dim) for dim in _tuple(arguments[0]))
    if name == "torch.device":
        return ":".join(str(part) for part in arguments if isinstance(part, (str, int)))
    if name == "_codecs.encode" and isinstance(arguments[0], str) and arguments[1:] in ((), ("latin1",)):
        return arguments[0].encode("latin1")
    raise DataError(f"holds Python objects (a call of {name}); it is not opened, since that could run code")


def _rebuilt(name: str, arguments: tuple[Value, ...]) -> TorchTensor:
    if name in _REBUILD:
        return _tensor(name, arguments)
    if name in _PARAMETER:
        if not arguments or not isinstance(arguments[0], TorchTensor):
            raise TypeError("a parameter that is no tensor")
        return arguments[0]
    function, _, inner, *_ = arguments
    if not isinstance(function, TorchGlobal) or not isinstance(inner, tuple) or function.name not in _REBUILD:
        raise TypeError("a tensor subclass of unknown making")
    return _tensor(function.name, inner)


def _tensor(name: str, arguments: tuple[Value, ...]) -> TorchTensor:
    least, most = _REBUILD[name]
    if not least <= len(arguments) <= most:
        raise TypeError(f"{len(arguments)} arguments of {name}")
    storage, offset, shape, strides = arguments[:4]
    if not isinstance(storage, TorchStorage):
        raise TypeError("a tensor without storage")
    dtype = arguments[6] if name.endswith("_v3") else None
    return TorchTensor(
        storage,
        _size(offset),
        tuple(_size(dim) for dim in _tuple(shape)),
        tuple(_size(stride) for stride in _tuple(strides)),
        dtype.name.removeprefix("torch.") if isinstance(dtype, TorchGlobal) else "",
    )


def _ordered_dict(arguments: tuple[Value, ...]) -> dict[Value, Value]:
    made: dict[Value, Value] = {}
    for pairs in arguments[:1]:
        for pair in _list(pairs):
            key, value = pair if isinstance(pair, tuple) else _list(pair)
            _set_items(made, [key, value])
    return made


def _set_items(target: dict[Value, Value], items: list[Value]) -> None:
    if len(items) % 2:
        raise ValueError("a key without value")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, (str, int, float, bool, type(None))):
            raise DataError(f"holds a {type(key).__name__} as a key, which no file of tensors does")
        target[key] = value


def _list(value: Value) -> list[Value]:
    if not isinstance(value, list):
        raise TypeError(f"a {type(value).__name__} where a list is needed")
    return value


def _dict(value: Value) -> dict[Value, Value]:
    if not isinstance(value, dict):
        raise TypeError(f"a {type(value).__name__} where a dict is needed")
    return value


def _tuple(value: Value) -> tuple[Value, ...]:
    if not isinstance(value, tuple):
        raise TypeError(f"a {type(value).__name__} where a tuple is needed")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError("no number")
    return value


def _size(value: Value) -> int:
    number = _number(value)
    if isinstance(value, bool) or not 0 <= number < 1 << 62:
        raise ValueError(f"size, stride or offset {number if abs(number) < 1 << 64 else 'of more than 64 bits'}")
    return number
