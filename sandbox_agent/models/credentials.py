"""Where the Anthropic back end's key and endpoint come from. Imports no SDK, so it can be asked before anything slow.

Only ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN and ANTHROPIC_BASE_URL are read. A value never appears in a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sandbox_agent.errors import ConfigError

KEY_VARIABLE = "ANTHROPIC_API_KEY"
TOKEN_VARIABLE = "ANTHROPIC_AUTH_TOKEN"
URL_VARIABLE = "ANTHROPIC_BASE_URL"
DEFAULT_BASE_URL = "https://api.anthropic.com"

_HEADER_VALUE = re.compile(r"[\x21-\x7e]+\Z")


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """How to reach the API. Exactly one of `api_key` and `auth_token` is set; both stay out of the repr.

    `secret_from` and `base_url_from` name the variable a value came from, or "default".
    """

    api_key: str | None = field(repr=False)
    auth_token: str | None = field(repr=False)
    base_url: str
    secret_from: str
    base_url_from: str

    @property
    def endpoint(self) -> str:
        """The base URL as it may be shown: without user, password and query."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")

    def mask(self, text: str) -> str:
        """`text` without the key, for what the API or a proxy may echo back."""
        secrets = [secret for secret in (self.api_key, self.auth_token, urlsplit(self.base_url).password) if secret]
        for secret in secrets:
            text = text.replace(secret, "[key]")
        return text


def read_access(environ: Mapping[str, str]) -> ApiAccess:
    """The access that the environment gives; the API key wins over the token, as in the SDK.

    Raises:
        ConfigError: neither is set, one cannot be a header value, or the base URL is not one.
    """
    base_url = environ.get(URL_VARIABLE, "").strip()
    if base_url:
        _check_url(base_url)
    for variable in (KEY_VARIABLE, TOKEN_VARIABLE):
        # A trailing line end is what a key pasted from a file has; it would be refused as a header.
        secret = environ.get(variable, "").strip()
        if not secret:
            continue
        if not _HEADER_VALUE.match(secret):
            raise ConfigError(f"{variable} holds a blank or a character that no key has; set it again without it")
        return ApiAccess(
            api_key=secret if variable == KEY_VARIABLE else None,
            auth_token=secret if variable == TOKEN_VARIABLE else None,
            base_url=base_url or DEFAULT_BASE_URL,
            secret_from=variable,
            base_url_from=URL_VARIABLE if base_url else "default",
        )
    raise ConfigError(
        f"no API key: set {KEY_VARIABLE} (or {TOKEN_VARIABLE}); "
        "`--model script:FILE` and `sandbox-agent demo` need no key"
    )


def check_credentials(environ: Mapping[str, str]) -> None:
    """Refuse at once what could not work later.

    Raises:
        ConfigError: as `read_access`.
    """
    read_access(environ)


def _check_url(base_url: str) -> None:
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            f"{URL_VARIABLE} is not a URL such as {DEFAULT_BASE_URL}; it must start with https:// or http://"
        )
