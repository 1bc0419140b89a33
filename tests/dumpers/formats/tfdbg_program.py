"""Program of test_tfdbg.py, for Python 3.7 and TensorFlow 1.15 up.

It records one step with TensorFlow's debugger and writes down what TensorFlow's own reader reads from it:
``truth.json`` and ``truth.bin``.
"""

import json
import os
import sys

import numpy as np
import tensorflow as tf


def build():
    tf1 = tf.compat.v1
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, (None, 3), name="x")
        ones = tf1.ones_initializer()
        w = tf1.get_variable("net/w", (3, 2), initializer=ones, use_resource=False)
        r = tf1.get_variable("net/r", (2,), initializer=ones, use_resource=True)
        late = tf1.get_variable("late", (2, 2), initializer=ones, use_resource=False)
        y = tf.add(tf.matmul(x, w), r, name="net/layer.1/add")
        odd = tf.negative(y, name="odd_0_DebugIdentity_7")
        fetches = [y, odd, tf1.is_variable_initialized(late)]
        for name in ("float64", "float16", "bfloat16", "bool", "int8", "uint8", "int16", "int32", "int64", "complex64",
                     "complex128", "uint16"):  # fmt: skip
            fetches.append(tf.cast(y, name, name="kinds/" + name))
        fetches += [
            tf1.as_string(y, name="words"),
            tf.constant([b"", b"\xff\x00", b"long" * 300], name="bytes"),
            tf.identity(tf.constant(b"one"), name="word"),
            tf.zeros_like(y)[:0],
            tf.reduce_sum(y, name="total"),
            tf.split(x, 3, axis=1, name="parts")[2],
            tf.while_loop(lambda i, s: i < 30, lambda i, s: (i + 1, s * 0.5), [tf.constant(0), y], name="loop"),
            tf1.cond(tf.reduce_sum(y) > 0, lambda: tf.identity(y, "taken"), lambda: tf.sin(y, "passed"), name="cond"),
            tf.fill([40, 50], 2.5, name="wide"),
            tf.fill([9, 20], np.int32(7), name="middle"),
            tf.reshape(tf.range(120), [2, 3, 1, 4, 5, 1, 1], name="deep"),
            tf.math.log(y - 1e9, name="nan"),
        ]
        init = tf1.variables_initializer([w, r])
    return graph, x, fetches, init


def record(root):
    from tensorflow.python.debug.wrappers.dumping_wrapper import DumpingDebugWrapperSession

    graph, x, fetches, init = build()
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True  # keeps the ops as they were written
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        session.run(init)
        wrapped = DumpingDebugWrapperSession(session, root)
        wrapped.run(fetches, {x: np.arange(6, dtype=np.float32).reshape(2, 3) - 2})
    (name,) = [name for name in os.listdir(root) if name.startswith("run_")]
    return os.path.join(root, name)


def write_truth(run, target):
    from tensorflow.python.debug.lib import debug_data

    rows = []
    dump = debug_data.DebugDumpDir(run)
    with open(os.path.join(target, "truth.bin"), "wb") as content:
        for datum in dump.dumped_tensor_data:
            row = {"op": datum.node_name, "slot": datum.output_slot, "debug_op": datum.debug_op,
                   "time": datum.timestamp, "size": 0}  # fmt: skip
            value = datum.get_tensor()
            if isinstance(value, debug_data.InconvertibleTensorProto):
                row["dtype"], row["initialised"] = None, value.initialized
            else:
                row["dtype"], row["shape"] = value.dtype.name, list(value.shape)
                if value.dtype == object:
                    row["texts"] = [text.hex() for text in value.ravel().tolist()]
                else:
                    row["size"] = content.write(value.tobytes())
            rows.append(row)
    core = dump.core_metadata
    facts = {"global_step": core.global_step, "session_run_index": core.session_run_index,
             "inputs": list(core.input_names), "outputs": list(core.output_names),
             "feeds": str(dump.run_feed_keys_info), "fetches": str(dump.run_fetches_info)}  # fmt: skip
    inputs = {name: dump.node_inputs(name) for name in dump.nodes()}
    types = {name: dump.node_op_type(name) for name in dump.nodes()}
    with open(os.path.join(target, "truth.json"), "w") as file:
        json.dump({"version": tf.__version__, "rows": rows, "facts": facts, "inputs": inputs, "types": types}, file)


def main(root):
    write_truth(record(os.path.join(root, "runs")), root)


if __name__ == "__main__":
    main(sys.argv[1])
