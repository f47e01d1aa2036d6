"""A policy that was merged elsewhere, as that of a bundle: whether the administrator's file here bears it.

It has passed by no layer of this machine, so what the administrator forbids and locks is compared with what is in it.
"""

from __future__ import annotations

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.layers import covers
from sandbox_agent.policy.merge import is_looser, shown
from sandbox_agent.policy.policy import SANDBOX_KEYS, Policy


def refuse_looser(policy: Policy, administrators: Policy) -> None:
    """
    Args:
        policy: what somebody else's run went by.
        administrators: see `load.administrators_policy`.

    Raises:
        PolicyError: it lets more happen than the administrator's file does.
    """
    denied = {rule.text for rule in policy.rules.deny}
    asked = {rule.text for rule in policy.rules.ask} | denied
    for kind, rules, there in (
        ("denies", administrators.rules.deny, denied),
        ("asks about", administrators.rules.ask, asked),
    ):
        missing = next((rule for rule in rules if rule.text not in there), None)
        if missing is not None:
            raise PolicyError(f"{missing.location} {kind} {missing.text}, and the policy of the bundle does not")
    for word, location in administrators.locks:
        if word in ("mode", "bypassPermissions") and administrators.loosest_mode is not None:
            _compare("mode", policy.mode, administrators.loosest_mode, location)
        for key, field in SANDBOX_KEYS.items():
            if covers(word, f"sandbox.{key}"):
                ours = getattr(administrators.sandbox, field)
                _compare(f"sandbox.{key}", getattr(policy.sandbox, field), ours, location)


def _compare(key: str, theirs: object, ours: object, location: str) -> None:
    theirs, ours = (list(one) if isinstance(one, tuple) else one for one in (theirs, ours))
    if is_looser(key, theirs, ours):
        words = f"{key} {shown(key, theirs)} of the bundle is looser than {shown(key, ours)}"
        raise PolicyError(f"{words}, which {location} locks")
