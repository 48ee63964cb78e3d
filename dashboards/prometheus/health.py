"""Health of a run, for supervisors such as Kubernetes: `/healthz` and `/readyz` of the metrics server.

/healthz    200 while the loop that watches the run calls `beat` regularly; otherwise 503: restart the process
/readyz     200 while the run computes, or has ended and serves its last windows; 503 while Spark starts or restarts, or
            if /healthz is 503
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

MAX_BEAT_INTERVAL = 300.0
"""Maximum time between two calls of `beat`, in seconds. A restart of Spark may take minutes on a cluster, after a wait
of one minute.
"""


class Health:
    """The health of one run. Thread safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with the state of a run that is starting. `clock` returns seconds."""
        self._clock = clock
        self._lock = Lock()
        self._last_beat: float | None = None
        self._obstacle: str | None = "Spark starts"

    def beat(self, obstacle: str | None = None) -> None:
        """Record that the loop is alive. `obstacle` is the reason why the run does not compute; None if it computes."""
        with self._lock:
            self._last_beat, self._obstacle = self._clock(), obstacle

    def end(self) -> None:
        """Record that the loop has ended, because all input is read. The process remains alive and ready."""
        with self._lock:
            self._last_beat, self._obstacle = None, None

    def set_obstacle(self, obstacle: str) -> None:
        """Record why the run does not compute, without a beat.

        So /healthz fails if the next step takes longer than MAX_BEAT_INTERVAL.
        """
        with self._lock:
            self._obstacle = obstacle

    def respond(self, path: str) -> tuple[str, str] | None:
        r"""Return the status and the text of an answer, or None for a path that is not about health.

        >>> health = Health()
        >>> health.respond("/healthz"), health.respond("/readyz")
        (('200 OK', 'ok\n'), ('503 Service Unavailable', 'not ready: Spark starts\n'))
        """
        if path not in ("/healthz", "/readyz"):
            return None
        with self._lock:
            pause = 0.0 if self._last_beat is None else self._clock() - self._last_beat
            if pause > MAX_BEAT_INTERVAL:
                return "503 Service Unavailable", f"the run has not moved for {pause:.0f} s\n"
            if path == "/readyz" and self._obstacle is not None:
                return "503 Service Unavailable", f"not ready: {self._obstacle}\n"
        return "200 OK", "ok\n"
