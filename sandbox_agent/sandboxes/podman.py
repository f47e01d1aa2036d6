"""What Podman's Docker-compatible socket takes otherwise than a Docker Engine: the create body, put in its terms.

It reads the filter of system calls from a file, and leaves out masked paths unless they are an option: without this a
sandbox would not start, or would show what it must hide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sandbox_agent.errors import SandboxStartError
from sandbox_agent.sandboxes.engine import Engine, own_limit
from sandbox_agent.sandboxes.spec import HOME

_SECCOMP = "seccomp="


def adapt(engine: Engine, body: dict[str, Any], state_dir: str | None) -> None:
    """Change a create body in place.

    Args:
        engine: where the container is to be made.
        body: as for a Docker Engine.
        state_dir: a folder of ours that the engine sees; the filter is put there.

    Raises:
        SandboxStartError: there is none, or it cannot be written.
    """
    if state_dir is None:
        raise SandboxStartError("Podman reads the filter of system calls from a file, and this one sees none of ours")
    config = body["HostConfig"]
    options = []
    for option in config["SecurityOpt"]:
        if option.startswith(_SECCOMP):
            options.append(f"{_SECCOMP}{_written(option.removeprefix(_SECCOMP), state_dir)}")
        else:
            options.append(option.removesuffix(":true"))
    # The list is written with colons, and some folders of devices have one in their name: those stay visible.
    masked = [path for path in config["MaskedPaths"] if ":" not in path]
    config["SecurityOpt"] = [*options, f"mask={':'.join(masked)}"]
    processes = own_limit(engine.endpoint, "Max processes")
    if processes is not None:
        # Its own default is a million, which it may not set where root has not every capability.
        config["Ulimits"] = [*config["Ulimits"], {"Name": "nproc", "Soft": processes, "Hard": processes}]
    # A tmpfs takes the owner and mode of the image's folder below it, which is root's for the home folder.
    body["Env"] = [word.replace(HOME, "/tmp") for word in body["Env"]]
    config["Tmpfs"] = {place: _tmpfs(words) for place, words in config["Tmpfs"].items()}


def _tmpfs(words: str) -> str:
    """It knows neither owner nor number of files."""
    return ",".join(word for word in words.split(",") if word.partition("=")[0] not in ("nr_inodes", "uid", "gid"))


def _written(profile: str, state_dir: str) -> str:
    place = Path(state_dir) / "etc" / "seccomp.json"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(profile)
        place.chmod(0o644)
    except OSError as exc:
        raise SandboxStartError(f"cannot write the sandbox's files to {state_dir}: {exc}") from exc
    return str(place)
