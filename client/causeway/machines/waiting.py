"""How the workers of a run get their GPUs: all at the same time or none, so that none sits idle waiting for
the others.

Each worker tells the first one whether it is its turn and its GPUs are free. Once all are ready, the first
one leases its own and asks the others to; if one fails, all release what they leased, and keep their places.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping
from typing import Any

from causeway.errors import CausewayError
from causeway.machines import leases, tickets
from causeway.machines.gang import Follower, Leader
from causeway.machines.leases import Gpu, Leases
from causeway.machines.tickets import Ticket

_LOOKS = 2.0
"""Seconds between two checks for free GPUs."""
_TAKES = 60.0
"""Seconds in which all workers have to lease theirs."""


class Turn:
    """A worker's turn."""

    def __init__(self, wanted: Mapping[str, Any], holder: Mapping[str, Any], held: Leases) -> None:
        self.gpus: list[Gpu] = []
        self.ticket = Ticket(holder, wanted)
        self.ticket.draw()
        self._wanted = wanted
        self._holder = {name: holder[name] for name in ("user", "run", "worker", "seconds")}
        self._leases = held
        self._look_at = 0.0
        self.said: dict[str, Any] = {"ready": False, "place": 0, "behind": "", "why": ""}
        """``place`` in the queue, ``behind`` whom, ``why`` it is waiting although it is the first."""

    def look(self) -> bool:
        """Whether its GPUs were free, and it was first in the queue, at the last check. Raises
        CausewayError."""
        if time.monotonic() < self._look_at:
            return bool(self.said["ready"])
        self._look_at = time.monotonic() + _LOOKS
        self.ticket.keep()
        count = self._wanted["count"]
        if not count:
            self.said = {"ready": True, "place": 1, "behind": "", "why": ""}
            return True
        ahead = self.ticket.ahead()
        every = leases.gpus()
        reasons = leases.taken(every, ahead)
        fitting = [gpu for gpu in every if leases.fits(gpu, self._wanted)]
        free = [gpu for gpu in fitting if gpu.uuid not in reasons]
        place, behind = tickets.place(ahead, self._holder["run"])
        why = next((reasons[gpu.uuid] for gpu in fitting if gpu.uuid in reasons), "")
        ready = len(free) >= int(count)
        self.said = {"ready": ready, "place": place, "behind": behind, "why": "" if ready else why}
        return ready

    def take(self) -> bool:
        """Lease them, if that is possible now."""
        run = self._holder["run"]
        ahead = [each for each in self.ticket.ahead() if each["run"] != run]
        holder = {**self._holder, "until": time.time() + self._holder["seconds"]}
        try:
            self.gpus = self._leases.take(self._wanted["count"], self._wanted, holder, ahead)
        except CausewayError:
            self.back()
            return False
        self.ticket.drop()
        return True

    def back(self) -> None:
        """Release them, and return to the place in the queue."""
        self._leases.release()
        self.gpus = []
        self.ticket.draw()
        self._look_at = 0.0


class First:
    """The first worker's part: it asks all."""

    def __init__(self, turn: Turn, leader: Leader, others: Iterable[str]) -> None:
        self._turn = turn
        self._leader = leader
        self._others = frozenset(others)
        self._round = 0
        self._again = 0.0
        self._until: float | None = None
        """Deadline while the others lease theirs."""

    def step(self) -> bool:
        """Do one step; return whether all have their GPUs."""
        now = time.monotonic()
        if self._until is None:
            ready = self._turn.look()
            if now < self._again or not ready or not all(map(self._leader.ready.get, self._others)):
                return False
            if not self._turn.take():
                return False
            self._round += 1
            self._leader.tell(take=self._round)
            self._until = now + _TAKES
        taken = {worker: self._leader.taken.get(worker) for worker in self._others}
        answers = [each[1] for each in taken.values() if each is not None and each[0] == self._round]
        if not all(answers) or now > self._until:
            self._turn.back()
            self._leader.ready.clear()
            self._leader.tell(back=self._round)
            self._until = None
            # Random, so as not to stay in step with another run.
            self._again = now + random.uniform(1, 3)  # noqa: S311
        elif len(answers) == len(self._others):
            self._leader.tell(begin=self._round)
            return True
        return False


class Other:
    """Another worker's part: it follows the first one's orders."""

    def __init__(self, turn: Turn, follower: Follower) -> None:
        self._turn = turn
        self._follower = follower
        self._told: bool | None = None

    def step(self) -> bool:
        """Do one step; return whether all have their GPUs."""
        order = self._follower.order()
        if "begin" in order:
            return True
        if "take" in order:
            self._follower.say(taken=order["take"], ok=self._turn.take())
        elif "back" in order:
            self._turn.back()
            self._told = None
        elif not self._turn.gpus and (ready := self._turn.look()) != self._told:
            self._follower.say(ready=ready)
            self._told = ready
        return False
