from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from dumpers.errors import DataError, UsageError
from precision_tool import training
from precision_tool.training import TrainingPlan, golden_config, mixed_loss_scale, plan_batches, train

SMALL = {"batch_size": 16, "hidden": (8, 4), "user_range": 60, "item_range": 50, "steps": 3}


class Recorder:
    """A session wrapper that notes what was run, in which order."""

    def __init__(self, session):
        self.session, self.runs, self.closed = session, [], 0

    def run(self, fetches, feed_dict=None):
        names = fetches.name if feed_dict is None else [fetch.name for fetch in fetches]
        self.runs.append((names, sorted(tensor.name for tensor in feed_dict or {})))
        return self.session.run(fetches, feed_dict=feed_dict)

    def close(self):
        self.closed += 1
        self.session.close()


def test_a_plan_gives_the_same_run_twice_and_another_seed_another():
    plan = TrainingPlan(**SMALL)
    report = train(plan)
    assert train(plan) == report
    assert len(report.losses) == 3
    assert np.allclose(report.losses, np.log(2), atol=0.05)
    assert train(TrainingPlan(**SMALL, seed=1)).losses != report.losses
    assert report.table_sizes["user_table"] == len(np.unique([b.user_ids for b in plan_batches(plan)]))


def test_default_batches_have_two_thousand_keys_a_table():
    report = train(TrainingPlan(hidden=(4,)))
    assert min(report.unique_keys["user_table"]) >= 2000
    assert min(report.unique_keys["item_table"]) >= 2000
    assert report.notes == ()


def test_few_keys_are_said():
    notes = train(TrainingPlan(**SMALL)).notes
    assert any("user_table" in note and "distinct keys" in note for note in notes)


@pytest.mark.parametrize("use_resource", [True, False])
def test_loss_scale_changes_no_loss(use_resource):
    plain = train(TrainingPlan(**SMALL, use_resource=use_resource))
    mixed = train(TrainingPlan(**SMALL, use_resource=use_resource, precision="mix"))
    assert TrainingPlan(**SMALL, precision="mix").effective_loss_scale == 2.0**15
    assert mixed.losses == plain.losses


def test_mixed_scale_keeps_the_head_gradient_inside_float16():
    for batch_size in (1, 2, 3, 16, 100, 512, 4096):
        scale = mixed_loss_scale(batch_size)
        assert np.log2(scale) % 1 == 0
        assert 1000 <= scale / batch_size <= 2048
    assert mixed_loss_scale(512) == 2.0**20


def test_the_wrapper_sees_the_initializer_first_then_every_step():
    recorders = []

    def wrap(session):
        recorders.append(Recorder(session))
        return recorders[0]

    seen = []
    train(TrainingPlan(**SMALL), wrap_session=wrap, progress=lambda what, done, total: seen.append((done, total)))
    (recorder,) = recorders
    assert [names for names, _ in recorder.runs] == ["init", *[["train", "loss_0/mean:0", "loss_1/mean:0"]] * 3]
    assert recorder.runs[1][1] == ["item_ids:0", "label_0:0", "label_1:0", "user_ids:0"]
    assert recorder.closed == 1
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_golden_config_rewrites_nothing():
    config = golden_config()
    assert config.graph_options.rewrite_options.disable_meta_optimizer
    assert (config.intra_op_parallelism_threads, config.inter_op_parallelism_threads) == (1, 1)


def test_thread_counts_and_surrounding_state_do_not_matter():
    report = train(TrainingPlan(**SMALL))
    config = golden_config()
    config.inter_op_parallelism_threads = 2
    tf.random.set_seed(77)
    with tf.Graph().as_default(), tf.compat.v1.variable_scope("outer"):
        inside = train(TrainingPlan(**SMALL), session_config=config)
        assert tf.compat.v1.global_variables() == []
    assert inside == report


def test_graph_mode_and_old_behaviour_give_the_same(project_root):
    code = (
        "import tensorflow as tf; tf.compat.v1.disable_v2_behavior()\n"
        "from precision_tool.training import *\n"
        f"print(train(TrainingPlan(**{SMALL!r})).losses)"
    )
    answer = subprocess.run([sys.executable, "-c", code], cwd=project_root, capture_output=True, text=True, check=True)
    assert answer.stdout.strip().splitlines()[-1] == str(train(TrainingPlan(**SMALL)).losses)


def test_criteo_file(shared_data):
    path = shared_data / "datasets" / "criteo_sample.txt"
    report = train(TrainingPlan(steps=2, hidden=(8,), data_file=path))
    assert report.unique_keys == {"user_table": [1322] * 2, "item_table": [956] * 2}
    assert "200 data lines" in report.notes[0]
    assert np.isfinite(report.losses).all()


def test_tables_grow_with_the_plan(monkeypatch):
    monkeypatch.setattr(training, "SMALLEST_TABLE", 4)
    assert [training._table_rows(keys) for keys in (1, 4, 5, 70)] == [4, 4, 8, 128]
    report = train(TrainingPlan(**SMALL))
    assert report.table_sizes["user_table"] > 32


def test_a_full_table_is_told_as_such(monkeypatch):
    monkeypatch.setattr(training, "_table_rows", lambda keys: 8)
    with pytest.raises(DataError, match="raise device_vocabulary_size"):
        train(TrainingPlan(**SMALL))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("model", "dlrm", "there is: little_demo"),
        ("steps", 0, "steps"),
        ("batch_size", 0, "batch_size"),
        ("user_range", 0, "user_range"),
        ("seed", -1, "seed"),
        ("seed", 2**32, "seed"),
        ("loss_scale", 1000.0, "power of two"),
        ("hidden", (), "hidden"),
    ],
)
def test_wrong_options_are_usage_errors(option, value, message):
    with pytest.raises(UsageError, match=message):
        train(TrainingPlan(**{**SMALL, option: value}))


def test_a_wrong_file_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        train(TrainingPlan(**SMALL, data_file=tmp_path / "absent.txt"))


def test_an_error_of_the_device_passes_untouched():
    class Broken:
        def __init__(self, session):
            self.session = session

        def run(self, fetches, feed_dict=None):
            if feed_dict is not None:
                raise tf.errors.InternalError(None, None, "device lost")

        def close(self):
            self.session.close()

    with pytest.raises(tf.errors.InternalError, match="device lost"):
        train(TrainingPlan(**SMALL), wrap_session=Broken)
