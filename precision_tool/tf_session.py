"""``PrecisionTfSession``: a session that saves each step so that ``train`` can run it again on both devices.

Runs on training hosts: Python 3.7, TensorFlow 1.15 and up.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, List, Mapping, Optional

import tensorflow as tf

from dumpers.capture.saved_step import StepSaver
from dumpers.settings import read_settings
from dumpers.workspace import Workspace

if TYPE_CHECKING:
    from dumpers.capture.requests import Fetched, Fetches

__all__ = ["PrecisionTfSession"]


class PrecisionTfSession(tf.compat.v1.Session):  # type: ignore[misc]  # TensorFlow is imported without its types
    """A ``tf.compat.v1.Session`` that saves fed tensors before each run and all variables after it.

    Below ``precision_data``: ``tf/checkpoints/input/<name with : and / as _>.npy`` and ``tf/checkpoints/ckpt``. Every
    key that ``run`` takes is saved (names, sparse tensors, nested ones), not only plain tensors. Runs inside a run pass
    through. The graph gets no op, so it may be finalized; nothing of the run changes.

    Args:
        target: As for ``tf.compat.v1.Session``.
        graph: Likewise.
        config: Likewise.
    """

    def __init__(
        self, target: str = "", graph: Optional[tf.Graph] = None, config: Optional[tf.compat.v1.ConfigProto] = None
    ) -> None:
        super().__init__(target, graph, config)
        folder = Workspace(read_settings().data_root.resolve()).tf_checkpoints
        self._step_saver = StepSaver(self.graph, folder)
        self._step_lock = threading.Lock()
        self._step_state = threading.local()

    def run(
        self,
        fetches: Fetches,
        feed_dict: Optional[Mapping[Any, Any]] = None,
        options: Optional[tf.compat.v1.RunOptions] = None,
        run_metadata: Optional[tf.compat.v1.RunMetadata] = None,
    ) -> Fetched:
        """Runs as ``tf.compat.v1.Session`` does, and saves."""
        plain = super().run
        if getattr(self._step_state, "inside", False):
            return plain(fetches, feed_dict, options, run_metadata)

        def read(variables: List[tf.Variable]) -> List[Fetched]:
            return plain(variables)  # type: ignore[no-any-return]

        self._step_state.inside = True
        try:
            with self._step_lock:
                self._step_saver.save_inputs(fetches, feed_dict)
            result = plain(fetches, feed_dict, options, run_metadata)
            with self._step_lock:
                self._step_saver.save_variables(read)
            return result
        finally:
            self._step_state.inside = False

    def close(self) -> None:
        """Closes the session."""
        with self._step_lock:
            self._step_saver.close()
        super().close()
