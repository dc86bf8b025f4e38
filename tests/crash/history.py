"""History: what clients did to a broker over all its lives, and what may be found in its queues because of it.

A copy is one message in one queue, named by its publisher and its number. Publishers, consumers and the check after a
restart (load.py, rounds.py) tell the history what they saw; whatever cannot be is a complaint. The rules:

- A persistent message that was confirmed, and that nobody settled since, is there once.
- What was not confirmed, or is transient, may be there; what was settled (acked, rejected) may be there again, because
  an ack is not answered; but once it was looked for and not found, it must never come back.
- What was delivered before, in whatever life, is redelivered. Within a life nothing is delivered while somebody has it.
- Per queue, publisher and priority the numbers rise.
- A message that left its queue for a dead-letter queue is in one of the two.

No I/O, no time, no AMQP: tests/crash/test_history.py feeds it histories that are wrong and sees it complain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

COMPLAINTS_MAX: Final = 20  # in a report: one cause has thousands of consequences

Key = tuple[int, int]  # publisher, number


@dataclass(frozen=True, slots=True)
class Kind:
    """A queue, as far as it decides what may become of its messages."""

    name: str
    arguments: dict[str, str | int | bool] = field(default_factory=dict)
    refuses: bool = False  # a full queue nacks
    drops: bool = False  # messages may leave it without a consumer's ack: expiry, length, consumers without acks
    dead_letters_to: str = ""
    ordered: bool = True  # not where dead letters arrive: their order is that of the rejects


class Found(NamedTuple):
    """A delivery, as the check after a restart saw it."""

    key: Key
    priority: int
    redelivered: bool


class Copy:
    """One message in one queue."""

    __slots__ = (
        "confirmed",
        "delivered",
        "excused",
        "held",
        "most",
        "persistent",
        "priority",
        "rejected",
        "settled_in",
    )

    def __init__(self, persistent: bool, priority: int) -> None:
        self.persistent = persistent
        self.priority = priority
        self.confirmed = False
        self.delivered = False  # somebody saw it
        self.held = False  # somebody has it, unacked
        self.settled_in = 0  # the life in which somebody acked or rejected it, if that may have been done
        self.rejected = False  # and it was a reject
        self.excused = False  # a purge, or a delete that was not answered, may have taken it
        self.most = 1  # how often it may be there; more than once only where dead letters arrive

    def is_owed(self) -> bool:
        return self.confirmed and self.persistent and not self.settled_in and not self.excused

    def __repr__(self) -> str:
        told = [name for name in ("persistent", "confirmed", "delivered", "held", "excused") if getattr(self, name)]
        return f"<Copy {' '.join(told)} priority={self.priority} settled_in={self.settled_in}>"


class Line:
    """The order in which one consumer saw what was delivered for the first time."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: dict[tuple[int, int], int] = {}  # by publisher and priority


class History:
    def __init__(self, kinds: Iterable[Kind], faulty: bool = False) -> None:
        """With a faulty disk any message may be nacked, and then be there or not."""
        self.kinds = {kind.name: kind for kind in kinds}
        self.faulty = faulty
        self.copies: dict[str, dict[Key, Copy]] = {name: {} for name in self.kinds}
        self.under_way: dict[Key, tuple[str, ...]] = {}  # published in this life, no answer yet: to which queues
        self.life = 1
        self.complaints: list[str] = []
        self.counts: Counter[str] = Counter()  # what happened, to see that a run was worth something

    # Publishers. A publish is told before it is sent, an answer when it has arrived.

    def published(self, key: Key, queues: tuple[str, ...], persistent: bool = True, priority: int = 0) -> None:
        self.under_way[key] = queues
        for queue in queues:
            self.copies[queue][key] = Copy(persistent, priority)
            letters = self.kinds[queue].dead_letters_to
            if letters and self.kinds[queue].drops:  # it may leave by itself, in every life once more
                copy = self.copies[letters].setdefault(key, Copy(persistent, 0))
                copy.most = 1 << 30
        self.counts["published"] += 1

    def confirmed(self, key: Key) -> None:
        queues = self.under_way.pop(key, None)
        if queues is None:
            return self.complain(f"{_shown(key)} was confirmed, but nothing of the kind was under way")
        for queue in queues:
            copy = self.copies[queue].get(key)
            if copy is not None:
                copy.confirmed = True
        self.counts["confirmed"] += 1
        return None

    def nacked(self, key: Key) -> None:
        queues = self.under_way.pop(key, None)
        self.counts["nacked"] += 1
        if queues is None:
            return self.complain(f"{_shown(key)} was nacked, but nothing of the kind was under way")
        refusing = [queue for queue in queues if self.kinds[queue].refuses]
        if not refusing and not self.faulty:
            return self.complain(f"{_shown(key)} was nacked, but none of {', '.join(queues)} may refuse")
        if len(queues) == 1 and not self.faulty:  # of several queues the others may have it
            self.copies[queues[0]].pop(key, None)
        return None

    def withdrawn(self, key: Key) -> None:
        """Its transaction was rolled back, or never ended: it is nowhere, and never will be."""
        for queue in self.under_way.pop(key, ()):
            self.copies[queue].pop(key, None)

    # Consumers. A delivery is told when it has arrived, what is done with it before that is sent.

    def delivered(self, queue: str, key: Key, priority: int, redelivered: bool, line: Line) -> None:
        copy = self.copies[queue].get(key)
        where = f"{_shown(key)} in {queue}"
        self.counts["delivered"] += 1
        if copy is None:
            return self.complain(f"{where} was delivered, but it was settled and gone, or never there")
        if copy.held and self.kinds[queue].ordered:
            self.complain(f"{where} was delivered while another consumer has it")
        if copy.settled_in == self.life and copy.most == 1:
            self.complain(f"{where} was delivered after it was acked, without a restart in between")
        self._check_once(where, copy, priority, redelivered)
        if not redelivered and self.kinds[queue].ordered:
            publisher, number = key
            last = line.last.get((publisher, priority), -1)
            if number <= last:
                self.complain(f"{where} was delivered behind {_shown((publisher, last))}, both for the first time")
            line.last[publisher, priority] = number
        copy.delivered = copy.held = True
        return None

    def requeued(self, queue: str, key: Key) -> None:
        copy = self.copies[queue].get(key)
        if copy is not None:
            copy.held = False

    def acked(self, queue: str, key: Key) -> None:
        copy = self.copies[queue].get(key)
        if copy is not None:
            copy.held = copy.rejected = False
            copy.settled_in = self.life
        self.counts["acked"] += 1

    def rejected(self, queue: str, key: Key) -> None:
        """Without requeue: to the dead letters, if the queue has any."""
        self.acked(queue, key)
        letters = self.kinds[queue].dead_letters_to
        copy = self.copies[queue].get(key)
        if letters and copy is not None:
            copy.rejected = True
            letter = self.copies[letters].get(key)
            if letter is None:
                self.copies[letters][key] = Copy(copy.persistent, 0)
            else:
                letter.most += 1  # the first reject was lost in a crash, or both were done
        self.counts["rejected"] += 1

    # Whole queues.

    def excuse(self, queue: str) -> None:
        """A purge or a delete is sent: from now on nothing of it is owed."""
        for copy in self.copies[queue].values():
            copy.excused = True

    def deleted(self, queue: str) -> None:
        """The answer has come: nothing of it may ever be seen again."""
        self.copies[queue].clear()
        self.counts["deleted"] += 1

    # Lives.

    def restarted(self, clean: bool = False) -> None:
        """The broker was killed, or with `clean` stopped after everybody had left: then every ack is done."""
        self.under_way.clear()
        for copies in self.copies.values():
            for copy in copies.values():
                copy.held = False
            if clean:
                for key in [key for key, copy in copies.items() if copy.settled_in and copy.most == 1]:
                    del copies[key]
        self.life += 1

    def check(self, found: dict[str, list[Found]]) -> None:
        """All that is in these queues, in the order of one consumer. What may be gone and is, is gone for good."""
        present: dict[str, Counter[Key]] = {}
        for queue, deliveries in found.items():
            present[queue] = Counter(one.key for one in deliveries)
            self._check_found(queue, deliveries, present[queue])
        for queue in found:
            kind = self.kinds[queue]
            for key, copy in self.copies[queue].items():
                if not present[queue][key]:
                    self._check_missing(kind, key, copy, present)
        for queue in found:
            copies, there = self.copies[queue], present[queue]
            for key in [key for key in copies if not there[key] and not self._may_leave_for(queue, key, present)]:
                del copies[key]

    def missing_letters(self, found: dict[str, list[Found]]) -> bool:
        """Whether something is on its way between a queue and its dead letters: neither here nor there."""
        for kind in self.kinds.values():
            letters = kind.dead_letters_to
            if not letters or kind.name not in found or letters not in found:
                continue
            there = {one.key for one in found[kind.name]} | {one.key for one in found[letters]}
            for key, copy in self.copies[kind.name].items():
                if key not in there and self._must_be_letter(kind, key, copy):
                    return True
        return False

    def _may_leave_for(self, letters: str, key: Key, present: dict[str, Counter[Key]]) -> bool:
        """Whether it is still in a queue that sends its messages there by itself."""
        return any(
            kind.drops and kind.dead_letters_to == letters and present[kind.name][key]
            for kind in self.kinds.values()
            if kind.name in present
        )

    def _check_found(self, queue: str, deliveries: list[Found], there: Counter[Key]) -> None:
        copies, kind = self.copies[queue], self.kinds[queue]
        last: dict[tuple[int, int], int] = {}
        priority_before = 255
        for key, priority, redelivered in deliveries:
            where = f"{_shown(key)} in {queue}"
            copy = copies.get(key)
            if copy is None:
                self.complain(f"{where} is there, but it was settled and gone, or never published")
                continue
            if there[key] > copy.most:
                self.complain(f"{where} is there {there[key]} times, at most {copy.most} can be")
            self._check_once(where, copy, priority, redelivered)
            if kind.ordered:
                publisher, number = key
                before = last.get((publisher, priority), -1)
                if number <= before and there[key] == 1:
                    self.complain(f"{where} is behind {_shown((publisher, before))}")
                last[publisher, priority] = number
                if priority > priority_before:
                    self.complain(f"{where} has priority {priority} and is behind one with {priority_before}")
                priority_before = priority
            # It came from the disk: what was maybe done to it was not, and from now on it is owed.
            copy.delivered = copy.confirmed = True
            copy.settled_in = 0
            copy.rejected = copy.excused = False
        self.counts["found"] += len(deliveries)

    def _check_once(self, where: str, copy: Copy, priority: int, redelivered: bool) -> None:
        if copy.delivered and not redelivered and copy.most == 1:
            how = "acked" if copy.settled_in else "delivered"
            self.complain(f"{where} was {how} before, and comes without the redelivered flag")
        if priority != copy.priority and copy.priority:
            self.complain(f"{where} was published with priority {copy.priority} and comes with {priority}")

    def _check_missing(self, kind: Kind, key: Key, copy: Copy, present: dict[str, Counter[Key]]) -> None:
        where = f"{_shown(key)} in {kind.name}"
        letters = kind.dead_letters_to
        if letters and letters in present and self._must_be_letter(kind, key, copy):
            letter = self.copies[letters].get(key)
            if present[letters][key]:
                assert letter is not None
                letter.confirmed = True  # from now on it is owed there
            else:
                self.complain(f"{where} was confirmed and left for {letters}, where it is not")
        elif copy.is_owed() and not kind.drops:
            self.complain(f"{where} was confirmed and never settled, and is not there")

    def _must_be_letter(self, kind: Kind, key: Key, copy: Copy) -> bool:
        """A copy that is not in its queue any more: whether it must be among the dead letters."""
        if not copy.confirmed or not copy.persistent or copy.excused:
            return False
        if not copy.rejected and (copy.settled_in or not kind.drops):
            return False
        letter = self.copies[kind.dead_letters_to].get(key)
        # One that became a letter twice may have been consumed as such.
        return letter is not None and not letter.settled_in

    def complain(self, text: str) -> None:
        self.complaints.append(f"life {self.life}: {text}")

    def report(self) -> str:
        more = len(self.complaints) - COMPLAINTS_MAX
        lines = self.complaints[:COMPLAINTS_MAX] + ([f"and {more} more"] if more > 0 else [])
        return "\n".join(lines)


def _shown(key: Key) -> str:
    return f"message {key[0]}-{key[1]}"
