"""Ablations: what is run, what is not run again, and what the table says."""

import json
from dataclasses import replace

import pytest

import graph.ablation as ablation
from graph.ablation import Spec, as_csv, cells, read_spec, run_all, run_cell, table, whole
from graph.cli.entry import run
from graph.limits import LimitReached
from graph.run import RunError
from memory_store.home import Home
from nodes.context import Caps

TINY = {"beam": 2, "plans": 2, "samples": 1, "iterations": 2}


@pytest.fixture
def over_stand_ins(stand_in, monkeypatch):
    """Every problem is the stand-ins' kernel."""
    whole = ablation.optimize

    def optimize(problem, context, **options):
        return whole({**stand_in.problem, "name": problem}, context, **options)

    monkeypatch.setattr(ablation, "optimize", optimize)
    return stand_in


def spec(**changes):
    base = {"name": "try", "problems": ["silu", "bmm"], "seeds": [0, 1], "settings": TINY}
    return Spec.model_validate({**base, "variants": {"wide": {}, "narrow": {"beam": 1}}, **changes})


def test_a_grid_multiplies_variants():
    found = spec(grid={"memory": ["paper", "off"], "plans": [2, 3]}).contexts()
    assert len(found) == 2 * 2 * 2
    assert found["narrow,memory=off,plans=3"].beam == 1 and found["narrow,memory=off,plans=3"].plans == 3


def test_seeds_and_problems_of_a_variant_share_nothing_with_other_variants(stand_in):
    homes = {(cell.variant, cell.seed): cell.home.root for cell in cells(spec(), stand_in.home)}
    assert len(set(homes.values())) == 4
    assert {cell.home.cache_path for cell in cells(spec(), stand_in.home)} == {stand_in.home.cache_path}
    answers = {cell.home.llm_cache_path for cell in cells(spec(), stand_in.home)}
    assert len(answers) == 4, "or what one variant paid for would cost the next one nothing"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"settings": {"beem": 1}}, "variant wide: there is no setting beem"),
        ({"grid": {"beam": [0]}}, "variant wide,beam=0: beam"),
        ({"preset": "slow"}, "no preset 'slow'"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named_with_its_variant(changes, told):
    with pytest.raises(RunError, match=told):
        spec(**changes).contexts()


def test_a_file_that_is_no_ablation_is_said_with_the_place(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text('name = "x"\nproblem = ["silu"]\n')
    with pytest.raises(RunError, match="a.toml: problem"):
        read_spec(path)


def test_the_table_has_means_over_seeds_of_geometric_means_over_problems(over_stand_ins):
    outcomes = list(run_all(cells(spec(), over_stand_ins.home)))
    rows = {row.variant: row for row in table(outcomes)}
    assert list(rows) == ["wide", "narrow"] and rows["wide"].problems == 2
    by_seed = [
        [one.result.speedup for one in outcomes if (one.cell.variant, one.cell.seed) == ("wide", seed)]
        for seed in (0, 1)
    ]
    expected = sum((first * second) ** 0.5 for first, second in by_seed) / 2
    assert rows["wide"].speedup == pytest.approx(expected) and rows["wide"].speedup > 1
    assert rows["narrow"].kernels < rows["wide"].kernels
    assert all(0 < one.kernels_to_near <= one.result.kernels_evaluated for one in outcomes)
    assert as_csv(list(rows.values())).splitlines()[0].startswith("variant,seeds,problems,speedup,")


def test_what_is_finished_is_not_done_again(over_stand_ins):
    todo = cells(spec(seeds=[0], variants={"one": {}}), over_stand_ins.home)
    first = list(run_all(todo))
    asked = len(over_stand_ins.calls)
    assert [one.result for one in run_all(todo)] == [one.result for one in first]
    assert len(over_stand_ins.calls) == asked


def test_other_settings_under_the_same_name_are_refused(over_stand_ins):
    (cell,) = cells(spec(problems=["silu"], seeds=[0], variants={"one": {}}), over_stand_ins.home)
    run_cell(cell)
    (other,) = cells(spec(problems=["silu"], seeds=[0], variants={"one": {"beam": 1}}), over_stand_ins.home)
    with pytest.raises(RunError, match="another name"):
        run_cell(other)


def test_limits_are_for_all_runs_together_and_higher_ones_go_on_with_the_rest(over_stand_ins):
    todo = cells(spec(seeds=[0]), over_stand_ins.home)
    outcomes = []
    with pytest.raises(LimitReached, match="whole ablation"):
        for outcome in run_all(todo, caps=Caps(kernels=15)):
            outcomes.append(outcome)
    evaluated = [one.result.kernels_evaluated for one in outcomes]
    # wide: 2 + 4 kernels for each problem; narrow: 2 + 2.
    assert evaluated == [6, 6]
    assert {row.variant for row in table(whole(outcomes, todo))} == {"wide"}
    asked = len(over_stand_ins.calls)
    outcomes = list(run_all(todo, caps=Caps(kernels=20)))
    assert [one.result.kernels_evaluated for one in outcomes] == [6, 6, 4, 4]
    assert all(not one.result.stopped for one in outcomes)
    assert whole(outcomes, todo) == outcomes
    free = [replace(cell, home=Home(root=cell.home.root / "free")) for cell in todo]
    made = len(over_stand_ins.calls)
    undisturbed = list(run_all(free))
    assert [one.result.best_kernel_id for one in undisturbed] == [
        one.result.best_kernel_id for one in outcomes
    ]
    assert len(over_stand_ins.calls) - made == made, "a call was made twice"
    assert made > asked


def test_a_run_that_its_own_limit_ended_is_done_whatever_is_left_for_all(over_stand_ins):
    own = {**TINY, "caps": {"kernels": 3}}
    todo = cells(spec(seeds=[0], variants={"one": {}}, settings=own), over_stand_ins.home)
    outcomes = list(run_all(todo, caps=Caps(kernels=100)))
    assert [one.result.kernels_evaluated for one in outcomes] == [3, 3]
    asked = len(over_stand_ins.calls)
    assert [one.result for one in run_all(todo, caps=Caps(kernels=50))] == [one.result for one in outcomes]
    assert len(over_stand_ins.calls) == asked
    more = cells(
        spec(seeds=[0], variants={"one": {}}, settings={**TINY, "caps": {"kernels": 5}}), over_stand_ins.home
    )
    assert [one.result.kernels_evaluated for one in run_all(more)] == [5, 5], "its own limit was raised"


def test_the_command_takes_limits_before_those_of_the_file(over_stand_ins, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ACCELOPT_HOME", str(over_stand_ins.home.root))
    path = tmp_path / "a.toml"
    path.write_text(
        'name = "limited"\nproblems = ["silu", "bmm"]\n[settings]\nbeam = 1\nplans = 2\nsamples = 1\n'
        "iterations = 1\n[caps]\nkernels = 3\n"
    )
    assert run(["ablate", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rows"] == [] and (document["runs_done"], document["runs"]) == (1, 2)
    assert document["stopped"] == "the cap of 3 kernels for the whole ablation is reached"
    assert run(["ablate", str(path), "--max-kernels", "4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["stopped"] is None and len(document["rows"]) == 1
    assert run(["ablate", str(path), "--max-kernels", "0"]) == 2
    assert "kernels cannot be 0" in capsys.readouterr().err


def test_the_command_prints_one_document_and_writes_csv(over_stand_ins, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ACCELOPT_HOME", str(over_stand_ins.home.root))
    path = tmp_path / "a.toml"
    path.write_text(
        'name = "memory"\nproblems = ["silu"]\n[settings]\nbeam = 2\nplans = 2\niterations = 1\n'
        '[variants.a]\n[variants.b]\nmemory = "off"\n'
    )
    assert run(["ablate", str(path), "--json", "--csv", str(tmp_path / "t.csv")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["variant"] for row in document["rows"]] == ["a", "b"]
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 3
