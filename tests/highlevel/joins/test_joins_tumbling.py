"""OA-Join over tumbling windows, and joins of any columns, against the definition on random streams.

In addition to `test_joins`, the tests detect windows with a wrong origin, or windows compared with the wrong ones. They
detect keys that are equal only as bits or differ only as bits, wrong NULLs, and columns that change. They detect a
restart that loses the types of values.
"""

from __future__ import annotations

from random import Random

import pytest

from highlevel.joins.spec import Boundary
from tests.conftest import Rounds
from tests.references.join_streams import random_run, random_window
from tests.references.joins_check import RUNS, check
from tests.references.joins_oracle import meet, near


@pytest.mark.parametrize("form", [*Boundary, None])
def test_extents_that_meet_hold_the_rows_that_the_predicate_names(form: Boundary | None) -> None:
    """Both definitions of a join agree, so tests may use either."""
    random = Random(f"extents {form}")
    for _ in range(50):
        window = random_window(random, form)
        left, right = ([random.randrange(60) for _ in range(random.randint(1, 15))] for _ in range(2))
        places = {(i, j) for i, one in enumerate(left) for j, other in enumerate(right) if meet(window, one, other)}
        assert near(window, left, right) == places


def test_a_tumbling_join_gives_what_its_definition_says(rounds: Rounds) -> None:
    random = Random("tumbling")
    for _ in rounds(RUNS):
        check(random, random_run(random, random_window(random, None), plain=True))


@pytest.mark.parametrize("form", [*Boundary, None])
def test_a_join_of_any_columns_holds_what_its_definition_says_at_each_promise(form: Boundary | None) -> None:
    random = Random(f"columns {form}")
    for _ in range(RUNS // 20):
        check(random, random_run(random, random_window(random, form), plain=False))
