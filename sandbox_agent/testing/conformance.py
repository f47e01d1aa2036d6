"""The behaviours every sandbox back end must show, as named checks that any test can run on it.

The list follows Inspect AI's public self-check of sandbox providers, and adds what our contract says beyond it.
`sandbox_conformance` runs them all; pytest users parametrise over `checks(...)` and see each by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager

from sandbox_agent.sandboxes.base import Sandbox
from sandbox_agent.testing import (
    conformance_exec,
    conformance_files,
    conformance_live,
    conformance_paths,
    conformance_processes,
    conformance_streams,
)
from sandbox_agent.testing.conformance_check import Check, Need

CHECKS: tuple[Check, ...] = (
    *conformance_exec.CHECKS,
    *conformance_live.CHECKS,
    *conformance_processes.CHECKS,
    *conformance_files.CHECKS,
    *conformance_paths.CHECKS,
    *conformance_streams.CHECKS,
)


def checks(*, without: Collection[Need] = ()) -> list[Check]:
    """All checks, less those that need what a back end says it does not have."""
    return [check for check in CHECKS if not check.needs & frozenset(without)]


async def sandbox_conformance(
    make_sandbox: Callable[[], AbstractAsyncContextManager[Sandbox]], *, without: Collection[Need] = ()
) -> None:
    """Run every check on one started sandbox.

    Raises:
        ExceptionGroup: of the AssertionErrors of the checks that failed, each noted with its name.
    """
    failures: list[AssertionError] = []
    async with make_sandbox() as sandbox:
        for check in checks(without=without):
            try:
                await check.run(sandbox)
            except AssertionError as exc:
                exc.add_note(f"in the check {check.name}")
                failures.append(exc)
    if failures:
        raise ExceptionGroup("the sandbox does not conform", failures)
