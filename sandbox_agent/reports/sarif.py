"""SARIF 2.1.0: what the model reported with ReportFindings, for code scanning pages."""

from __future__ import annotations

import hashlib
import json
import re
import time
from urllib.parse import quote

from sandbox_agent import __version__
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.reports.findings import Finding, find
from sandbox_agent.reports.story import Story
from sandbox_agent.types import JsonObject

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_NO_WORD = re.compile(r"[^a-z0-9]+")
_RANKS = {"critical": 100.0, "high": 80.0, "medium": 50.0, "low": 20.0, "info": 5.0}
_BROKEN_OFF = frozenset(
    {"sandbox_error", "model_error", "config_error", "replay_mismatch", "interrupted", "terminated", "unfinished"}
)


def render(story: Story) -> str:
    """The report as JSON. A session without findings has a run without results, which says that nothing was found."""
    found = find(story)
    rules = list(dict.fromkeys(rule_id(one) for one in found))
    run: JsonObject = {
        "tool": {
            "driver": {
                "name": "sandbox-agent",
                "version": story.started.version if story.started is not None else __version__,
                "rules": [_rule(rule, found) for rule in rules],
            }
        },
        "automationDetails": {"id": f"sandbox-agent/{story.session_id}"},
        "invocations": [_invocation(story)],
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, rules) for one in found],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def rule_id(finding: Finding) -> str:
    """The category as a word that is the same from run to run."""
    word = _NO_WORD.sub("-", (finding.category or "").lower()).strip("-")
    return word or "finding"


def _rule(rule: str, found: list[Finding]) -> JsonObject:
    name = next(one.category or "finding" for one in found if rule_id(one) == rule)
    return {"id": rule, "shortDescription": {"text": _plain(name)}}


def _result(one: Finding, rules: list[str]) -> JsonObject:
    place: JsonObject = {"artifactLocation": {"uri": quote(one.file, errors="surrogatepass"), "uriBaseId": "%SRCROOT%"}}
    if one.line is not None:
        place["region"] = {"startLine": one.line}
    rule = rule_id(one)
    same = "\0".join((one.file, rule, " ".join(one.summary.lower().split())))
    properties = {"severity": one.severity, "verdict": one.verdict, "agent": one.agent_id}
    result: JsonObject = {
        "ruleId": rule,
        "ruleIndex": rules.index(rule),
        "level": one.level,
        "message": {"text": _plain(f"{one.summary}\n\n{one.failure_scenario}")},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {
            "sandboxAgentFinding/v1": hashlib.sha256(same.encode("utf-8", "surrogatepass")).hexdigest()
        },
        "properties": {name: value for name, value in properties.items() if value is not None},
    }
    return result | ({"rank": _RANKS[one.severity]} if one.severity in _RANKS else {})


def _invocation(story: Story) -> JsonObject:
    invocation: JsonObject = {"executionSuccessful": story.status not in _BROKEN_OFF}
    if story.entries:
        invocation["startTimeUtc"], invocation["endTimeUtc"] = map(_utc, (story.first_unix_s, story.last_unix_s))
    return invocation


def _utc(unix_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_s))


def _plain(text: str) -> str:
    """Text in which a reader of SARIF makes no link: `[text](target)` is the only markup there is."""
    return sanitise(text, newlines=True).replace("](", "]\\(")
