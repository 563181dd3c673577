from __future__ import annotations

import pytest
from chromadb import Collection

from memory_store.chroma import ExperienceStore, Where, family_name
from memory_store.embedding import HashingEmbedder
from memory_store.errors import EmbedderMismatch, StoreBusy, StoreError
from memory_store.experience import situation


def titles(recalled):
    return [one.experience.title for one in recalled]


def test_what_was_added_comes_back_whole_and_in_the_order_asked_for(store, make_experience):
    made = [make_experience(i, rewrite="widen", features=["psum", "masked"]) for i in range(3)]
    assert store.add(made) == [one.id for one in made]
    asked = [made[2].id, "unknown", made[0].id]
    assert store.get(asked) == [made[2], made[0]]
    assert store.count() == 3


def test_adding_again_changes_nothing_but_the_runs_that_know_it(store, make_experience):
    first = make_experience(1, run_id="run-a", created_at="2026-01-01")
    again = make_experience(1, run_id="run-b", created_at="2026-06-06", speedup=9.0)
    store.add([first, first])
    store.add([again], run_id="run-c")
    assert store.count() == 1
    assert store.get([first.id]) == [first]
    for run_id in ("run-a", "run-b", "run-c"):
        assert store.count(Where(run_id=run_id)) == 1, run_id
        assert titles(store.query("tile", 5, Where(run_id=run_id))) == [first.title]
    assert store.count(Where(run_id="run-d")) == 0


def test_the_nearest_come_first(store, make_experience):
    store.add(
        [
            make_experience(1, title="Fuse the activation", description="Fold scale and bias into one."),
            make_experience(2, title="Block the matmul", description="Reuse the stationary operand in PSUM."),
            make_experience(3, title="Remove a spill", description="Recompute instead of keeping it."),
        ]
    )
    asked = situation("silu", "memory", words="keep the stationary operand of the matmul for reuse in PSUM")
    recalled = store.query(asked, 3)
    assert titles(recalled)[0] == "Block the matmul"
    assert [one.distance for one in recalled] == sorted(one.distance for one in recalled)
    assert len(store.query(asked, 2)) == 2
    assert store.query(asked, 0) == []


def test_what_the_approximate_index_misses_of_a_few_is_found(store, make_experience, monkeypatch):
    store.add([make_experience(i) for i in range(6)])
    whole = store.query("tile", 6)
    ask = Collection.query

    def forgetful(self, *args, **kwargs):
        answer = ask(self, *args, **kwargs)
        return answer | {"ids": [answer["ids"][0][1:]], "distances": [answer["distances"][0][1:]]}

    monkeypatch.setattr(Collection, "query", forgetful)
    found = store.query("tile", 6)
    assert len(found) == 6 and found == whole


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Where(), {0, 1, 2, 3, 4, 5}),
        (Where(operator="silu"), {0, 1, 2}),
        (Where(operator="silu", kind="negative"), {1}),
        (Where(kind="negative"), {1, 4}),
        (Where(problem="bmm-large"), {5}),
        (Where(operator="bmm", problem="bmm-large"), {5}),
        (Where(target="trn2"), {2}),
        (Where(bottleneck="vector"), {0, 3}),
        (Where(operator="bmm", bottleneck="vector", run_id="run-b"), {3}),
        (Where(operator="never heard of"), set()),
        (Where(problem="never heard of"), set()),
    ],
)
def test_conditions_hold_for_recall_listing_and_counting_alike(store, make_experience, where, expected):
    store.add(
        [
            make_experience(0, bottleneck="vector"),
            make_experience(1, kind="negative", speedup=0.5),
            make_experience(2, target="trn2"),
            make_experience(3, operator="bmm", problem="bmm", bottleneck="vector", run_id="run-b"),
            make_experience(4, operator="bmm", problem="bmm", kind="negative", speedup=0.5),
            make_experience(5, operator="bmm", problem="bmm-large"),
        ]
    )
    numbers = {f"Widen the tile {i}" for i in expected}
    assert set(titles(store.query("tile", 6, where))) == numbers
    assert {one.title for one in store.list(where)} == numbers
    assert store.count(where) == len(numbers)


def test_a_rare_kind_is_found_behind_many_nearer_others(store, make_experience):
    near = [make_experience(i, description="tile tile tile") for i in range(40)]
    far = make_experience(99, title="Something else", description="entirely", kind="negative", speedup=0.5)
    store.add([*near, far])
    assert titles(store.query("tile tile tile", 1, Where(kind="negative"))) == ["Something else"]
    assert titles(store.query("tile tile tile", 1, Where(operator="silu", kind="negative"))) == [
        "Something else"
    ]


def test_the_same_words_found_on_many_kernels_are_recalled_once(store, make_experience):
    echoes = [make_experience(1, slow_kernel_id=f"{i:04d}") for i in range(30)]
    other = make_experience(2, title="Fuse", description="Another thing altogether.")
    store.add([*echoes, other])
    asked = echoes[0].text()
    assert titles(store.query(asked, 3)) == ["Widen the tile 1", "Fuse"]
    assert titles(store.query(asked, 3, distinct=False)) == ["Widen the tile 1"] * 3


def test_a_helping_and_a_hurting_step_in_the_same_words_are_both_recalled(store, make_experience):
    store.add([make_experience(1), make_experience(1, kind="negative", speedup=0.5)])
    kinds = [one.experience.kind for one in store.query("tile", 5)]
    assert sorted(kinds) == ["negative", "positive"]


def test_the_queue_is_of_one_problem_newest_first_and_bounded(store, make_experience):
    store.add([make_experience(i) for i in (3, 1, 2)])
    store.add([make_experience(5, problem="gelu", operator="gelu")])
    assert [one.title[-1] for one in store.queue("silu", 16)] == ["3", "2", "1"]
    assert [one.title[-1] for one in store.queue("silu", 2)] == ["3", "2"]
    assert store.queue("silu", 16, run_id="another") == []


def test_what_is_forgotten_is_not_recalled(store, make_experience):
    made = [make_experience(i) for i in range(3)]
    store.add(made)
    assert store.delete([made[1].id, "unknown"]) == 1
    assert store.count() == 2
    for where in (Where(), Where(operator="silu")):
        assert made[1].title not in titles(store.query(made[1].text(), 5, where))
    assert store.delete([]) == 0


def test_more_than_a_batch_is_added_whole(store, make_experience):
    assert len(store.add(make_experience(0, title=f"lesson {i}") for i in range(1100))) == 1100
    assert store.count() == store.count(Where(operator="silu")) == 1100


def test_families_may_be_called_anything(store, make_experience):
    names = ["matmul", "Matmul", "mat mul", "σ", "x" * 300, "a/b"]
    assert len({family_name(name) for name in names}) == len(names)
    store.add([make_experience(i, operator=name) for i, name in enumerate(names)])
    for i, name in enumerate(names):
        assert titles(store.query("tile", 9, Where(operator=name))) == [f"Widen the tile {i}"]


def test_an_experience_without_run_or_bottleneck_can_be_kept(store, make_experience):
    bare = make_experience(1, run_id="", bottleneck="", features=[], operator="")
    store.add([bare])
    assert store.get([bare.id]) == [bare]


def test_langchain_sees_the_same_experiences(store, make_experience):
    store.add([make_experience(i) for i in range(3)])
    documents = store.vectorstore().as_retriever(search_kwargs={"k": 2}).invoke("Widen the tile 2")
    assert len(documents) == 2
    assert documents[0].page_content == make_experience(2).text()
    assert documents[0].metadata["operator"] == "silu"


def test_a_store_is_there_when_opened_again(tmp_path, make_experience):
    made = make_experience(1)
    with ExperienceStore.open(tmp_path / "chroma", "hashing", shared=False) as store:
        store.add([made])
    with ExperienceStore.open(tmp_path / "chroma", "auto", shared=False) as store:
        assert store.embedder.name == "hashing:1:256"
        assert store.get([made.id]) == [made]
        assert titles(store.query("tile", 3)) == [made.title]
        store.close()


def test_another_embedder_is_refused_and_the_store_stays_usable(tmp_path, make_experience):
    with ExperienceStore.open(tmp_path / "chroma", HashingEmbedder(64), shared=False) as store:
        store.add([make_experience(1)])
    with pytest.raises(
        EmbedderMismatch, match=r"hashing:1:64 .* hashing:1:256: choose .* ACCELOPT_HOME"
    ) as caught:
        ExperienceStore.open(tmp_path / "chroma", HashingEmbedder(256), shared=False)
    assert "\n" not in str(caught.value)
    with ExperienceStore.open(tmp_path / "chroma", HashingEmbedder(64), shared=False) as store:
        assert store.count() == 1


def test_an_embedder_that_changed_its_length_is_refused(store):
    store.embedder = HashingEmbedder(64)
    with pytest.raises(EmbedderMismatch, match="64 numbers a text, but .* 256"):
        store.query("tile", 1)


def test_the_files_are_open_to_one_process_at_a_time(tmp_path, store):
    with pytest.raises(StoreBusy, match="in use by another process"):
        ExperienceStore.open(tmp_path / "chroma", "hashing", shared=False)
    with pytest.raises(StoreBusy, match="for itself"):
        ExperienceStore.open(tmp_path / "chroma", "hashing", shared=True)


def test_a_path_that_cannot_be_a_folder_is_one_line_that_says_where(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    for shared in (True, False):
        with pytest.raises(StoreError, match=str(blocker)):
            ExperienceStore.open(blocker / "chroma", "hashing", shared=shared)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "ftp://host", "nonsense"])
def test_a_server_that_is_not_there_is_one_line_that_says_where(url):
    with pytest.raises(StoreError, match=url.removeprefix("http://")):
        ExperienceStore.connect(url, "hashing")
