"""Knob: one thing that advice turns on a running broker: a setting of the broker, or the marks of a queue.

A setting is put as it is. Marks are put by a policy of the queue's own, as only one policy counts for a queue: it has
the keys of the one that counts now, and a priority above it. Putting back deletes it, so that what counted before does
again. Upstream: change.py, applied.py.  Downstream: the broker's HTTP API.
Not here: which values (adviser.py), prefetch, which is the client's own matter.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

from penstock.spark.advice.clients import Api, Row, object_of, rows_of
from penstock.spark.complaint import Complaint

STOP, RESUME = "flow-stop-count", "flow-resume-count"
POLICY: Final = "penstock-advice-"  # and the queue's name
AS_DECLARED: Final = "as declared"  # no policy says anything of marks
MARKS: Final = re.compile(r"marks of queue (\S*)(?: in vhost (\S*))?")
NOT_ALLOWED: Final = (401, 403)
MISSING: Final = 404


def marks_of(vhost: str, queue: str) -> str:
    """The knob's name: `marks of queue orders`. Blanks in names are quoted, so that it can be read back."""
    where = "" if vhost == "/" else f" in vhost {_quoted(vhost)}"
    return f"marks of queue {_quoted(queue)}{where}"


def is_marks(name: str) -> bool:
    return MARKS.fullmatch(name) is not None


def queue_of(name: str) -> tuple[str, str]:
    """Vhost and queue of a knob that is marks."""
    found = MARKS.fullmatch(name)
    assert found is not None, name
    return unquote(found[2]) if found[2] is not None else "/", unquote(found[1])


def row_of(name: str, flow: Row) -> Row:
    """The queue of a knob that is marks, as the flow has it; empty where it has done nothing for a while."""
    wanted = queue_of(name)
    marked = [one for one in rows_of(flow.get("stages")) if "watermark" in one]
    return next((one for one in marked if (one.get("vhost"), one.get("name")) == wanted), {})


def saturation_of(api: Api, name: str) -> tuple[bool, int]:
    """Of a knob that is marks: whether its queue is saturated now, and how often it ever was."""
    found = (_queue(api, name) or {}).get("saturation")
    if not isinstance(found, dict):
        return False, 0
    return bool(found.get("saturated")), int(str(found.get("times", 0)))


def value_of(api: Api, name: str) -> str:
    """What it is now; of marks what policies say: `800,700`. Empty: the queue is gone."""
    if not is_marks(name):
        return str(object_of(api.get("settings", name))["value"])
    row = _queue(api, name)
    if row is None:
        return ""
    definition = row.get("effective_policy_definition")
    return _marks_in(definition) if isinstance(definition, dict) else AS_DECLARED


def put(api: Api, name: str, value: str) -> None:
    """Turn it. What the broker refuses is the Api's error; what has no effect is a Complaint."""
    if not is_marks(name):
        api.put("settings", name, body={"value": value})
        return
    vhost, queue = queue_of(name)
    row = _queue(api, name)
    if row is None:
        raise Complaint(f"{name} cannot be set: the queue is gone")
    counts = row.get("policy")
    now = object_of(api.get("policies", vhost, str(counts))) if counts else {}
    priority, definition = now.get("priority", 0), now.get("definition", {})
    assert isinstance(priority, int)
    assert isinstance(definition, dict)
    is_own = not now or counts == POLICY + queue
    marks = dict(zip((STOP, RESUME), (int(mark) for mark in value.split(",")), strict=False))
    try:
        api.put(
            "policies",
            vhost,
            POLICY + queue,
            body={
                "pattern": f"^{re.escape(queue)}$",
                "apply-to": "queues",
                "priority": priority if is_own else priority + 1,
                "definition": {key: old for key, old in definition.items() if key not in (STOP, RESUME)} | marks,
            },
        )
    except Exception as error:
        if _status(error) not in NOT_ALLOWED:
            raise
        raise Complaint(f"{name} cannot be set by a policy: {error}") from None
    found = row_of(name, object_of(api.get("flow"))).get("watermark")
    if isinstance(found, dict):
        counting = f"{found.get('stop_count')},{found.get('resume_count')}"
        if not f"{counting},".startswith(f"{value},"):
            raise Complaint(
                f"{name} cannot be {value}, they are {counting}: of a queue's own arguments and a policy "
                "the smaller one counts"
            )


def put_back(api: Api, name: str, value: str) -> None:
    """What it was. Marks: without the policy, unless that had other marks before."""
    if not is_marks(name):
        put(api, name, value)
        return
    if value_of(api, name) == value:
        return
    vhost, queue = queue_of(name)
    try:
        api.delete("policies", vhost, POLICY + queue)
    except Exception as error:
        if _status(error) != MISSING:
            raise
    if value_of(api, name) not in (value, "") and value != AS_DECLARED:
        put(api, name, value)


def _queue(api: Api, name: str) -> Row | None:
    """None: it is gone."""
    try:
        return object_of(api.get("queues", *queue_of(name)))
    except Exception as error:
        if _status(error) != MISSING:
            raise
        return None


def _marks_in(definition: Row) -> str:
    marks = [str(definition[key]) for key in (STOP, RESUME) if key in definition]
    return ",".join(marks) if STOP in definition else AS_DECLARED


def _status(error: Exception) -> int:
    """HTTP's, if the error has one: which class it is, is the Api's own matter."""
    status = getattr(error, "status", 0)
    return status if isinstance(status, int) else 0


def _quoted(name: str) -> str:
    return re.sub(r"[\s%]", lambda found: quote(found[0], safe=""), name)
