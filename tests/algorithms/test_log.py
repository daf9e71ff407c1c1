from melisma.algorithms.log import OFFENCES, RunState
from melisma.runs.records import Dropped, Expelled, Record


def test_who_takes_over_the_name_of_an_expelled_learner_starts_anew() -> None:
    offence = Dropped(
        time_s=1.0, task="t", cycle=1, learner="pi", reason="NaN", offence=True
    )
    expelled = Expelled(time_s=1.0, task="t", cycle=1, learner="pi", reason="NaN")
    past: list[Record] = [*[offence] * OFFENCES, expelled, offence]
    state = RunState(past)
    assert state.offences["pi"] == 1
    assert state.expelled == {"pi": "NaN"}
