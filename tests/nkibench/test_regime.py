import numpy as np
import pytest

from nkibench import Regime
from nkibench.regime import change

RNG = np.random.default_rng(0)
INPUTS = [
    RNG.normal(size=(6, 40)).astype(np.float32),
    1e-5,
    np.abs(RNG.normal(scale=0.05, size=(2, 30, 5))).astype(np.float32),
]


@pytest.mark.parametrize("regime", list(Regime))
def test_a_regime_keeps_shapes_types_signs_and_scalars_and_the_drawn_arrays(regime: Regime) -> None:
    before = [value.copy() if isinstance(value, np.ndarray) else value for value in INPUTS]
    changed = change(INPUTS, regime, seed=3)
    for old, copy, new in zip(INPUTS, before, changed, strict=True):
        if isinstance(old, np.ndarray):
            assert np.array_equal(old, copy)
            assert not np.shares_memory(old, new)
            assert (new.shape, new.dtype) == (old.shape, old.dtype)
            assert np.isfinite(new).all()
        else:
            assert new == old
    assert (changed[2] >= 0).all()


@pytest.mark.parametrize("regime", list(Regime))
def test_a_regime_repeats_for_the_same_seed(regime: Regime) -> None:
    for one, other in zip(change(INPUTS, regime, seed=3), change(INPUTS, regime, seed=3), strict=True):
        assert np.array_equal(one, other)


def test_normal_changes_nothing() -> None:
    assert np.array_equal(change(INPUTS, "normal", seed=0)[0], INPUTS[0])


def test_a_late_maximum_lies_at_the_end_of_rows_and_of_the_longest_axis() -> None:
    matrix, _, batched = change(INPUTS, Regime.late_maximum, seed=0)
    assert (matrix.argmax(axis=1) == 39).all()
    assert (batched.argmax(axis=1) == 29).all()
    assert (batched.argmax(axis=2) == 4).all()


def test_sorted_rows_ascend() -> None:
    assert (np.diff(change(INPUTS, Regime.sorted, seed=0)[0], axis=1) >= 0).all()


def test_one_hot_rows_have_one_element_each_and_not_all_at_one_place() -> None:
    hot = change(INPUTS, Regime.one_hot, seed=0)[0]
    assert (np.count_nonzero(hot, axis=1) == 1).all()
    assert len(set(hot.argmax(axis=1))) > 1


def test_wide_scale_spreads_rows_over_decades() -> None:
    matrix = np.ones((200, 4), dtype=np.float32)
    matrix[:, 0] = -1
    scales = np.abs(change([matrix], Regime.wide_scale, seed=0)[0]).max(axis=1)
    assert scales.max() / scales.min() > 1e3


def test_constant_and_zeros_are_what_they_say() -> None:
    constant, zeros = change(INPUTS, Regime.constant, seed=0)[0], change(INPUTS, Regime.zeros, seed=0)[0]
    assert np.ptp(constant) == 0 and constant[0, 0] != 0
    assert not zeros.any()


def test_a_large_offset_dwarfs_the_spread() -> None:
    shifted = change(INPUTS, Regime.large_offset, seed=0)[0]
    assert shifted.mean() > 50 * shifted.std()


def test_scattered_slices_of_the_longest_axis_are_far_larger_than_the_others() -> None:
    matrix = np.ones((8, 4096), dtype=np.float32)
    columns = change([matrix], Regime.scattered, seed=0)[0].max(axis=0)
    places = np.flatnonzero(columns > 1)
    assert (places // 512 == np.arange(8)).all(), "one in every stretch of 512"
    assert len(set(places % 512)) > 4, "at places of their own"


def test_small_divides_everything_and_uneven_every_array_in_its_own_way() -> None:
    arrays = [np.ones((2, 3), dtype=np.float32) for _ in range(4)]
    small = change([*arrays[:2], 0.5, *arrays[2:]], Regime.small, seed=0)
    assert [np.asarray(value).max() for value in small] == pytest.approx([0.01, 0.01, 0.5, 0.01, 0.01])
    uneven = change([*arrays[:2], 0.5, *arrays[2:]], Regime.uneven, seed=0)
    assert [np.asarray(value).max() for value in uneven] == pytest.approx([0.01, 1.0, 0.5, 100.0, 0.01])
