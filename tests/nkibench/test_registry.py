import re
import shutil
from pathlib import Path

import pytest

from nkibench import (
    InvalidProblem,
    InvalidReference,
    UnknownProblem,
    WorkUnknown,
    load_problem,
    problem_names,
    published_results,
    user_problem,
)
from nkibench.regime import Regime
from nkibench.registry import PROBLEMS, read_problem
from nkibench.roofline import percent_of_peak

REFERENCE = """
import numpy as np

M = 128

def get_inputs():
    return [np.random.normal(size=(M, 256)).astype(np.float32)]

def forward(x):
    return x + 1
"""


def test_there_are_the_papers_fourteen_problems() -> None:
    assert len(problem_names()) == 14
    assert set(problem_names()) == set(published_results())


@pytest.mark.parametrize("name", problem_names())
def test_a_problem_is_found_under_its_own_name(name: str) -> None:
    problem = load_problem(name)
    assert problem.name == name
    assert problem.source == "accelopt"
    assert problem.folder == PROBLEMS / name
    assert "@nki.jit" in problem.baseline_source()
    assert "def forward" in problem.reference_source()


@pytest.mark.parametrize("name", problem_names())
def test_the_small_shape_has_several_tiles_where_the_full_one_has(name: str) -> None:
    problem = load_problem(name)
    for size, value in problem.shape.items():
        small = problem.small_shape[size]
        assert small <= value
        if value > 128:
            assert small > 128, f"{size} has one tile only"


def test_an_unknown_problem_is_answered_with_the_nearest_ones() -> None:
    with pytest.raises(
        UnknownProblem, match="unknown problem 'rmsnorm_matmull': did you mean rmsnorm_matmul"
    ):
        load_problem("rmsnorm_matmull")
    with pytest.raises(UnknownProblem, match="accelopt problems"):
        load_problem("zzzzzzzz")


def test_a_name_is_never_a_path() -> None:
    with pytest.raises(UnknownProblem):
        load_problem("../problems/silu")


def test_problems_of_further_directories_stand_beside_ours(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(PROBLEMS / "silu", folder)
    text = (folder / "problem.toml").read_text()
    (folder / "problem.toml").write_text(text.replace('name = "silu"', 'name = "mine"'))
    assert "mine" in problem_names([tmp_path])
    assert load_problem("mine", [tmp_path]).shape == load_problem("silu").shape
    assert "mine" not in problem_names()


def test_a_directory_that_is_not_there_has_no_problems(tmp_path: Path) -> None:
    assert problem_names([tmp_path / "none"]) == problem_names()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tolerance = 2e-5", "tolerance = 2", "tolerance: Input should be less than 1"),
        ("[shape]", "[shape", "cannot read"),
        ('bound = "memory"', "", "bound: Field required"),
        ('"3*M*N"', '"3*M*Q"', "uses Q"),
    ],
)
def test_a_faulty_description_is_refused_in_one_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    folder = tmp_path / "silu"
    shutil.copytree(PROBLEMS / "silu", folder)
    text = (folder / "problem.toml").read_text()
    assert old in text
    (folder / "problem.toml").write_text(text.replace(old, new))
    with pytest.raises(InvalidProblem, match=message) as raised:
        read_problem(folder)
    assert "\n" not in str(raised.value)


def test_a_folder_without_a_kernel_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "silu"
    shutil.copytree(PROBLEMS / "silu", folder)
    (folder / "baseline.py").unlink()
    with pytest.raises(InvalidProblem, match=r"there is no baseline\.py"):
        read_problem(folder)


def test_a_user_brings_a_reference_and_a_kernel(tmp_path: Path) -> None:
    reference, kernel = tmp_path / "ref.py", tmp_path / "kernel.py"
    reference.write_text(REFERENCE)
    kernel.write_text("# a kernel\n")
    problem = user_problem(reference, kernel)
    assert problem.source == "user"
    assert problem.shape == {"M": 128}
    assert problem.baseline_source() == "# a kernel\n"
    assert problem.work().min_traffic_bytes == 2 * 128 * 256 * 4
    assert problem.work().vector_flops == problem.work().matmul_flops == 0
    assert 0 < percent_of_peak(problem.work(), 1.0, "trn1") < 100


def test_a_reference_that_came_as_text_is_not_run_unless_asked() -> None:
    hostile = REFERENCE + "\nraise SystemExit('ran')\n"
    problem = user_problem(hostile, "# a kernel\n", measure=False)
    with pytest.raises(WorkUnknown):
        problem.work()
    with pytest.raises(InvalidReference, match="SystemExit: ran"):
        user_problem(hostile, "# a kernel\n")


def test_a_users_reference_says_how_exact_and_on_which_inputs() -> None:
    plain = user_problem(REFERENCE, "# a kernel\n", measure=False)
    assert (plain.tolerance, plain.regimes) == (2e-5, (Regime.normal,))
    text = REFERENCE + '\nTOLERANCE = 1e-2\nREGIMES = ["zeros", "late_maximum"]\n'
    problem = user_problem(text, "# a kernel\n", measure=False)
    assert problem.tolerance == 1e-2
    assert problem.regimes == (Regime.normal, Regime.zeros, Regime.late_maximum)
    assert problem.shape == plain.shape


def test_a_users_reference_says_how_much_is_to_be_computed() -> None:
    text = REFERENCE + "\nK, L = 64, 2 * M\nMATMUL_FLOPS = M * L * K\nVECTOR_FLOPS = 1000\n"
    problem = user_problem(text, "# a kernel\n")
    assert problem.work().matmul_flops == 2 * 128 * 128 * 64
    assert problem.work().vector_flops == 1000
    assert problem.shape == {"M": 128, "K": 64}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("MATMUL_FLOPS = 2 * M * Q", "MATMUL_FLOPS: '2 * M * Q' uses Q"),
        ("VECTOR_FLOPS = -1", "less than nothing"),
        ("TOLERANCE = 2.0", "TOLERANCE must be a number between 0 and 1, not 2.0"),
        ("TOLERANCE = float('nan')", "TOLERANCE must be written out"),
        ("TOLERANCE = True", "not True"),
        ("REGIMES = 'zeros'", "REGIMES must be a list of these"),
        ("REGIMES = ['easy']", "large_offset"),
    ],
)
def test_a_demand_that_makes_no_sense_is_refused_with_what_does(line: str, told: str) -> None:
    with pytest.raises(InvalidReference, match=re.escape(told)):
        user_problem(f"{REFERENCE}\n{line}\n", "# a kernel\n", measure=False)


def test_a_users_faulty_reference_is_refused_before_anything_runs() -> None:
    with pytest.raises(InvalidReference, match=r"defines no function forward\(\)"):
        user_problem("def get_inputs():\n    return []\n", "# a kernel\n", measure=False)
    with pytest.raises(InvalidProblem, match=r"no\.py"):
        user_problem(Path("no.py"), "# a kernel\n")
