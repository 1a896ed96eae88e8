"""Named streams: a name decides what is drawn, and no stream moves another."""

import itertools

import numpy as np

from agent_rl.seeding import Stream, generator, integer_seed, sequence


def draws(*name):
    return tuple(generator(*name).random(4))


def test_p56_every_part_of_a_name_changes_what_is_drawn():
    study, seed, stream, index = 11, 3, Stream.SAMPLING, (5, 7)
    names = [
        (study, seed, stream, *index),
        (12, seed, stream, *index),
        (study, 4, stream, *index),
        *((study, seed, other, *index) for other in Stream if other is not stream),
        (study, seed, stream, 6, 7),
        (study, seed, stream, 5, 8),
        (study, seed, stream, 7, 5),
        (study, seed, stream, 5),
        (study, seed, stream),
    ]
    assert len({draws(*name) for name in names}) == len(names)
    assert draws(*names[0]) == draws(*names[0])
    assert len({integer_seed(*name) for name in names}) == len(names)


def test_p52_no_two_purposes_share_a_stream():
    # Two names of one number would be one member of the enumeration.
    assert len(Stream.__members__) == len(set(Stream)) >= 8
    assert sorted(int(s) for s in Stream) == list(range(len(Stream)))
    assert (Stream.SAMPLING, Stream.EVALUATION) == (3, 4)  # part of every result: append only


def test_p52_drawing_more_from_one_stream_leaves_the_others_as_they_were():
    def sampled(evaluations):
        found = []
        for update in range(3):
            generator(0, 0, Stream.EVALUATION, update).random(100 * evaluations)
            found.append(draws(0, 0, Stream.SAMPLING, update))
        return found

    assert sampled(1) == sampled(10)


def test_p56_episodes_of_one_update_never_share_a_stream():
    positions = itertools.product(range(20), range(16))
    states = {
        tuple(sequence(0, 0, Stream.SAMPLING, update, position).generate_state(4))
        for update, position in positions
    }
    assert len(states) == 20 * 16
    assert isinstance(sequence(0, 0, Stream.INIT), np.random.SeedSequence)
