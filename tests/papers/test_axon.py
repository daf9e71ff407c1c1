"""Table 2.1: what is counted is what runs."""

import pytest
from papers.axon import (
    AxonStudy,
    answers,
    claims_of_axon,
    code_lines,
    extra_lines,
    run_axon,
    table_of_axon,
)
from papers.axon_programs import CLIENTS, PORT, PROGRAMS, Program


def test_lines_of_code_are_neither_blank_nor_comments() -> None:
    text = """import os

# a comment
def one():
    '''Says
    two lines.'''
    return (
        1
    )
"""
    assert sorted(code_lines(text)) == [1, 4, 5, 6, 7, 8, 9]


def test_the_function_of_a_service_is_not_counted() -> None:
    assert extra_lines(PROGRAMS["melisma.rpc"].service) == 3
    plain = "def simple_hello(name):\n    return name\n"
    assert extra_lines(plain) == 0
    assert extra_lines(plain + "simple_hello(1)\n") == 1


def test_every_program_and_every_way_to_wait_has_a_port_to_change() -> None:
    texts = [p.service for name, p in PROGRAMS.items() if name != "Axon"]
    assert all(str(PORT) in text for text in [*texts, *CLIENTS.values()])


@pytest.mark.slow
def test_a_client_that_hears_something_else_has_no_answer() -> None:
    ours = PROGRAMS["melisma.rpc"]
    other = Program(service=ours.service.replace("Hello", "Bye"), client=ours.client)
    assert not answers(other)


@pytest.mark.slow
def test_all_programs_answer_and_every_claim_holds() -> None:
    data = run_axon(AxonStudy())
    assert [float(data[f"{name}/answers"]) for name in PROGRAMS] == [1.0] * 3
    assert {claim.verdict.value for claim in claims_of_axon(data)} == {"holds"}
    assert table_of_axon(data)[-1][1:4] == ["yes", "yes", "yes"]
