"""Parameters: limits and parameters of a vhost, set and recorded; and how a vhost's records end.

A limit counts for what is opened later. A parameter belongs to a plugin of RabbitMQ's that is not here: it is kept and
exported again, and has no effect.
Place in the chain: definitions.py and admin.py set them; vhost.py and peers.py go by `VHost.limits`.
Not here: policies (policy.py), the limits of users (users.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.ledger import Json
from penstock.broker.records import PARAMETER, VHOST_LIMIT, drop_binding, drop_exchange, limits_body, parameter_body

if TYPE_CHECKING:
    from penstock.broker.vhost import VHost


def put_limits(vhost: VHost, limits: dict[str, int]) -> None:
    """These are the vhost's limits from now on; {} is none."""
    vhost.limits = dict(limits)
    if limits:
        vhost.ledger.put(VHOST_LIMIT, (vhost.name,), limits_body(vhost.name, limits))
    else:
        vhost.ledger.drop(VHOST_LIMIT, (vhost.name,))


def put_parameter(vhost: VHost, component: str, name: str, value: Json) -> None:
    vhost.parameters[component, name] = value
    body = parameter_body(vhost.name, component, name, value)
    vhost.ledger.put(PARAMETER, (vhost.name, component, name), body)


def drop_parameter(vhost: VHost, component: str, name: str) -> bool:
    """False if there is none of this name."""
    if (component, name) not in vhost.parameters:
        return False
    del vhost.parameters[component, name]
    vhost.ledger.drop(PARAMETER, (vhost.name, component, name))
    return True


def drop_records(vhost: VHost) -> None:
    """The vhost is gone, and its queues are: so is the rest of what was recorded of it."""
    for exchange in vhost.exchanges.values():
        drop_exchange(vhost.ledger, vhost.name, exchange)
        for binding in exchange.bindings():
            drop_binding(vhost.ledger, vhost.name, binding)
    for name in list(vhost.policies.user):
        vhost.drop_policy(name)
    for name in list(vhost.policies.operator):
        vhost.drop_policy(name, operator=True)
    for component, name in list(vhost.parameters):
        drop_parameter(vhost, component, name)
    put_limits(vhost, {})
