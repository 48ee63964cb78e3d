"""OA-Join against its definition, on random streams.

The tests detect pairs that are lost, doubled or wrong at an end of the band, and rows purged too early or kept too
long. They detect watermarks that a later row breaks, and rows without a partner that leave too early, late or never.
They detect keys that are equal only as bits, or differ only as bits, and state that a restart loses.
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
