"""Align, Finalize, AlterLifetime and the join as printed in CEDR, one event at a time, with single errata corrected.

Each takes `defects`: the errata (digest §8) that are left as printed. Without defects they are correct.
"""

from tests.references.lifetimes import C, I, R, inf, sync


def altered(events, start, length, *, defects=()):
    """AlterLifetime with the functions `start(vs, ve)` and `length(vs, ve)`. A CTI is a row without length."""
    out, promised = [], -inf
    for event in events:
        if event[0] == "I":
            _, vs, ve, p = event
            out.append(I(start(vs, ve), start(vs, ve) + length(vs, ve), p))
        elif event[0] == "R":
            _, vs, ve, vnew, p = event
            begin = start(vs, ve)
            old = begin + length(vs, ve)
            new = begin if vnew == vs else begin + length(vs, vnew)
            if new < old or "B4" in defects:
                out.append(R(begin, old, new, p))
        else:
            promised_now = inf if event[1] == inf else start(event[1], event[1])
            if promised_now > promised:
                promised = promised_now
                out.append(C(promised))
    return out


class AlignTwin:
    """Align with release by CTIs only, by ends or by sync times."""

    def __init__(self, release="ends", *, defects=()) -> None:
        self.release, self.defects = release, frozenset(defects)
        self.stored, self.promised = [], -inf

    def process(self, event):
        if event[0] == "I":
            self.stored.append(event)
        elif event[0] == "R":
            self._retract(*event[1:])
        else:
            return self._advance(event[1])
        return []

    def _retract(self, vs, ve, vnew, p):
        for place, stored in enumerate(self.stored):
            if stored == I(vs, ve, p):
                if vnew > vs or "B6" in self.defects:
                    self.stored[place] = I(vs, vnew, p)
                else:
                    del self.stored[place]
                return
        self.stored.append(R(vs, ve, vnew, p))

    def _advance(self, t):
        def key(event):
            return event[2] if event[0] == "I" and self.release == "ends" else sync(event)

        strict = self.release != "ends"
        until = -inf if "B8 field" in self.defects else t  # a CTI has no Ve
        out = sorted(
            (each for each in self.stored if key(each) < until or (key(each) == until and not strict)), key=key
        )
        if "B8 guard" in self.defects and len({event[0] for event in out}) < 2:
            out = []  # "a and (b or c) and d": both queues must have a change that is due
        self.stored = [each for each in self.stored if each not in out]
        promised = min([t, *(each[1] for each in self.stored)])
        if promised > self.promised:
            self.promised = promised
            out.append(C(promised))
        return out


class FinalizeTwin:
    """Finalize by value, with counts ('X', a, b, n) and CTIs that are forced `remember` below the newest start."""

    def __init__(self, remember=inf, *, defects=()) -> None:
        self.remember, self.defects = remember, frozenset(defects)
        self.promised, self.newest = 0, -inf
        self.counts, self.received, self.live, self.broken = [], [], [], []

    def process(self, event):
        out = []
        if event[0] == "X":
            if event[2] > self.promised or "B13" in self.defects:
                self.counts.append(event[1:])
                self.counts.sort()
            if "B13" in self.defects:
                return []
        elif event[0] == "I":
            self._insert(*event[1:], out)
        else:
            self._retract(*event[1:], out)
        self._advance(out)
        return out

    def _receive(self, time, sync):
        """Count a change whose sync time is `sync`; return whether it is late."""
        is_late = time < self.promised
        if not (is_late and "B15" in self.defects):
            self.received.append(sync)
        return is_late

    def _insert(self, vs, ve, p, out):
        self.newest = max(self.newest, vs)
        if self._receive(vs, vs):
            return
        for broken in self.broken:
            if broken[:2] == (vs, ve) and broken[3] == p:
                self.broken.remove(broken)
                ve = broken[2]
                break
        if ve > vs:
            self.live.append((vs, ve, p))
            out.append(I(vs, ve, p))

    def _retract(self, vs, ve, vnew, p, out):
        if self._receive(vnew, vnew):
            return
        for broken in self.broken:
            if (broken[0], broken[2], broken[3]) == (vs, ve, p):
                self.broken.remove(broken)
                ve = broken[1]
                break
        for broken in self.broken:
            if (broken[0], broken[1], broken[3]) == (vs, vnew, p):
                self.broken.remove(broken)
                if "B14" in self.defects:
                    self.received[self.received.index(vnew)] = broken[2]
                vnew = broken[2]
                break
        if (vs, ve, p) in self.live:
            self.live.remove((vs, ve, p))
            if vnew > vs:
                self.live.append((vs, vnew, p))
            out.append(R(vs, ve, vnew, p))
        else:
            self.broken.append((vs, ve, vnew, p))

    def _advance(self, out):
        t = self.promised
        for a, b, n in sorted(self.counts):
            is_gap = a > t and "B12" not in self.defects
            if is_gap or sum(a <= time < b or (time == b and "B9" in self.defects) for time in self.received) < n:
                break
            t = max(t, b)
            if "B13" in self.defects:
                break
        if "B11" not in self.defects:
            t = min([t, *(broken[2] for broken in self.broken)])
        forced = self.newest - self.remember
        t = max(t, next((a for a, b, _ in self.counts if a <= forced < b), forced))
        if t > self.promised:
            self.promised = t
            out.append(C(t))
            place = 0 if "B10" in self.defects else 1
            self.live = [row for row in self.live if row[place] >= t]
            self.received = [time for time in self.received if time >= t]
            self.broken = [broken for broken in self.broken if broken[2] >= t]
            self.counts = [count for count in self.counts if count[1] > t]


class JoinTwin:
    """The join on equal payloads, with closed lifetimes if `B2` is a defect, and without `B3` few stored rows."""

    def __init__(self, *, defects=()) -> None:
        self.defects = frozenset(defects)
        self.stored, self.promised, self.out_promised = ([], []), [-inf, -inf], -inf

    def process(self, side, event):
        other = self.stored[1 - side]
        if event[0] == "C":
            self.promised[side] = max(self.promised[side], event[1])
            kept = "B3" in self.defects
            self.stored[1 - side][:] = [row for row in other if row[1] > event[1] or (kept and row[1] == event[1])]
            promised = min(self.promised)
            if promised < self.out_promised or promised == (-inf if kept else self.out_promised):
                return []
            self.out_promised = promised
            return [C(promised)]
        out = []
        kind, vs, ve, *rest = event
        p = rest[-1]
        for first, last, row in other:
            begin, end = max(vs, first), min(ve, last)
            if row != p or begin > end or (begin == end and "B2" not in self.defects):
                continue
            if kind == "I":
                out.append(I(begin, end, p))
            elif rest[0] < end:
                out.append(R(begin, end, max(rest[0], first), p))
        if kind == "R" and (vs, ve, p) in self.stored[side]:
            self.stored[side].remove((vs, ve, p))
        last = ve if kind == "I" else rest[0]
        needed = last > self.promised[1 - side] or (last == self.promised[1 - side] and "B3" in self.defects)
        if last > vs and needed:
            self.stored[side].append((vs, last, p))
        return out
