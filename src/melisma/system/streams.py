"""Streams of random numbers: one seed, and no stream that depends on another."""

from enum import IntEnum


class Stream(IntEnum):
    """What the numbers are for; a generator is made from [seed, stream, …]."""

    FLEET = 1  #: states, noise and the order of batches
    ROWS = 2  #: which samples each learner gets in a cycle
    SPLIT = 3  #: where the data lies in federated mode
    LEARNER = 4  #: the order of batches on a live learner
    CODES = 6  #: what is tried for a code
    STRAGGLERS = 7  #: who straggles in a cycle
    FOG = 8  #: what devices of a fog collect, and what moving it costs
    CELL = 9  #: where learners of a radio cell are, and how their channels fade
    COMINGS = 12  #: when devices of a fog enter and leave
    RING = 13  #: who starts a coded cycle, where that is drawn
    OWNER = 11  #: what the owner of an emulated device does in a cycle
    BENCHMARK = 5  #: in which state a learner was benchmarked
    TRANSMISSION = 10  #: what batteries harvest
    DEADLINE = 14  #: of a cycle, where the run chooses it
    PARTICIPATION = 15  #: who takes part in a cycle, where some are drawn
    WIRE = 16  #: what codecs draw, of models and of changes
    WORTH = 17  #: what options are measured on
    SPOT = 18  #: when spot instances are reclaimed, and come back
