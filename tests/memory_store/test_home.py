from __future__ import annotations

from pathlib import Path

import pytest

from memory_store.errors import HomeError
from memory_store.home import HOME_VARIABLE, POSTGRES_VARIABLE, find_home, plain_postgres_url, sqlalchemy_url


def test_the_home_is_what_is_given_then_the_variable_then_the_user_data_folder(monkeypatch, tmp_path):
    monkeypatch.delenv(HOME_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert find_home().root.name == "accelopt"
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "from-variable"))
    assert find_home().root == tmp_path / "from-variable"
    assert find_home(tmp_path / "given").root == tmp_path / "given"
    assert not list(tmp_path.iterdir())


def test_a_prepared_home_has_its_folders(tmp_path):
    home = find_home(tmp_path / "new" / "home").prepare()
    assert home.runs_path.is_dir()
    assert home.run_path("r1").is_dir()
    assert home.ledger_url == f"sqlite:///{home.root}/ledger.sqlite"


def test_a_home_that_cannot_be_made_is_one_line_that_says_where(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(HomeError, match=rf"{blocker}.*{HOME_VARIABLE}"):
        find_home(blocker / "home").prepare()


def test_a_home_that_cannot_be_written_is_one_line_that_says_where(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(HomeError, match=f"cannot write to {tmp_path} .Permission denied"):
        find_home(tmp_path).prepare()


def test_one_process_at_a_time_works_on_a_run(tmp_path):
    home = find_home(tmp_path).prepare()
    with home.claim_run("r1"):
        with pytest.raises(HomeError, match="another process is working on the run r1"), home.claim_run("r1"):
            pass
        with home.claim_run("r2"):
            pass
    with home.claim_run("r1"):
        pass


def test_a_postgres_url_replaces_the_ledger_file(monkeypatch, tmp_path):
    monkeypatch.setenv(POSTGRES_VARIABLE, "postgresql://me:secret@db/x")
    assert find_home(tmp_path).ledger_url == "postgresql+psycopg://me:secret@db/x"
    assert sqlalchemy_url("postgresql+psycopg://db/x") == "postgresql+psycopg://db/x"
    assert plain_postgres_url("postgresql+psycopg://db/x") == "postgresql://db/x"


@pytest.mark.parametrize("url", ["mysql://db/x", "not a url"])
def test_a_url_of_another_database_is_refused(monkeypatch, tmp_path, url):
    monkeypatch.setenv(POSTGRES_VARIABLE, url)
    with pytest.raises(HomeError, match=POSTGRES_VARIABLE):
        find_home(tmp_path)


def test_the_home_is_outside_the_project_by_default(monkeypatch):
    monkeypatch.delenv(HOME_VARIABLE, raising=False)
    monkeypatch.delenv(POSTGRES_VARIABLE, raising=False)
    project = Path(__file__).resolve().parents[2]
    assert project not in find_home().root.parents
