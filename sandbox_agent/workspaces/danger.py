"""What a changed file could do later on the host, by its name and kind. A list for people, not a barrier."""

from __future__ import annotations

import re

from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.manifest import Entry

_NAMES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (r"(^|/)\.git[^/]*(/|$)", "git reads it: attributes, submodules and filters can run programs"),
        (
            r"(^|/)(\.githooks|\.husky|hooks)/|(^|/)(lefthook|\.?lefthook-local)\.ya?ml$",
            "a hook: git or a tool may run it",
        ),
        (r"(^|/)\.pre-commit-(config|hooks)\.ya?ml$", "pre-commit runs what it names at the next commit"),
        (r"(^|/)\.vscode/", "Visual Studio Code may run its tasks and settings when the folder is opened"),
        (
            r"(^|/)\.idea/|\.code-workspace$|(^|/)\.(vim|nvim)rc$|(^|/)\.exrc$|(^|/)\.zed/",
            "an editor obeys it on opening",
        ),
        (
            r"(^|/)\.(envrc|env|bashrc|profile|zshrc|tool-versions)$|(^|/)(\.?mise)\.toml$",
            "a shell or tool may load it",
        ),
        (r"(^|/)\.(claude|cursor|codex|gemini|aider[^/]*|continue|windsurf|roo)(/|$)", "settings of an AI agent"),
        (r"(^|/)\.?mcp\.json$", "starts MCP servers: programs named in it run on the host"),
        (r"(^|/)(CLAUDE|AGENTS|GEMINI)\.md$|(^|/)\.cursorrules$", "instructions that AI agents follow"),
        (r"(^|/)\.devcontainer(/|\.json$)", "a development container: it can mount the host"),
        (
            r"(^|/)\.(github|gitlab|circleci|buildkite|woodpecker|forgejo|gitea|ci)/|(^|/)\.(gitlab-ci|travis|drone)\.ya?ml$"
            r"|(^|/)(azure-pipelines|appveyor|bitbucket-pipelines)\.ya?ml$|(^|/)Jenkinsfile$",
            "continuous integration runs it, often with secrets",
        ),
        (
            r"(^|/)(package\.json|\.npmrc|\.yarnrc(\.yml)?|\.pnpmfile\.cjs|binding\.gyp)$",
            "npm runs scripts it names on install",
        ),
        (
            r"(^|/)(setup\.py|setup\.cfg|pyproject\.toml|pip\.conf|tox\.ini|noxfile\.py)$",
            "Python builds and tests run it",
        ),
        (r"(^|/)(conftest\.py|sitecustomize\.py|usercustomize\.py)$|\.pth$", "Python runs it without being told to"),
        (
            r"(^|/)(GNUm|M|m)akefile$|\.mk$|(^|/)(justfile|Justfile|Rakefile|Gemfile|Taskfile\.ya?ml|CMakeLists\.txt)$"
            r"|(^|/)(build\.rs|build\.gradle(\.kts)?|gradlew|mvnw|meson\.build|BUILD(\.bazel)?|WORKSPACE)$|(^|/)\.cargo/",
            "a build runs it",
        ),
        (r"(^|/)(Dockerfile[^/]*|Containerfile|(docker-)?compose[^/]*\.ya?ml)$", "builds or starts containers"),
        (r"\.desktop$|(^|/)\.(inputrc|gdbinit|lldbinit|pythonrc|Rprofile)$", "a desktop or debugger obeys it"),
    )
)


def danger_of(path: str, before: Entry | None, after: Entry | None, *, bare_repository: bool) -> str | None:
    """One line of reasons, None if nothing is known against it. Removing something is never on the list."""
    if after is None:
        return None
    reasons = []
    if after.kind is Kind.LINK:
        inside = after.target is not None and not after.target.startswith("/") and ".." not in after.target.split("/")
        reasons.append(f"a link to {after.target}" + ("" if inside else ", which may lead out of the folder"))
    if after.kind is Kind.OTHER:
        reasons.append("a FIFO or socket: whoever reads it may wait without end")
    if after.executable:
        reasons.append("executable" if before is None or not before.executable else "an executable was changed")
    reasons += [reason for pattern, reason in _NAMES if pattern.search(path)]
    if bare_repository:
        reasons.append("its folder looks like a bare git repository: git started there obeys its config")
    return "; ".join(reasons) or None
