"""Paging: which of a queue's messages are in RAM, so that memory is bounded whatever the backlog.

A message is in RAM with its body; or its position only is, with the body on disk; or it is on disk only, and a range of
positions is all that RAM has of it. What is persistent is on disk already and leaves RAM for nothing; what is not is
written to the pages first. Consumers are served from the front, so the far end goes first, and the front is read back
ahead of them.
Place in the chain: inside queue.py, which calls `look` at the end of every turn. Downstream: store/pager.py.
Not here: how many must go (quota.py), order (backlog.py), files (store/).
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.amqp.decoder import Message
from penstock.broker.backlog import AWAY, Backlog, Run, counted, is_away
from penstock.broker.casts import Get, answer_as_deleted
from penstock.broker.memory import SMALL_BYTES, Memory
from penstock.broker.quota import MESSAGE_BYTES, quota, shares, target_count
from penstock.broker.shelves import NS_PER_MS, Dead
from penstock.runtime import Timer
from penstock.store.log import LEVEL_END, LEVEL_SHIFT, Spot, adjoining, first_of
from penstock.store.pager import Fetch, Found, Page
from penstock.store.ranges import overlaps
from penstock.store.record import PAGES, Range, encode_batch

if TYPE_CHECKING:
    from penstock.broker.queue import Queue

FETCH_BYTES: Final = 262_144  # read back in one go: some hundred microseconds
FETCH_AHEAD: Final = 2000  # messages in RAM at the front below which more are read back
PAGE_BYTES: Final = 262_144  # written to the pages in one go
RETRY_S: Final = 1.0  # until a read that the disk refused is tried again
AWAY_MAX: Final = 256  # single messages asked for in one go


class Paging:
    __slots__ = (
        "_fetch",
        "_gets",
        "_later",
        "_leaving",
        "_memory",
        "_observation",
        "_pages",
        "_queue",
        "_ready_before",
        "_retry",
        "_scarce_target",
        "_short",
        "_unacked_before",
        "away",
        "used_bytes",
    )

    def __init__(self, queue: Queue, memory: Memory) -> None:
        self._queue = queue
        self._memory = memory
        self._retry: Timer | None = None  # the disk could not be read
        self._pages: list[Spot] = []  # of this queue, in order of position
        self._fetch: Fetch | None = None
        self._gets: list[Get] = []  # wait for the first message to be read back
        self._later: list[tuple[Dead, str]] = []  # dead letters whose bodies are on disk
        # By first position: on their way to the pages, with their deadlines in ns.
        self._leaving: dict[int, tuple[list[Message], list[int] | None]] = {}
        self._short = False  # of store credit: there is more to page out
        self._ready_before = 0
        self._unacked_before = 0
        self._observation = 0
        self._scarce_target = 0
        self.away: set[int] = set()  # unacked positions whose bodies are on disk only
        self.used_bytes = 0
        memory.pagings[self] = None

    def wake(self) -> None:
        self._queue.mailbox.wake()

    def look(self) -> None:
        """The queue's turn ends: count what it has in RAM; page out if that is too much, in if the front is on disk."""
        memory = self._memory
        used = self._measure()
        memory.used_bytes += used - self.used_bytes
        self.used_bytes = used
        if self._queue.options.lazy and used and not self._queue.subscribers.count:
            self.reduce(0, transient=False)
        elif used > SMALL_BYTES and (memory.used_bytes > memory.cache_bytes or memory.scarce < 1.0):
            self._reduce()
            memory.press()
        if self._fetch is None:
            self._fetch_ahead()

    def _measure(self) -> int:
        queue = self._queue
        count = size = 0
        for backlog in queue.shelves.levels:
            count += len(backlog.ready) + len(backlog.fresh)
            size += backlog.ready_bytes + backlog.fresh_bytes
        unacked = len(queue.unacked) - len(self.away)
        if not unacked:
            return size + count * MESSAGE_BYTES
        # How large unacked ones are is not counted, as it would cost time for each; they are like the others.
        average = size // count if count else self.used_bytes // max(1, unacked) - MESSAGE_BYTES
        return size + count * MESSAGE_BYTES + unacked * (max(average, 0) + MESSAGE_BYTES)

    # Out.

    def _reduce(self) -> None:
        memory = self._memory
        in_ram = self._ready_count() + len(self._queue.unacked) - len(self.away)
        target = target_count(in_ram, memory.used_bytes, memory.cache_bytes)
        if memory.scarce < 1.0:
            if self._observation != memory.observations:  # a share once, not of what is left at every turn
                self._observation = memory.observations
                self._scarce_target = int(in_ram * memory.scarce)
            target = min(target, self._scarce_target)
        self.reduce(target, memory.scarce < 1.0)

    def _ready_count(self) -> int:
        return sum(len(backlog.ready) + len(backlog.fresh) for backlog in self._queue.shelves.levels)

    def reduce(self, target: int, transient: bool) -> int:
        """Page out until about so many messages stay in RAM; how many left. Those on no disk yet only if told so."""
        ready, unacked = self._ready_count(), len(self._queue.unacked) - len(self.away)
        from_ready, from_unacked = shares(
            quota(ready, unacked, target), ready, unacked, ready - self._ready_before, unacked - self._unacked_before
        )
        self._ready_before, self._unacked_before = ready, unacked
        left = self._page_out_unacked(from_unacked) if from_unacked else 0
        for backlog in self._queue.shelves.levels:  # the lowest priority waits longest
            if from_ready <= 0:
                break
            gone = self._page_out_kept(backlog, from_ready)
            if transient and gone < from_ready:
                gone += self._page_out_transient(backlog, from_ready - gone)
            from_ready -= gone
            left += gone
        return self._memory.moved(self._queue.name, left, 0)

    def _page_out_kept(self, backlog: Backlog, count: int) -> int:
        """Let go of bodies that are on disk anyway."""
        keeping = self._queue.keeping
        if keeping is None or keeping.mixed:
            return 0
        synced = keeping.log.end(backlog.head >> LEVEL_SHIFT)
        gone = 0
        if backlog.fresh:
            _, taken, _ = backlog.page_out_fresh(min(count, synced - backlog.end + len(backlog.fresh)))
            gone = len(taken)
        if gone < count and self._fetch is None:  # or it would come back in the wrong place
            _, taken, _ = backlog.page_out(count - gone, synced)
            gone += len(taken)
        return gone

    def _page_out_transient(self, backlog: Backlog, count: int) -> int:
        """Write the far end to the pages; large bodies as far as store credit goes."""
        store = self._memory.store
        link = store.link(self._queue)
        gone = 0
        while gone < count:
            some, size = (backlog.fresh, backlog.fresh_bytes) if backlog.fresh else (backlog.ready, backlog.ready_bytes)
            average = size // max(1, len(some))
            part = min(count - gone, PAGE_BYTES // max(1, average) + 1)
            is_large = average >= store.embed_below
            if is_large and part > link.room():
                part = link.room()
                self._short = True
            if backlog.fresh:
                first, messages, runs = backlog.page_out_fresh(part)
            elif self._fetch is None:
                first, messages, runs = backlog.page_out(part, backlog.end)
            else:
                break  # it would come back in the wrong place
            if not messages:
                break
            gone += len(messages)
            if is_large:
                link.spend(len(messages), sum(len(wire) for _, wire in messages))
            self._write(first, messages, runs, is_large)
        return gone

    def _write(self, first: int, messages: list[Message], runs: list[Run], is_large: bool) -> None:
        deadlines: list[int] | None = None
        if runs:
            deadlines = [0] * len(messages)
            for start, end, deadline in runs:
                deadlines[start - first : end - first] = [deadline] * (end - start)
        self._leaving[first] = messages, deadlines
        origins = [(1, publish.origin()) for publish, _ in messages]
        contents = [wire for _, wire in messages]
        record = encode_batch(0, first, origins, contents, (), self._wall(deadlines))
        size = sum(map(len, contents)) if is_large else 0
        self._memory.pager.page_out(Page(self, first, len(messages), record, size))

    def _wall(self, deadlines: list[int] | None) -> list[int] | None:
        """In milliseconds since 1970, as they are written."""
        if deadlines is None:
            return None
        ahead_ms = int(time.time() * 1000) - self._queue.mailbox.scheduler.clock.now_ns() // NS_PER_MS
        return [max(1, deadline // NS_PER_MS + ahead_ms) if deadline else 0 for deadline in deadlines]

    def paged_out(self, page: Page) -> None:
        """From the pager."""
        queue = self._queue
        if page.spent_bytes and not queue.deleted:
            self._memory.store.link(queue).handle(page.count, page.spent_bytes)
            if self._short:
                self._short = False
                self.wake()
        leaving = self._leaving.get(page.first)
        if page.file is None:
            # The disk is in trouble: they stay in RAM, as if they were still on their way, and are tried again.
            if leaving is not None and not queue.deleted:
                clock = queue.mailbox.scheduler.clock
                clock.call_later(RETRY_S, partial(self._memory.pager.page_out, page))
            return
        if leaving is None or len(leaving[0]) != page.count:  # taken back, or not wanted any more
            self._memory.pager.release(page.file, page.count)
            return
        del self._leaving[page.first]
        insort(self._pages, Spot(page.file, page.first, page.count, page.offset, page.size), key=_first)

    def _page_out_unacked(self, count: int) -> int:
        """Let go of bodies of unacked messages that are on disk."""
        queue = self._queue
        keeping = queue.keeping
        if keeping is None or keeping.mixed:
            return 0
        chosen: list[int] = []
        count = min(count, len(queue.unacked) - len(self.away))
        ends = [keeping.log.end(level) for level in range(len(queue.shelves.levels))]
        for position in reversed(queue.unacked):  # the newest first: those before them may be away already
            if len(chosen) >= count:
                break
            if position not in self.away and position < ends[position >> LEVEL_SHIFT]:
                chosen.append(position)
        queue.unacked.update(dict.fromkeys(chosen, AWAY))
        self.away.update(chosen)
        return len(chosen)

    def settled(self, positions: Sequence[int]) -> None:
        """These are not unacked any more."""
        self.away.difference_update(positions)

    # In.

    def fetch_for(self, item: Get) -> bool:
        """A basic.get found nothing in RAM: True if there is something on disk, and the get waits for it."""
        backlog = self._queue.shelves.front()
        if not backlog.paged_count and not backlog.returned:
            return False
        if self._fetch is None:
            self._fetch_front(backlog)
        if self._fetch is None:  # it was still on its way to the disk, or nothing is there
            self._queue.mailbox.ordinary.appendleft(item)
            return True
        self._gets.append(item)
        self._queue.mailbox.hold()  # what comes behind it waits, as it would have without paging
        return True

    def _serve_gets(self) -> None:
        """They try again."""
        gets, self._gets = self._gets, []
        self._queue.mailbox.ordinary.extendleft(reversed(gets))
        for _ in gets:
            self._queue.mailbox.release()

    def _fetch_ahead(self) -> None:
        if self._later:
            positions, messages = self._later[0][0]
            away = [position for position, message in zip(positions, messages, strict=True) if is_away(message)]
            self._fetch_positions(sorted(away)[:AWAY_MAX])
            return
        backlog = self._queue.shelves.front()
        if backlog.returned:
            if is_away(backlog.returned[0][1]):
                self._fetch_front(backlog)
        elif (
            backlog.paged_count
            and len(backlog.ready) < FETCH_AHEAD
            and (self._queue.subscribers.count or not backlog.ready)
        ):
            self._fetch_front(backlog)

    def _fetch_front(self, backlog: Backlog) -> None:
        """Ask for the first messages of this backlog, which are on disk."""
        if backlog.returned:
            away = sorted(position for position, message in backlog.returned if is_away(message))
            self._fetch_positions(away[:AWAY_MAX])
            return
        while backlog.paged:
            first, end = backlog.paged[0]
            leaving = self._leaving.pop(first, None)
            if leaving is not None:  # not gone yet
                messages, deadlines = leaving
                backlog.page_in(first, messages, deadlines)
                backlog.paged_in(first + len(messages))
                self.wake()
                return
            spots, stop = self._spots(first, end)
            if spots:
                self._ask(spots, overlaps(first, stop, backlog.paged), [])
                return
            backlog.paged_in(min(end, stop))  # nothing of it is there

    def _fetch_positions(self, positions: Sequence[int]) -> None:
        keeping = self._queue.keeping
        spots: dict[tuple[int, int], Spot] = {}
        if keeping is not None:  # only what is kept is ever away
            for position in positions:
                spots |= {(spot.file.number, spot.offset): spot for spot in keeping.log.spots(position, position + 1)}
        wanted = [(position, position + 1) for position in sorted(positions)]
        self._ask(sorted(spots.values(), key=_first), wanted, positions)

    def _ask(self, spots: list[Spot], wanted: list[Range], positions: Sequence[int]) -> None:
        self._fetch = Fetch(self, spots, wanted, positions)
        self._memory.pager.fetch(self._fetch)

    def _spots(self, first: int, end: int) -> tuple[list[Spot], int]:
        """The first batches of this range, all in the pages or all in the log, and up to where they have everything.
        One in the pages is read as a whole, also if the log has some of it: the rest would overlap what is written
        next."""
        bytes_max = FETCH_BYTES if self._queue.subscribers.count else 1
        pages, at = self._pages, bisect_left(self._pages, first, key=_end)
        stop = min((other for other in self._leaving if first < other), default=LEVEL_END << LEVEL_SHIFT)
        if at < len(pages) and pages[at].first <= first:
            spots = first_of(adjoining(pages, at), bytes_max)
        else:
            if at < len(pages):
                stop = min(stop, pages[at].first)
            keeping = self._queue.keeping
            spots = first_of(keeping.log.spots(first, min(end, stop)), bytes_max) if keeping is not None else []
        return spots, min(stop, _end(spots[-1]) + 1) if spots else stop

    def fetched(self, fetch: Fetch) -> None:
        """From the pager."""
        if fetch is not self._fetch:
            return  # the queue was purged or deleted in the meantime
        self._fetch = None
        queue = self._queue
        where = f"queue '{queue.queue_name}' in vhost '{queue.vhost_name}'"
        for damage in fetch.damages:
            self._memory.report(f"{where}: {damage}; the message is lost")
        if fetch.trouble:
            self._memory.report(f"{where}: {fetch.trouble}; it is tried again")
            self._fetch = fetch  # nothing else is asked for meanwhile
            clock = queue.mailbox.scheduler.clock
            self._retry = clock.call_later(RETRY_S, self._ask_again)
            return
        if not fetch.stale:
            if fetch.positions:
                self._fill(fetch)
            else:
                self._page_in(fetch)
        self._serve_gets()
        self.wake()

    def _ask_again(self) -> None:
        self._retry = None
        self._fetch = None
        self._serve_gets()
        self.wake()

    def _page_in(self, fetch: Fetch) -> None:
        """The front of a backlog."""
        backlog = self._queue.shelves.levels[fetch.spots[0].first >> LEVEL_SHIFT]
        upto = min(fetch.end, fetch.wanted[-1][1])  # more may have been paged out behind it since it was asked for
        for spot, found in zip(fetch.spots, fetch.found, strict=False):
            stop = min(spot.first + spot.count, upto)
            for first, end in overlaps(spot.first, stop, fetch.wanted):
                if found is not None:
                    self._enter(backlog, found, first, end)
            self._release(spot, stop)
        backlog.paged_in(upto)

    def _enter(self, backlog: Backlog, found: Found, first: int, end: int) -> None:
        messages = self._memory.messages(found, first, end, self._queue.name)
        deadlines = self._deadlines(found, first, end)
        if deadlines is not None:
            self._queue.shelves.timed = True
        start = 0
        if messages and all(found.contents):  # as nearly always, none is damaged
            backlog.page_in(first, messages, deadlines)
            start = len(messages)
        for at in range(start, len(messages) + 1):
            if at < len(messages) and not is_away(messages[at]):
                continue
            if at > start:  # those that are damaged are left out
                some = deadlines[start:at] if deadlines is not None else None
                backlog.page_in(first + start, messages[start:at], some)
            start = at + 1

    def _deadlines(self, found: Found, first: int, end: int) -> list[int] | None:
        """On our clock; 0 is never."""
        if found.deadlines is None:
            return None
        now_ns, now_ms = self._queue.mailbox.scheduler.clock.now_ns(), int(time.time() * 1000)
        return [
            max(1, now_ns + (deadline - now_ms) * NS_PER_MS) if deadline else 0
            for deadline in found.deadlines[first - found.first : end - found.first]
        ]

    def _release(self, spot: Spot, stop: int) -> None:
        """A batch in the pages is read once: what is in RAM again is not wanted there."""
        if stop == spot.first + spot.count and spot.file.kind == PAGES:
            self._pages.remove(spot)
            self._memory.pager.release(spot.file, spot.count)

    def _fill(self, fetch: Fetch) -> None:
        """Single messages that had left RAM while they were unacked."""
        wanted = set(fetch.positions)
        if fetch.spots and fetch.end < fetch.spots[-1].first + fetch.spots[-1].count:  # there was too much to read
            wanted = {position for position in wanted if position < fetch.end}
        loaded: dict[int, Message] = {}
        for spot, found in zip(fetch.spots, fetch.found, strict=False):
            if found is None:
                continue
            for at, message in enumerate(self._memory.messages(found, spot.first, spot.first + len(found.contents))):
                if spot.first + at in wanted and not is_away(message):
                    returns = self._queue.shelves.returns.get(spot.first + at, 0)
                    loaded[spot.first + at] = counted(message, returns) if returns else message
        lost = wanted - loaded.keys()
        for backlog in self._queue.shelves.levels:
            if backlog.returned:
                backlog.fill(loaded, lost)
        while self._later and self._bury(loaded, lost):
            pass

    def _bury(self, loaded: dict[int, Message], lost: set[int]) -> bool:
        """Send the first of those that are given up later on their way, if all of it is here."""
        (positions, messages), reason = self._later[0]
        pairs = [
            (position, loaded.get(position, message))
            for position, message in zip(positions, messages, strict=True)
            if position not in lost
        ]
        dead = [position for position, _ in pairs], [message for _, message in pairs]
        if any(map(is_away, dead[1])):
            self._later[0] = dead, reason
            return False
        del self._later[0]
        if self._queue.keeping is not None:
            self._queue.keeping.buried([position for position in positions if position in lost])
        self._queue.bury(dead, reason)
        return True

    def gives_up_later(self, dead: Dead, reason: str) -> bool:
        """Dead letters: False if they can be buried at once. Later, if some of them, or of those that came before, have
        their bodies on disk only."""
        if not self._later and not any(map(is_away, dead[1])):
            return False
        if self._queue.keeping is not None:
            self._queue.keeping.bury(dead[0])
        self._later.append((dead, reason))
        self.wake()
        return True

    # The end.

    def clear(self) -> None:
        """All that is ready is dropped."""
        if self._fetch is not None and not self._fetch.positions:
            self._fetch = None
            if self._retry is not None:
                self._retry.cancel()
                self._retry = None
        self._serve_gets()
        for spot in self._pages:
            self._memory.pager.release(spot.file, spot.count)
        self._pages.clear()
        self._leaving.clear()

    def end(self) -> None:
        """The queue is deleted."""
        for item in self._gets:
            answer_as_deleted(self._queue.queue_name, self._queue.vhost_name, item)
        self._gets.clear()
        self.clear()
        self._fetch = None
        if self._retry is not None:
            self._retry.cancel()
        self._later.clear()
        self._memory.pagings.pop(self, None)
        self._memory.used_bytes -= self.used_bytes
        self.used_bytes = 0

    def __repr__(self) -> str:
        return f"<Paging {self._queue.queue_name} used_bytes={self.used_bytes} fetching={self._fetch is not None}>"


def _first(spot: Spot) -> int:
    return spot.first


def _end(spot: Spot) -> int:
    """The last position: bisect_left finds with it the first batch that has this one or a later one."""
    return spot.first + spot.count - 1
