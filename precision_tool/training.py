"""Trains a reference model in a session that the caller configures: the golden one, or one on a device under test.

Whatever the device, the same plan builds the same graph, the same initial values and the same batches, so that two runs
differ only in how the operators compute.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dumpers.errors import DataError, UsageError

if TYPE_CHECKING:
    import tensorflow as tf

    from engine.models.little_demo import LittleDemo, LittleDemoOptions
    from engine.pipeline import Batch
    from engine.table import EmbeddingTable
    from precision_tool.commands.base import Progress

MODELS = ("little_demo",)
FEW_KEYS = 2000
"""Fewer distinct keys than this in a batch are worth a note: a fault in one key in a thousand then has no place."""
SMALLEST_TABLE = 16384
LARGEST_SCALED_GRADIENT = 2048.0


@dataclass(frozen=True)
class TrainingPlan:
    """What to train; the same plan gives the same run.

    Attributes:
        model: One of :data:`MODELS`.
        steps: Training steps.
        seed: Of the initial values and the generated batches, 0 .. 2**32-1.
        batch_size: Samples of a step.
        data_file: A Criteo-format text file; None generates batches.
        precision: Numerics of the device under test (``fp32``, ``mix``, ...); decides the loss scale if none is given.
        loss_scale: A power of two; None means 1 for ``fp32`` and :func:`mixed_loss_scale` for everything else.
        use_resource: False builds on reference variables, as old graphs have them.
        user_range: Users that are generated; with the default, a batch of 512 has about 3 450 distinct ones.
        item_range: Items that are generated; about 5 600 distinct ones in a batch of 512.
        hidden: Widths of the dense layers.
    """

    model: str = "little_demo"
    steps: int = 1
    seed: int = 0
    batch_size: int = 512
    data_file: Path | None = None
    precision: str = "fp32"
    loss_scale: float | None = None
    use_resource: bool = True
    user_range: int = 12_000
    item_range: int = 10_000
    hidden: tuple[int, ...] = (1024, 512, 256, 128)

    @property
    def effective_loss_scale(self) -> float:
        """The loss scale that is used."""
        if self.loss_scale is not None:
            return self.loss_scale
        return 1.0 if self.precision == "fp32" else mixed_loss_scale(self.batch_size)


@dataclass(frozen=True)
class TrainingReport:
    """What a training run gave.

    Attributes:
        losses: Loss of the trained task, one a step, before that step's update.
        unique_keys: Per table the distinct keys of each step's batch.
        table_sizes: Per table the rows in use at the end.
        notes: What the user should know about the batches.
    """

    losses: list[float]
    unique_keys: dict[str, list[int]]
    table_sizes: dict[str, int]
    notes: tuple[str, ...] = ()


def mixed_loss_scale(batch_size: int) -> float:
    """Returns the loss scale for a device whose products read float16.

    Measured on little_demo with 512 samples: what products read backwards is about 1e-9 (median of the first layer) to
    1e-3 (the head, at most 1/B); float16 is exact to 11 bits from 6e-5 to 65504. The scale brings the head to at most
    2048, and with that the first layer to 1e-3. A power of two only changes exponents: a float32 run has the same bits
    with and without it.
    """
    power = batch_size.bit_length() - 1
    return float(LARGEST_SCALED_GRADIENT * 2**power)


def golden_config() -> tf.compat.v1.ConfigProto:
    """Returns the session config of the reference run: no graph rewriting, no folding, one thread.

    So the operators that run are those of the graph, in an order that does not depend on timing.
    """
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    return config


def train(
    plan: TrainingPlan,
    *,
    session_config: tf.compat.v1.ConfigProto | None = None,
    wrap_session: Callable[[tf.compat.v1.Session], tf.compat.v1.Session] | None = None,
    progress: Progress | None = None,
) -> TrainingReport:
    """Trains the plan's model from its initial values in a graph and a session of its own.

    Args:
        plan: What to train.
        session_config: A ``tf.compat.v1.ConfigProto``; what it names is what the session runs on. :func:`golden_config`
            if None.
        wrap_session: Gets the new session before anything ran in it and returns the one to use (a dumping one).
        progress: Told of each step.

    Raises:
        UsageError: An option of the plan is wrong.
        DataError: The data file is, or its keys do not fit the tables.
    """
    import tensorflow as tf

    _check(plan)
    model = _build(plan, tf.Graph())
    config = golden_config() if session_config is None else session_config
    session = tf.compat.v1.Session(graph=model.graph, config=config)
    try:
        used = session if wrap_session is None else wrap_session(session)
        try:
            return _run_steps(plan, model, used, progress or _silent)
        finally:
            used.close()
    finally:
        session.close()


def plan_batches(plan: TrainingPlan) -> Iterator[Batch]:
    """Yields the batches of a plan, one a step.

    Raises:
        DataError: The data file is wrong.
    """
    from engine.errors import EngineError
    from engine.pipeline import criteo_batches, random_batches

    if plan.data_file is None:
        batches = random_batches(
            plan.batch_size, user_range=plan.user_range, item_range=plan.item_range, seed=plan.seed
        )
    else:
        batches = criteo_batches(plan.data_file, plan.batch_size)
    try:
        yield from itertools.islice(batches, plan.steps)
    except EngineError as error:
        raise DataError(str(error)) from error


def _check(plan: TrainingPlan) -> None:
    if plan.model not in MODELS:
        raise UsageError(f"no model {plan.model!r}; there is: {', '.join(MODELS)}")
    for name in ("steps", "batch_size", "user_range", "item_range"):
        if getattr(plan, name) < 1:
            raise UsageError(f"{name} must be at least 1, got {getattr(plan, name)}")
    if not 0 <= plan.seed < 2**32:
        raise UsageError(f"seed must be in 0 .. {2**32 - 1}, got {plan.seed}")


def _build(plan: TrainingPlan, graph: tf.Graph) -> LittleDemo:
    from engine.models.little_demo import build_little_demo

    return build_little_demo(graph, _model_options(plan))


def _model_options(plan: TrainingPlan) -> LittleDemoOptions:
    """Returns the model's options; tables are as large as the plan's batches need."""
    from engine.models.little_demo import LittleDemoOptions
    from engine.pipeline import FILE_ITEM_IDS, FILE_USER_IDS, GENERATED_ITEM_IDS, GENERATED_USER_IDS

    generated = plan.data_file is None
    user_keys, item_keys = (plan.user_range, plan.item_range) if generated else _count_keys(plan)
    try:
        return LittleDemoOptions(
            batch_size=plan.batch_size,
            user_ids=GENERATED_USER_IDS if generated else FILE_USER_IDS,
            item_ids=GENERATED_ITEM_IDS if generated else FILE_ITEM_IDS,
            user_rows=_table_rows(user_keys),
            item_rows=_table_rows(item_keys),
            hidden=plan.hidden,
            seed=plan.seed,
            loss_scale=plan.effective_loss_scale,
            use_resource=plan.use_resource,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _silent(what: str, done: int, total: int) -> None:
    """A progress that draws nothing."""


def _count_keys(plan: TrainingPlan) -> tuple[int, int]:
    """Returns the distinct user and item keys of all steps; reads the part of the file that will be used."""
    import numpy as np

    users = items = np.empty(0, dtype=np.int64)
    for batch in plan_batches(plan):
        users = np.union1d(users, batch.user_ids)
        items = np.union1d(items, batch.item_ids)
    return len(users), len(items)


def _table_rows(keys: int) -> int:
    """Returns the rows of a table for that many keys: a power of two, and not a tiny one."""
    return max(SMALLEST_TABLE, 1 << (keys - 1).bit_length())


def _run_steps(
    plan: TrainingPlan, model: LittleDemo, session: tf.compat.v1.Session, progress: Progress
) -> TrainingReport:
    import numpy as np

    losses: list[float] = []
    unique_keys: dict[str, list[int]] = {table.table_name: [] for table in model.tables}
    session.run(model.init_op)
    for step, batch in enumerate(plan_batches(plan)):
        progress(f"training {plan.model}", step, plan.steps)
        ids = (batch.user_ids, batch.item_ids)
        feeds = dict(zip((model.user_ids, model.item_ids), ids, strict=True))
        feeds.update(zip(model.labels, (batch.label_0, batch.label_1), strict=True))
        with _table_errors(model):
            fetched = session.run([model.train_op, *model.losses], feed_dict=feeds)
        losses.append(float(fetched[1]))
        for table, keys in zip(model.tables, ids, strict=True):
            unique_keys[table.table_name].append(len(np.unique(keys)))
    progress(f"training {plan.model}", plan.steps, plan.steps)
    sizes = {table.table_name: table.size() for table in model.tables}
    return TrainingReport(losses, unique_keys, sizes, _notes(plan, unique_keys))


@contextlib.contextmanager
def _table_errors(model: LittleDemo) -> Iterator[None]:
    """Makes an error of a table, which TensorFlow passes on as text of its own, come out as what it was."""
    import tensorflow as tf

    from engine.errors import EngineError

    try:
        yield
    except (tf.errors.OpError, EngineError) as error:
        failure = _first_failure(model.tables)
        if failure is None:
            raise
        raise DataError(str(failure)) from error


def _first_failure(tables: tuple[EmbeddingTable, ...]) -> Exception | None:
    return next((table.failure for table in tables if table.failure is not None), None)


def _notes(plan: TrainingPlan, unique_keys: dict[str, list[int]]) -> tuple[str, ...]:
    notes = []
    if plan.data_file is not None:
        from engine.pipeline import read_criteo

        needed = plan.steps * plan.batch_size
        lines = sum(1 for _ in itertools.islice(read_criteo(plan.data_file), needed))
        if lines < needed:
            notes.append(f"{plan.data_file} has {lines} data lines; {plan.steps} x {plan.batch_size} repeat them")
    for name, counts in unique_keys.items():
        if min(counts) < FEW_KEYS:
            notes.append(f"{name}: a batch has only {min(counts)} distinct keys (a good test has {FEW_KEYS})")
    return tuple(notes)
