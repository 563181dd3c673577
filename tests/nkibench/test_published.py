from nkibench import load_problem, problem_names, published_results, trn1_profiles


def test_every_problem_has_its_published_result_and_profile() -> None:
    assert set(published_results()) == set(trn1_profiles()) == set(problem_names())


def test_measured_writes_are_never_below_the_output() -> None:
    # Each of the fourteen has one output, whose every byte was written once at least.
    for name, profile in trn1_profiles().items():
        problem = load_problem(name)
        taken = sum(4 * _elements(size.shape) for size in problem.argument_values() if hasattr(size, "shape"))
        assert profile["hbm_write_bytes"] >= problem.work().min_traffic_bytes - taken


def test_counters_that_were_empty_are_absent() -> None:
    assert "psum_read_bytes" not in trn1_profiles()["silu"]
    assert trn1_profiles()["silu"]["spill_save_bytes"] == 0


def _elements(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product
