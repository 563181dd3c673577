"""Constants: every one says where it comes from, and few were fitted."""

import pickle

import pytest

from tools.neuroncore.machine import MACHINES, TRN1, machine_for


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_every_fact_has_a_unit_and_a_source(machine):
    for name, fact in machine.facts():
        assert fact.unit and len(fact.source) > 5, name


def test_at_most_ten_constants_were_fitted():
    assert 0 < len(TRN1.fitted()) <= 10
    assert all("fitted on" in fact.source for _, fact in TRN1.fitted())


def test_replacing_a_fact_keeps_unit_and_source():
    changed = TRN1.replace(dma_piece_ns=80)
    assert changed.dma_piece_ns == 80
    assert changed.dma_piece_ns.source == TRN1.dma_piece_ns.source
    assert TRN1.dma_piece_ns != 80


def test_facts_survive_pickling():
    fact = pickle.loads(pickle.dumps(TRN1.dma_piece_ns))
    assert (fact, fact.unit, fact.source, fact.fitted) == (
        TRN1.dma_piece_ns,
        TRN1.dma_piece_ns.unit,
        TRN1.dma_piece_ns.source,
        True,
    )


def test_the_targets_differ_in_facts_only():
    assert (
        machine_for("trn1").name == "trn1" and machine_for("trn2").sbuf_usable_bytes > TRN1.sbuf_usable_bytes
    )
