"""OA-Join against its definition, on random streams.

What these can catch: pairs that are lost, made twice or wrong at an end of the band; rows purged too early or kept too
long; promises that a later row breaks; rows without a partner that leave too early, late or not at all; keys that are
equal only as bits, or differ only as bits; state that a restart loses.
"""

from __future__ import annotations

from random import Random

import pytest

from highlevel.joins.spec import Boundary
from tests.conftest import Rounds
from tests.references.join_streams import random_run, random_window
from tests.references.joins_check import RUNS, check


@pytest.mark.parametrize("form", Boundary)
def test_a_band_join_gives_what_its_definition_says(form: Boundary, rounds: Rounds) -> None:
    random = Random(f"definition {form}")
    for _ in rounds(RUNS):
        check(random, random_run(random, random_window(random, form), plain=True))
