"""Says in the summary when RabbitMQ's half of the everyday tests was not run."""

from __future__ import annotations

import pytest

from tests.everyday.targets import chosen_targets, why_not_rabbitmq


def test_every_test_here_runs_against_rabbitmq_too() -> None:
    reason = why_not_rabbitmq()
    if reason:
        pytest.skip(reason)
    assert "rabbitmq" in chosen_targets()
