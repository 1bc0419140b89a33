"""Records one step of small reference models, for ``bench faults``; run by any interpreter that has TensorFlow.

Python 3.7, TensorFlow 1.15. The only argument is JSON: ``out`` (a folder), ``seed``, ``threads`` and ``cases``, pairs
of a model's name and whether its variables are resources. Case k is recorded below ``out/k``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent.parent


def main(text: str) -> None:
    """Records all cases."""
    import numpy as np
    import tensorflow as tf

    from dumpers.capture.selection import EVERYTHING
    from dumpers.capture.session import record_session
    from dumpers.capture.steps import parse_steps

    wanted = json.loads(text)
    plain = _plain_models()
    random = np.random.RandomState(wanted["seed"])
    for number, (model, resource) in enumerate(wanted["cases"]):
        made = plain.build(model, resource)
        batch = plain.batches(made.placeholders, 1, -1)[0]
        for tensor in made.placeholders:  # another order of the samples for each seed
            batch[tensor] = batch[tensor][random.permutation(len(batch[tensor]))]
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=wanted["threads"], inter_op_parallelism_threads=wanted["threads"]
        )
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        session = tf.compat.v1.Session(graph=made.graph, config=config)
        folder = Path(wanted["out"], str(number))
        with record_session(session, folder, parse_steps("0"), keep="pack", selection=EVERYTHING) as recorded:
            recorded.run(made.init)
            recorded.run(made.fetches, batch)


def _plain_models() -> ModuleType:
    """The models by path: no other module of the engine need load on an old interpreter."""
    path = ROOT / "engine" / "models" / "plain.py"
    spec = importlib.util.spec_from_file_location("plain_models", str(path))
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path}: cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # not the folder of this file: it has modules named like others
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main(sys.argv[1])
