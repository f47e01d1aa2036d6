"""For all tests: the same examples every time, so that a red run means a change; `make soak` tries fresh ones."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("fresh", deadline=None, print_blob=True)
settings.load_profile("fresh" if os.environ.get("SANDBOX_AGENT_FRESH_EXAMPLES") else "same")

# A shell starts what runs in its background with SIGINT ignored, and everything that this starts inherits that: the
# tests of Ctrl-C would test nothing there.
signal.signal(signal.SIGINT, signal.default_int_handler)
