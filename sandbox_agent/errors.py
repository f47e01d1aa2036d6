"""Every error the package raises on purpose.

    SandboxAgentError
    ├── ConfigError                 what the user gave is wrong; exit code 2
    │   ├── PolicyError             a policy file is wrong (carries file and line)
    │   └── RecordError             a session's record cannot be read
    ├── ModelError                  the model did not answer; exit code 6
    │   ├── ModelOverloadedError    passing fault that outlived the retries
    │   ├── ModelRejectedError      the request or the credentials were refused for good
    │   └── ReplayMismatchError     a replayed run differs from its record; exit code 7
    ├── SandboxError                exit code 5
    │   ├── SandboxUnavailableError no engine, no image: nothing was started
    │   ├── SandboxStartError       the container could not be made
    │   └── SandboxDiedError        the container ended under a running session
    ├── WorkspaceError              the folder cannot be used as asked; exit code 2
    └── ToolError                   for the model: what happened and what to try

Only `ToolError` reaches the model. All others end the run with the container removed.
"""

from __future__ import annotations


class SandboxAgentError(Exception):
    """Base of all. `exit_code` is what the command line ends with."""

    exit_code = 1


class ConfigError(SandboxAgentError):
    """What the user gave (option, file, environment) cannot be used. The text says what, where, and what to do."""

    exit_code = 2


class PolicyError(ConfigError):
    """A policy file is wrong. `location` is `file:line` where known."""

    def __init__(self, message: str, *, location: str | None = None) -> None:
        super().__init__(f"{location}: {message}" if location else message)
        self.location = location


class RecordError(ConfigError):
    """The record of a session is gone or unreadable, or something else is in its place; the text says what."""


class WorkspaceError(SandboxAgentError):
    """The folder cannot be used as the workspace, or a host-side file operation in it was refused."""

    exit_code = 2


class ModelError(SandboxAgentError):
    """The model gave no usable answer. `kind` is the API's own error type where there is one."""

    exit_code = 6

    def __init__(self, message: str, *, kind: str | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status


class ModelOverloadedError(ModelError):
    """A passing fault (overload, rate limit, dropped stream) that outlived the bounded retries."""


class ModelRejectedError(ModelError):
    """The request or the credentials were refused; trying again would not help."""


class ReplayMismatchError(ModelError):
    """A replayed run differs from its record. `step` is the first step of the bundle that does, `agent` whose it is,
    `what` names what differs; `recorded` and `replayed` are the two sides, as far as there are any."""

    exit_code = 7

    def __init__(
        self,
        message: str,
        *,
        step: int | None = None,
        agent: str | None = None,
        what: str | None = None,
        recorded: str | None = None,
        replayed: str | None = None,
    ) -> None:
        super().__init__(message)
        self.step = step
        self.agent = agent
        self.what = what
        self.recorded = recorded
        self.replayed = replayed


class SandboxError(SandboxAgentError):
    """The sandbox failed (not the command in it)."""

    exit_code = 5


class SandboxUnavailableError(SandboxError):
    """No usable engine or image. Nothing was started, and nothing was run on the host."""


class SandboxStartError(SandboxError):
    """The engine answers, but the session's container could not be made or started."""


class SandboxDiedError(SandboxError):
    """The container ended while the session was using it. `container_exit_code` and `oom_killed` say why."""

    def __init__(self, message: str, *, container_exit_code: int | None = None, oom_killed: bool = False) -> None:
        super().__init__(message)
        self.container_exit_code = container_exit_code
        self.oom_killed = oom_killed


class ToolError(SandboxAgentError):
    """A tool could not do what was asked. The text goes to the model: say what happened and what to try."""
