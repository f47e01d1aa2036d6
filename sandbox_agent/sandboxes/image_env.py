"""Which variables of an image's own environment do not come into a sandbox: those that would change what our programs
do, or programs that we run by name (bash, git, rg), or where clients look for a proxy.

The rest is the image's business (JAVA_HOME, PYTHONPATH, NODE_OPTIONS): our interpreter does not look at it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

_PREFIXES = (
    "LD_",  # what the loader of every program obeys
    "BASH_",  # a file that each bash reads first, and exported functions
    "GIT_",
    "GLIBC_",
    "MALLOC_",
    "SANDBOX_AGENT",
)
_NAMES = frozenset(
    {
        # shells
        "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "CDPATH", "GLOBIGNORE", "EXECIGNORE", "FIGNORE", "IFS",
        "POSIXLY_CORRECT", "TMOUT", "ZDOTDIR",
        # the C library
        "GCONV_PATH", "LOCPATH", "NLSPATH", "TZDIR", "HOSTALIASES", "RES_OPTIONS", "LOCALDOMAIN", "GETCONF_DIR",
        # programs that ours start
        "RIPGREP_CONFIG_PATH", "GREP_OPTIONS", "GREP_COLOR", "TAR_OPTIONS", "LESSOPEN", "LESSCLOSE",
    }
)  # fmt: skip
_PROXIES = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy", "rsync_proxy", "socks_proxy"})


def unset(names: Iterable[str], ours: Collection[str]) -> list[str]:
    """The names of an image's variables that are taken out, as the create call takes them: without a value. `ours` are
    set to values of ours anyway."""
    return [name for name in dict.fromkeys(names) if name not in ours and _changes_ours(name)]


def _changes_ours(name: str) -> bool:
    return name.startswith(_PREFIXES) or name in _NAMES or name.lower() in _PROXIES
