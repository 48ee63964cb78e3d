"""The snapshot operator event by event, with lists (digest of Goldstein and Hong, §3.3.4).

`defects` restores single lines of the printed algorithm: the names are those of the list of errata (§8).
"""

from bisect import bisect_left, bisect_right, insort

from tests.references.lifetimes import C, I, R, inf


class Rows:
    """State: the payloads that are true. `results` maps sorted payloads to the rows of the result."""

    def __init__(self, results, payloads=(), *, of_nothing=False) -> None:
        self.results, self.payloads, self.of_nothing = results, list(payloads), of_nothing

    def copy(self):
        return Rows(self.results, self.payloads, of_nothing=self.of_nothing)

    def add(self, payload) -> None:
        insort(self.payloads, payload)

    def remove(self, payload) -> None:
        self.payloads.remove(payload)

    def out(self) -> list:
        return list(self.results(self.payloads)) if self.payloads or self.of_nothing else []


class Entry:
    def __init__(self, state) -> None:
        self.state, self.starts, self.ends = state, 0, 0


class SnapshotTwin:
    def __init__(self, results, variant="PERFECT", *, exact=True, whole=False, defects=()) -> None:
        self.variant, self.exact, self.whole, self.defects = variant, exact, whole, frozenset(defects)
        self.pending = []
        self.promised = -inf
        self.times = [-inf]
        self.entries = {-inf: Entry(Rows(results, of_nothing="A11" in self.defects))}
        self.newest = -inf  # only with the defect A7

    @property
    def last(self):
        return self.newest if "A7" in self.defects else self.times[-1]

    def at_or_before(self, time):
        return self.times[bisect_right(self.times, time) - 1]

    def before(self, time):
        return self.times[bisect_left(self.times, time) - 1]

    def hit(self, first, end):
        place = bisect_right(self.times, first) - 1
        return self.times[place : max(bisect_left(self.times, end), place + 1)]

    def end(self, time):
        if time != self.last and time != self.times[-1]:
            return self.times[bisect_right(self.times, time)]
        return inf if self.variant == "ORDERED" and time < inf else None

    def split(self, time, again=False):
        source = self.at_or_before(time)
        if source == time and not again:
            return False
        self.times.insert(bisect_left(self.times, time), time)
        self.entries[time] = Entry(self.entries[source].state.copy())
        self.newest = max(self.newest, time)
        return True

    def drop(self, time):
        self.times.remove(time)
        del self.entries[time]

    def publish(self, time, out):
        end = self.end(time)
        if end is not None:
            out += [I(time, end, row) for row in self.entries[time].state.out()]

    def cut(self, time, new, out, of=None):
        end = self.end(time)
        if end is not None and max(time, new) < end:
            out += [R(time, end, max(time, new), row) for row in self.entries[of or time].state.out()]

    def drain(self, until, out, at=None, *, strict=False):
        ended = []
        while self.pending and (self.pending[0][0] < until or (self.pending[0][0] == until and not strict)):
            ended.append(self.pending.pop(0))
        edges = [time for time, _, _ in ended] + ([at] if at is not None else [])
        if not edges or min(edges) <= self.last:
            return
        old = self.last
        self.cut(old, min(edges), out)
        for time, _, payload in ended:
            self.split(time, again="A2" in self.defects)
            self.entries[time].state.remove(payload)
            self.entries[time].ends += 1
            if "A1 removal" in self.defects and not self.entries[time].state.payloads:
                self.drop(time)
        if at is not None:
            self.split(at)
        for time in self.hit(old, inf):
            if self.end(time) is None or (time == old and self.variant == "ORDERED") or time == at:
                continue
            self.publish(time, out)

    def insert(self, vs, ve, payload):
        out = []
        if self.variant != "EARLIEST" and vs > self.last:
            self.drain(vs, out, at=vs)
            entry = self.entries[vs]
            entry.starts += 1
            entry.state.add(payload)
            insort(self.pending, (ve, vs, payload))
            self.publish(vs, out)
            return out
        for time in self.hit(vs, ve):
            self.cut(time, vs, out)
        inner = self.variant == "EARLIEST" or ve <= self.last
        self.split(vs)
        self.entries[vs].starts += 1
        fresh = inner and self.split(ve)
        if inner:
            self.entries[ve].ends += 1
        else:
            insort(self.pending, (ve, vs, payload))
        for time in self.hit(vs, ve):
            self.entries[time].state.add(payload)
            self.publish(time, out)
        if fresh and "A1 end" not in self.defects:
            self.publish(ve, out)
        return out

    def retract(self, vs, ve, vnew, payload):
        out = []
        full = vnew == vs
        inner = self.variant == "EARLIEST" or ve <= self.last
        if not inner:
            self.pending.remove((ve, vs, payload))
            if vnew > self.last:
                insort(self.pending, (vnew, vs, payload))
                if "A4" in self.defects:
                    self.entries[self.times[-1]].state.remove(payload)
                return out

        if "A5" in self.defects and vnew <= self.last and vnew not in self.entries:
            raise KeyError(vnew)  # SearchEQ finds no entry

        def dies(time):
            return self.entries[time].starts + self.entries[time].ends == 1

        for time in self.hit(vnew, ve):
            self.cut(time, vnew, out)
        if inner and dies(ve):
            self.cut(ve, ve, out)
        joins = full and self.exact and dies(vs) and "A8" not in self.defects
        if joins:
            before = self.before(vs)
            if "A3" in self.defects:
                end = self.end(before)
                if end is not None:
                    out += [R(before, end, before, row) for row in self.entries[vs].state.out()]
            else:
                self.cut(before, before, out)
        if not full:
            self.split(vnew)
            self.entries[vnew].ends += 1
        for time in self.hit(vnew, ve):
            self.entries[time].state.remove(payload)
        if inner:
            self.entries[ve].ends -= 1
            if self.entries[ve].starts + self.entries[ve].ends == 0:
                self.drop(ve)
        if full and self.exact:
            self.entries[vs].starts -= 1
            if joins:
                self.drop(vs)
        for time in self.hit(vnew, ve):
            self.publish(time, out)
        return out

    def cti(self, t):
        out = []
        if self.variant != "EARLIEST":
            self.drain(t, out, strict="A12" in self.defects)
        while len(self.times) > 1 and self.times[1] < t:
            self.drop(self.times[0])
        first = self.times[0]
        if not self.entries[first].state.out() or "A6" in self.defects:
            promised = t
        elif len(self.times) == 1 and self.variant == "PERFECT":
            promised = first
        elif (
            not self.exact
            or self.whole
            or "A9" in self.defects
            or (len(self.times) > 1 and self.times[1] == t and self.entries[t].ends)
        ):
            promised = t
        else:
            promised = first
        if promised > self.promised:
            self.promised = promised
            out.append(C(promised))
        return out

    def process(self, event):
        return {"I": self.insert, "R": self.retract, "C": self.cti}[event[0]](*event[1:])
