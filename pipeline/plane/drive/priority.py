"""Where the plane's threads stand among the machine's threads."""

from __future__ import annotations

import os
import threading
from enum import Enum
from typing import Final

NICE: Final = -10
REAL_TIME: Final = 1
"""Of SCHED_RR: before every ordinary thread is enough."""


class Priority(Enum):
    """How the scheduler treats a thread: before all ordinary ones, before some, or as any other."""

    REAL_TIME = "SCHED_RR"
    NICE = "nice"
    ORDINARY = "ordinary"


def raised() -> Priority:
    """Puts the calling thread, which takes a twentieth of a core, before threads that may keep one busy, as
    far as that is allowed (RLIMIT_RTPRIO, RLIMIT_NICE, CAP_SYS_NICE). What it got."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(REAL_TIME))
    except (OSError, AttributeError):  # not allowed, or not Linux
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        except OSError:
            return Priority.ORDINARY
        return Priority.NICE
    return Priority.REAL_TIME
