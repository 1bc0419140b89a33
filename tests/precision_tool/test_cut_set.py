"""Cut sets against their definition, taken by brute force over sets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from precision_tool.cut_set import choose_cut


def random_graph(seed, ops):
    random = np.random.default_rng(seed)
    inputs = [sorted(set(random.integers(0, at, random.integers(0, 4)).tolist())) if at else [] for at in range(ops)]
    sizes = {at: int(4 * 10 ** random.uniform(0, 5)) for at in range(ops) if random.random() < 0.8}
    return inputs, sizes


def leads_to(inputs, op):
    found = {op}
    for source in inputs[op]:
        found |= leads_to(inputs, source)
    return found


def regions_of(inputs, chosen):
    """By definition: what leads to a chosen op and to no earlier one."""
    regions, before = [], set()
    for op in sorted(chosen):
        mine = leads_to(inputs, op)
        regions.append(mine - before)
        before |= mine
    return regions, len(inputs) - len(before)


def cost(inputs, chosen):
    """Suspects summed over the ops that may be at fault; all of them where nothing is seen."""
    regions, unseen = regions_of(inputs, chosen)
    return sum(len(region) ** 2 for region in regions) + unseen * len(inputs)


@pytest.mark.parametrize("seed", range(25))
def test_regions_and_bytes_are_those_of_the_definition(seed):
    inputs, sizes = random_graph(seed, 60)
    budget = sum(sizes.values()) // 20
    cut = choose_cut(inputs, sizes, budget)
    assert cut == choose_cut(inputs, dict(reversed(sizes.items())), budget)
    assert set(cut.chosen) <= set(sizes)
    assert cut.size_bytes == sum(sizes[op] for op in cut.chosen) <= budget
    regions, unseen = regions_of(inputs, cut.chosen)
    assert cut.regions == tuple(len(region) for region in regions)
    assert cut.unseen == unseen


@pytest.mark.parametrize("seed", range(12))
def test_the_choice_is_near_the_best_of_all_subsets(seed):
    """Equal sizes, so that the budget is a number of ops and every subset can be tried."""
    inputs, _ = random_graph(seed, 14)
    best = min(cost(inputs, chosen) for chosen in itertools.combinations(range(14), 3))
    found = cost(inputs, choose_cut(inputs, dict.fromkeys(range(14), 100), 300).chosen)
    average = np.mean([cost(inputs, chosen) for chosen in itertools.combinations(range(14), 3)])
    assert found <= 1.5 * best
    assert found < average


def test_a_chain_is_cut_into_even_pieces():
    inputs = [[]] + [[at] for at in range(999)]
    cut = choose_cut(inputs, dict.fromkeys(range(1000), 4), 15 * 4)
    assert len(cut.chosen) == 15
    assert max(cut.regions) <= 3 * 1000 // 15
    assert cut.unseen <= 3 * 1000 // 15


def test_large_tensors_are_passed_over_for_small_ones_beside_them():
    inputs = [[]] + [[at] for at in range(99)]
    sizes = {at: 4 if at % 10 == 3 else 1 << 20 for at in range(100)}
    cut = choose_cut(inputs, sizes, 1 << 19)
    assert set(cut.chosen) == {op for op in sizes if op % 10 == 3}
    assert max(cut.regions) == 10


def test_nothing_to_choose():
    assert choose_cut([], {}, 100).chosen == ()
    assert choose_cut([[], [0]], {}, 100).unseen == 2
    assert choose_cut([[], [0]], {1: 200}, 100).unseen == 2
    assert choose_cut([[]], {0: 0}, 0).regions == (1,)


def test_the_work_grows_with_the_ops_not_with_their_square():
    """Counted are the ops that are looked at, on a long chain, where each region is as deep as it is large."""

    class Counting(list):
        looked = 0

        def __getitem__(self, at):
            Counting.looked += 1
            return super().__getitem__(at)

    def looked(ops):
        Counting.looked = 0
        choose_cut(Counting([[]] + [[at] for at in range(ops - 1)]), dict.fromkeys(range(ops), 4), 4 * ops // 50)
        return Counting.looked

    assert looked(8000) < 6 * looked(2000)
