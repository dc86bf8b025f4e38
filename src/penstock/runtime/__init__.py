"""Runtime: mailboxes with two lanes, a scheduler with budgets, a clock for tests to turn. Knows no credit."""

from penstock.runtime.clock import Clock, FakeClock, Timer
from penstock.runtime.mailbox import Mailbox, Worker
from penstock.runtime.scheduler import TIMED_EVERY, Scheduler

__all__ = ["TIMED_EVERY", "Clock", "FakeClock", "Mailbox", "Scheduler", "Timer", "Worker"]
