"""Ranks of a job: which one this process is and where it records."""

from pathlib import Path

import pytest
import tensorflow as tf

from dumpers.capture.ranks import at_rank, find_rank
from dumpers.capture.session import record_session
from dumpers.capture.steps import parse_steps
from dumpers.errors import UsageError

tf1 = tf.compat.v1


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({}, None),
        ({"RANK_ID": "3", "RANK_SIZE": "8"}, 3),
        ({"RANK_ID": "0", "RANK_SIZE": "1"}, None),
        ({"RANK_ID": "2"}, 2),
        ({"RANK_ID": "x", "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6"}, 5),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, 0),
        ({"HOROVOD_RANK": "-1"}, None),
    ],
)
def test_the_rank_that_a_launcher_tells(environ, rank):
    assert find_rank(environ) == rank


def test_each_rank_has_a_folder_and_some_may_be_chosen():
    steps = parse_steps("0-2")
    for rank, wanted in ((0, True), (1, False), (2, True), (3, True), (4, False)):
        folder, found = at_rank({"RANK_ID": str(rank), "RANK_SIZE": "5"}, Path("data"), steps, "0|2-3")
        assert folder == Path(f"data/rank_{rank}")
        assert [step in found for step in range(4)] == [wanted] * 3 + [False]
    assert at_rank({}, Path("data"), steps, "") == (Path("data"), steps)
    alone, none = at_rank({}, Path("data"), steps, "1")
    assert (alone, 0 in none, 1 in none) == (Path("data"), False, False)


def test_ranks_that_cannot_be_read():
    with pytest.raises(UsageError, match="TF_DUMP_RANKS: ranks 'a': 'a' is neither"):
        at_rank({}, Path("data"), parse_steps(""), "a")


def test_a_rank_that_is_not_wanted_records_nothing(tmp_path, click_model, config, manifests):
    model = click_model(use_resource=True)
    for rank in ("0", "1"):
        folder, steps = at_rank({"RANK_ID": rank, "RANK_SIZE": "2"}, tmp_path, parse_steps(""), "1")
        with record_session(tf1.Session(graph=model.graph, config=config()), folder, steps) as session:
            session.run(model.init)
            for batch in model.batches[:2]:
                session.run([model.loss, model.train], batch)
    assert not (tmp_path / "rank_0").exists()
    assert [manifest["step"] for manifest in manifests(tmp_path / "rank_1")] == [0, 1]
