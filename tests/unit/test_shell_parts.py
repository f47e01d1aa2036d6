"""The pieces of the shell judge by themselves: words, little languages, what a pattern could reach."""

from __future__ import annotations

import pytest
from policy_desk import bash, policy

from sandbox_agent.policy.paths import parse_path_pattern
from sandbox_agent.policy.reach import glob_may_reach, search_may_reach
from sandbox_agent.policy.shell import analyse
from sandbox_agent.policy.shell.scripts import harmless
from sandbox_agent.types import PathAccess, Verdict


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("a  'b c'\td", ["a", "b c", "d"]),
        ('a "b\\$c" "d\\e" \'f\\g\'', ["a", "b$c", "d\\e", "f\\g"]),
        ("a b\\\nc \\d", ["a", "bc", "d"]),
        ("a $'b\\tc\\101\\x41\\u00e9\\cA\\'\\q'", ["a", "b\tcAA\u00e9\x01'\\q"]),
        ("a $'b\\0c' $'\\U0001F600'", ["a", "b", "\U0001f600"]),
        ("a ~ ~/b 'c'~", ["a", "/home/agent", "/home/agent/b", "c~"]),
        ("a {} b{1}c x@{1}", ["a", "{}", "b{1}c", "x@{1}"]),
        ("a '*' \\? \"[x]\"", ["a", "*", "?", "[x]"]),
        ("[ a ]", ["[", "a", "]"]),
        ("a ''", ["a", ""]),
    ],
)
def test_static_words_are_what_bash_makes_of_them(command: str, words: list[str]) -> None:
    """Quotes, escapes, ANSI-C text, tilde; nothing is expanded that bash would not."""
    (part,) = analyse(command).commands
    assert part.static_words == tuple(words)


@pytest.mark.parametrize(
    ("language", "script", "safe"),
    [
        ("sed", "1,5p", True),
        ("sed", "$!N;P;D", True),
        ("sed", "/a/,/b/{s/x/y/gI;p}", True),
        ("sed", "y/abc/xyz/", True),
        ("sed", "s,a\\,b,c,2p", True),
        ("sed", "s/[abc]/x/", True),
        ("sed", "s/[^]a]/x/", True),
        ("sed", "5q", True),
        ("sed", "", True),
        ("sed", "s/[/]/x/", False),
        ("sed", "s/[a/x/", False),
        ("sed", "s/a", False),
        ("sed", "s\na\nb\n", False),
        ("sed", "s", False),
        ("sed", "s/a/b/w f", False),
        ("sed", "s/a/b/ge", False),
        ("sed", "s/a/b/;e", False),
        ("sed", "1e id", False),
        ("sed", "a text", False),
        ("sed", "r f", False),
        ("sed", "W f", False),
        ("sed", "p" * 5000, False),
        ("awk", "{print $1, $NF}", True),
        ("awk", "NR>=3 || /x/", True),
        ("awk", '{print "a | b > c"}', True),
        ("awk", "NR>3", True),
        ("awk", "$1 > 3 {print $2}", True),
        ("awk", "{if ($1 > 3) print $2; else x = $1 > 2}", True),
        ("awk", "{print ($1 > 3)}", True),
        ("awk", "{print $1 > $2}", False),
        ("awk", "{print ($1) > $2}", False),
        ("awk", "{if ($1 > 3) print > f}", False),
        ("awk", "{for (print > f; 0;);}", False),
        ("awk", "{print $1,\n$2 > f}", False),
        ("awk", "{print $1, # ;\n$2 > f}", False),
        ("awk", "/a/ {print $1 > f}", False),
        ("awk", 'BEGIN{system ("id")}', False),
        ("awk", '{print | "sh"}', False),
        ("awk", '{print "a" > "/tmp/x"}', False),
        ("awk", "{getline x < f}", False),
        ("awk", "@include \"x\"", False),
        ("awk", "{@f()}", False),
    ],
)  # fmt: skip
def test_little_programs_are_harmless_only_if_known(language: str, script: str, safe: bool) -> None:
    """sed by a list of known commands, awk by the absence of all that leaves it."""
    assert harmless(language, script) is safe


@pytest.mark.parametrize(
    ("pattern", "glob", "reaches"),
    [
        (".env", "/workspace/.e*", True),
        (".env", "/workspace/*", False),
        (".env", "/workspace/?env", False),
        (".env", "/workspace/[.]env", False),
        (".env", "/workspace/.[de]nv", True),
        (".env", "/workspace/.en", False),
        ("*.pem", "/workspace/a/*", True),
        ("*.pem", "/workspace/*.p[ey]m", True),
        ("*.pem", "/workspace/*.py", False),
        ("/secrets/**", "/workspace/s*/a", True),
        ("/secrets/**", "/workspace/src/*", False),
        ("/secrets/key", "/workspace/*", False),
        ("/secrets/key", "/workspace/*/k*", True),
        ("/secrets/**", "/workspace/a/../*/b", True),
        ("~/.ssh/**", "/home/*/.ssh/id", True),
        ("~/.ssh/**", "/workspace/*", False),
        ("//etc/shadow", "/etc/sh*", True),
        ("//etc/shadow", "/etc/p*", False),
        ("a\\*b", "/workspace/a\\*b*", True),
    ],
)
def test_a_shell_pattern_is_apart_only_if_surely_so(pattern: str, glob: str, reaches: bool) -> None:
    """Without dotglob a leading star covers no dot; brackets count as any character."""
    assert glob_may_reach(parse_path_pattern(pattern), glob) is reaches


@pytest.mark.parametrize(
    ("pattern", "folder", "skips_hidden", "reaches"),
    [
        (".env", "/workspace/src", False, True),
        (".env", "/workspace/src", True, False),
        ("/secrets/**", "/workspace", True, True),
        ("/secrets/**", "/workspace/secrets/a", False, True),
        ("/secrets/**", "/workspace/src", False, False),
        ("/a/**/b", "/workspace/a/x", False, True),
        ("/*/key", "/workspace/any", False, True),
        ("~/.ssh/**", "/", False, True),
        ("~/.ssh/**", "/workspace", False, False),
    ],
)
def test_a_search_is_apart_only_if_surely_so(pattern: str, folder: str, skips_hidden: bool, reaches: bool) -> None:
    """Below the folder and above it; names with a dot count unless they are skipped."""
    assert search_may_reach(parse_path_pattern(pattern), folder, skips_hidden=skips_hidden) is reaches


def test_accesses_name_what_a_command_reads_and_writes() -> None:
    """Absolute, by kind, from every folder a `cd` leads to; what no path can be is left out."""
    found = set(analyse("cd sub; sort a <b >c; dd of=d; cat $'\\xff' ''").accesses("/workspace"))
    for folder in ("/workspace", "/workspace/sub"):
        assert {
            PathAccess(f"{folder}/{name}", write) for name, write in [("a", False), ("b", False), ("c", True)]
        } <= found
        assert PathAccess(f"{folder}/d", True) in found
    assert not any("\udcff" in access.path for access in found)


@pytest.mark.parametrize(
    "command", ["dd if=a of=.git/config", "cp a .envrc", "sort a > $'\\xff'", "touch ./.huskyrc .husky/x"]
)
def test_protected_and_nameless_files_are_never_written_unasked(command: str) -> None:
    """Even where the program has a rule."""
    allowing = policy(allow=[f"Bash({name}:*)" for name in ("dd", "cp", "sort", "touch")])
    assert bash(allowing, command).verdict is Verdict.ASK
