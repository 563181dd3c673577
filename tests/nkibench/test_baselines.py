"""What can be said of the first-draft kernels without running them; the simulator's tests run them."""

import ast

import pytest

from nkibench import load_problem, problem_names

ALLOWED_IMPORTS = {"neuronxcc.nki", "neuronxcc.nki.isa", "neuronxcc.nki.language"}


def kernel_of(name: str) -> tuple[ast.Module, ast.FunctionDef]:
    tree = ast.parse(load_problem(name).baseline_source())
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return tree, function


@pytest.mark.parametrize("name", problem_names())
def test_a_baseline_is_one_jit_kernel_that_returns_its_output(name: str) -> None:
    _, function = kernel_of(name)
    assert [ast.unparse(decorator) for decorator in function.decorator_list] == ["nki.jit"]
    last = function.body[-1]
    assert isinstance(last, ast.Return) and isinstance(last.value, ast.Name)


@pytest.mark.parametrize("name", problem_names())
def test_a_baseline_imports_nki_and_nothing_else(name: str) -> None:
    tree, _ = kernel_of(name)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported <= ALLOWED_IMPORTS
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]


@pytest.mark.parametrize("name", problem_names())
def test_a_baseline_takes_the_stated_arguments_by_their_names(name: str) -> None:
    _, function = kernel_of(name)
    stated = [argument.name for argument in load_problem(name).arguments or ()]
    assert [argument.arg for argument in function.args.args] == stated


@pytest.mark.parametrize("name", problem_names())
def test_a_baseline_is_written_for_any_shape(name: str) -> None:
    _, function = kernel_of(name)
    problem = load_problem(name)
    numbers = {
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Constant) and isinstance(node.value, int)
    }
    sizes = {value for value in problem.shape.values() if value > 128}
    assert not numbers & (sizes - {512})
