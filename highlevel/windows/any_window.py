"""All kinds of windows there are, as one type: whoever tells them apart is checked for having thought of each."""

from __future__ import annotations

from highlevel.windows.landmark import LandmarkWindow
from highlevel.windows.session import SessionWindow
from highlevel.windows.slide_by_tuple import SlideByTuple
from highlevel.windows.sliding import SlidingWindow
from highlevel.windows.tuples import TupleWindow

AnyWindow = SlidingWindow | LandmarkWindow | SessionWindow | SlideByTuple | TupleWindow
