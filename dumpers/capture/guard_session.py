"""The ladder of a session: its fetches, its feeds and the variables of its graph."""

from __future__ import annotations

import hashlib
import re
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Tuple

from .guard import HASH_BYTES, Ladder, Line, Named, leaves
from .requests import Fetched, Fetches
from .steps import executed

if TYPE_CHECKING:
    import tensorflow as tf

_READING = ("VarHandleOp", "VariableV2", "Variable", "ReadVariableOp", "Identity")
_COLLECTIONS = ("trainable_variables", "variables", "local_variables")
_RANDOM = ("Random", "TruncatedNormal", "Multinomial", "Shuffle")
_ORDER = ("ShuffleDataset", "ParallelInterleave", "RandomShuffleQueue", "ShuffleAndRepeat")
_DRAWN = re.compile(rb"_temp_[0-9a-f]{32}")
"""What a Saver draws for the names of its temporary files; a graph with a Saver is another one each time."""

_NAMED = 5
"""So many ops are named as examples."""


class SessionLadder(Ladder):
    """The ladder of a session and of those that TensorFlow makes for the same graph after a failure.

    Variables are read by a run of their own between steps, through tensors that the graph has already: no op is added,
    and nothing but the variables and their reads is executed.

    Args:
        folder: Where its file goes.
        records: Which steps are recorded, as text.
        kind: What hook it is.
    """

    def __init__(self, folder: Path, records: str, kind: str) -> None:
        super().__init__(folder, records, kind)
        self._session: Optional["weakref.ref[tf.compat.v1.Session]"] = None
        self._reads: Tuple[int, Dict[str, str], List[str]] = (-1, {}, [])
        self._hashed: Tuple[int, str] = (-1, "")

    def watch(self, session: tf.compat.v1.Session) -> None:
        """Says which session variables are read from; it is not kept alive."""
        if self._session is None or self._session() is not session:
            self._session = weakref.ref(session)

    def header(self) -> Line:
        """The session's configuration and what of its graph draws numbers or orders samples."""
        session = self._need_session()
        graph, config = session.graph, session._config
        rewrite, optimizer = config.graph_options.rewrite_options, config.graph_options.optimizer_options
        types = sorted({op.type for op in graph.get_operations()})
        unseeded = list(_unseeded(graph))
        return {
            "seed": graph.seed,
            "unseeded": unseeded[:_NAMED],
            "unseeded_ops": len(unseeded),
            "ordering": [name for name in types if name.startswith(_ORDER)],
            "rewriting": {
                "on": not rewrite.disable_meta_optimizer,
                "remapping": rewrite.Toggle.Name(rewrite.remapping),
                "constant_folding": rewrite.Toggle.Name(rewrite.constant_folding),
                "arithmetic_optimization": rewrite.Toggle.Name(rewrite.arithmetic_optimization),
                "layout_optimizer": rewrite.Toggle.Name(rewrite.layout_optimizer),
                "custom": [one.name for one in rewrite.custom_optimizers],
            },
            "jit": optimizer.GlobalJitLevel.Name(optimizer.global_jit_level),
            "threads": {
                "intra": config.intra_op_parallelism_threads,
                "inter": config.inter_op_parallelism_threads,
            },
            "devices": [str(device.name) for device in session.list_devices()],
            "reference_variables": [name for name in types if name in ("VariableV2", "Variable")] != [],
            "unread": self._tensors()[1][:_NAMED],
        }

    def variables(self) -> Named:
        """The variables of the graph's collections, trainable ones and slots of optimizers among them."""
        names = self._tensors()[0]
        return zip(names, self._values(list(names.values())))  # noqa: B905 - one for each; Python 3.7

    def graph_version(self) -> int:
        """TensorFlow's own: the number of the last op."""
        return int(self._need_session().graph.version)

    def graph_hash(self) -> str:
        """Of the GraphDef; empty where that is too large to be one."""
        graph = self._need_session().graph
        if self._hashed[0] != graph.version:
            version = graph.version
            try:
                data = graph.as_graph_def().SerializeToString(deterministic=True)
                data = _DRAWN.sub(b"_temp_", data)
                self._hashed = (version, hashlib.blake2b(data, digest_size=HASH_BYTES).hexdigest())
            except ValueError:  # more than 2 GB
                self._hashed = (version, "")
        return self._hashed[1]

    def _need_session(self) -> tf.compat.v1.Session:
        session = self._session() if self._session is not None else None
        if session is None:
            raise RuntimeError("the session is gone before its last variables were read")
        return session

    def _tensors(self) -> Tuple[Dict[str, str], List[str]]:
        """Names of variables with the tensors that read them, and names of those without such a tensor."""
        graph = self._need_session().graph
        if self._reads[0] != graph.version:
            found: Dict[str, str] = {}
            unread: List[str] = []
            for variable in (one for kind in _COLLECTIONS for one in graph.get_collection(kind)):
                name = str(getattr(variable, "name", variable)).split(":")[0]
                if name in found or name in unread:
                    continue
                tensor = _reading_tensor(graph, variable)
                if tensor is None:
                    unread.append(name)
                else:
                    found[name] = tensor
            self._reads = (graph.version, found, unread)
        return self._reads[1], self._reads[2]

    def _values(self, names: Sequence[str]) -> Iterator[Any]:
        """Reads tensors; None for those of variables that are not initialised."""
        import tensorflow as tf

        if not names:
            return
        try:
            values = self._need_session().run(list(names))
        except tf.errors.FailedPreconditionError:
            if len(names) == 1:
                yield None
                return
            yield from self._values(names[: len(names) // 2])
            yield from self._values(names[len(names) // 2 :])
            return
        yield from values


def named_results(graph: tf.Graph, fetches: Fetches, result: Fetched) -> Named:
    """Yields what a run returned, with the tensors' names in the graph where the structure tells them.

    Args:
        graph: Of the session.
        fetches: As the caller wrote them.
        result: What the run returned for them.
    """
    from tensorflow.python.client import session as client

    try:
        with graph.as_default():
            mapper = client._FetchMapper.for_fetch(fetches)
        asked = mapper.unique_fetches()
        names = [str(graph.as_graph_element(one, allow_tensor=True, allow_operation=True).name) for one in asked]
        places = dict(leaves(mapper.build_results(list(names))))
    except Exception:  # a registered type that wants arrays to build its results from; the place is a name as well
        places = {}
    for place, value in leaves(result):
        name = places.get(place)
        yield name if isinstance(name, str) else "result{}".format(place), value


def _reading_tensor(graph: tf.Graph, variable: Any) -> Optional[str]:  # noqa: ANN401 - of any class
    """The tensor that reads a variable; None if there is none, or if running it would run anything else."""
    try:
        tensor = graph.as_graph_element(variable, allow_tensor=True, allow_operation=False)
    except (TypeError, ValueError, KeyError):
        return None
    harmless = all(op.type in _READING for op in executed([tensor.op]))
    return str(tensor.name) if harmless and tensor.dtype.name not in ("resource", "variant") else None


def _unseeded(graph: tf.Graph) -> Iterator[str]:
    """Names of ops that draw other numbers in each process."""
    for op in graph.get_operations():
        if any(word in op.type for word in _RANDOM):
            seeds = [a.name for a in op.op_def.attr if a.name in ("seed", "seed2")]
            if len(seeds) == 2 and not any(op.get_attr(seed) for seed in seeds):
                yield str(op.name)
