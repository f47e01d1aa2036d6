"""What stands on the time line: messages, calls with all that is known of them, and what happened beside."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_agent.frontends import diffs, words
from sandbox_agent.reports.asides import hook_line, hook_tone
from sandbox_agent.reports.html.dom import Markup, badge, block, el, facts, join, shortened
from sandbox_agent.reports.parts import Aside, Call, Item, Job, Request, Said, Work
from sandbox_agent.reports.story import text_of

_SPEAKERS = {
    "user": "Person",
    "told": "To the model",
    "assistant": "Model",
    "thinking": "Thinking",
    "instructions": "Folder's instructions",
}
_OUTCOMES = {"ok": "good", "failed": "bad", "denied": "bad", "discarded": "quiet", "unfinished": "warn"}
_TONES = {"info": "quiet", "warning": "warn", "bad": "bad", "good": "good"}
_DIFF = {"+": "add", "-": "del", "@": "hunk", "h": "head", "\\": "hunk", " ": "same"}
_SUMMARY_CHARS = 240


@dataclass(frozen=True, slots=True)
class Scene:
    """What all items have in common: when the session began, how long a text may be, and how many items a list has
    at most: the newest."""

    first_unix_s: float
    max_chars: int
    most: int

    def at(self, item: Item) -> Markup:
        """When it was, counted from the beginning; the clock's own time when pointed at."""
        clock = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(item.time_unix_s))
        return el("span", _since(item.time_unix_s - self.first_unix_s), cls="at", title=f"{clock}, entry {item.seq}")


def timeline(items: Sequence[Item], scene: Scene) -> Markup:
    """The items, in order."""
    left_out = max(0, len(items) - scene.most)
    older = el("p", f"The oldest {left_out:,} entries are left out: the page would be too long.") if left_out else None
    return el("div", older, join(_item(item, scene) for item in items[left_out:]), cls="items")


def _since(seconds: float) -> str:
    minutes, rest = divmod(max(0.0, seconds), 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02d}:{rest:04.1f}" if hours else f"{minutes}:{rest:04.1f}"


def _item(item: Item, scene: Scene) -> Markup | None:
    match item:
        case Call():
            return _call(item, scene)
        case Said():
            return _said(item, scene)
        case Aside():
            return _aside(item, scene)
        case Request():
            return _request(item, scene)
        case _:
            return None


def _said(item: Said, scene: Scene) -> Markup:
    who = el("span", _SPEAKERS[item.who], cls="who")
    if item.who in ("thinking", "instructions"):
        first = item.text.strip().partition("\n")[0]
        head = el("summary", scene.at(item), who, el("span", shortened(first, 120), cls="about"))
        body = el("div", block(item.text, scene.max_chars, cls="prose"), cls="body")
        return el("details", head, body, cls=f"item said {item.who}", id=f"e{item.number}", data_k="message")
    head = el("div", scene.at(item), who, cls="line")
    text = el("div", shortened(item.text, scene.max_chars), cls="prose")
    return el("div", head, text, cls=f"item said {item.who}", id=f"e{item.number}", data_k="message", tabindex="-1")


def _aside(item: Aside, scene: Scene) -> Markup:
    kind = el("span", item.kind, cls="who")
    line = (scene.at(item), kind, el("span", shortened(item.title, 600), cls="about"))
    cls, keys = f"item aside {_TONES[item.tone]}", f"other {'problem' if item.tone in ('bad', 'warning') else ''}"
    if item.kind == "network":
        keys += " network"
    if not item.text:
        return el("div", el("div", *line, cls="line"), cls=cls, id=f"e{item.number}", data_k=keys, tabindex="-1")
    body = el("div", block(item.text, scene.max_chars), cls="body")
    return el("details", el("summary", *line), body, cls=cls, id=f"e{item.number}", data_k=keys)


def _request(item: Request, scene: Scene) -> Markup:
    parts = [f"Request {item.turn}", item.model]
    if item.usage is not None and item.usage.total_tokens:
        parts += [words.tokens(item.usage), words.cost(item.cost_usd, item.usage) if item.cost_usd is not None else ""]
    if item.duration_s is not None:
        parts.append(words.duration(item.duration_s))
    elif item.usage is None:
        parts.append("no answer recorded")
    line = el("span", " · ".join(filter(None, parts)), cls="line")
    return el("div", scene.at(item), line, cls="item turn", data_k="turn", id=f"e{item.number}")


def _call(call: Call, scene: Scene) -> Markup:
    took = words.duration(call.finished.duration_s) if call.finished is not None and call.ran else ""
    head = el(
        "summary",
        scene.at(call),
        el("span", call.tool, cls="who tool"),
        el("code", shortened(call.about, _SUMMARY_CHARS), cls="about"),
        badge(call.outcome, _OUTCOMES[call.outcome]) if call.outcome != "ok" else None,
        badge("asked", "warn") if call.asked is not None else None,
        badge("did other than declared", "bad") if call.effects is not None and call.effects.contradictions else None,
        el("span", took, cls="took"),
    )
    sections = (
        _section("Input", _input(call, scene)),
        _section("Output", _output(call, scene)),
        _section("Decision", _decision(call), cls="half"),
        _section("What it did", _effects(call), cls="half"),
        _section(
            "Hooks", join(_hook(call, number, scene) for number in range(len(call.hooks))) if call.hooks else None
        ),
        join(_job(job) for job in call.jobs),
        join(_work(work, scene) for work in call.works),
    )
    kind = f"item call {call.outcome}"
    return el("details", head, el("div", *sections, cls="body"), cls=kind, id=f"e{call.number}", data_k=keys(call))


def keys(call: Call) -> str:
    """By which filters a call is found."""
    effects = call.effects
    sorts = {
        "problem": call.outcome in ("failed", "denied", "unfinished") or bool(effects and effects.contradictions),
        "denied": call.outcome == "denied",
        "asked": call.asked is not None,
        "changed": bool(call.changed_files) or (call.finished is not None and "diff" in call.finished.meta),
        "network": bool(effects is not None and effects.hosts),
        "agent": bool(call.works),
        "background": bool(call.jobs),
    }
    return " ".join(("call", *(key for key, holds in sorts.items() if holds)))


def _section(title: str, content: Markup | None, *, cls: str = "") -> Markup | None:
    return el("section", el("h4", title), content, cls=cls) if content else None


def _input(call: Call, scene: Scene) -> Markup | None:
    if not call.input:
        return None
    pairs = []
    for name, value in call.input.items():
        text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False, default=str)
        pairs.append(
            (shortened(name, 200), block(text, scene.max_chars) if len(text) > 60 or "\n" in text else el("code", text))
        )
    return facts(pairs)


def _decision(call: Call) -> Markup | None:
    said = call.decided
    if said is None:
        return None
    rule = said.rule and join((el("code", said.rule), f" at {said.location}" if said.location else None))
    answer = " ".join(filter(None, (said.answered_by, f"({said.scope})" if said.scope else None)))
    return facts(
        (
            ("verdict", badge(said.verdict, "good" if said.verdict == "allow" else "bad")),
            ("reason", said.reason),
            ("rule", rule),
            ("from", said.layer),
            ("mode", said.mode),
            ("hook", said.hook),
            ("asked because", call.asked.reason if call.asked is not None else None),
            ("answered by", answer),
            ("answer", said.answer),
            ("rules added", ", ".join(said.saved_rules)),
        )
    )


def _output(call: Call, scene: Scene) -> Markup | None:
    if call.discarded is not None:
        return el("p", f"Counts for nothing: {call.discarded}")
    if call.finished is None:
        return el("p", "No end of this call is recorded: it still ran, or the run was killed.")
    text, changed = text_of(call.finished.content), call.finished.meta.get("diff")
    parts = [block(text, scene.max_chars, cls="bad" if call.finished.is_error else "")] if text else []
    if isinstance(changed, str) and changed.strip():
        parts.append(diff(changed, scene.max_chars))
    return join(parts) or el("p", "nothing")


def diff(text: str, max_chars: int) -> Markup:
    """A unified diff, coloured by line."""
    lines = diffs.parse(shortened(text, max_chars))
    return el(
        "pre", join(el("span", line.text + "\n", cls=_DIFF[line.kind]) for line in lines), cls="diff", tabindex="0"
    )


def _effects(call: Call) -> Markup | None:
    did = call.effects
    if did is None:
        return None
    changed = [f"{one.get('kind')} {one.get('path')}" for one in did.changed or ()][:100]
    more = [f"and {did.changed_count - len(changed):,} more"] if did.changed_count > len(changed) else []
    shared = f"perhaps done by {words.count(len(did.shared_with), 'other call')} beside it" if did.shared_with else None
    return facts(
        (
            ("declared", "reads only" if did.read_only else "may change things"),
            ("did other", ", ".join(did.contradictions).replace("_", " ")),
            ("changed", "not known" if did.changed is None else "\n".join((*changed, *more))),
            ("shared", shared if changed else None),
            ("hosts", ", ".join(did.hosts)),
            ("exit code", str(did.exit_code) if did.exit_code is not None else None),
            ("ended by", "its time limit" if did.timed_out else "want of memory" if did.oom_killed else None),
            ("left behind", words.count(did.left_processes, "process") if did.left_processes else None),
            ("CPU", words.duration(did.cpu_s) if did.cpu_s is not None else None),
            ("peak memory", words.size(did.max_rss_bytes) if did.max_rss_bytes is not None else None),
            ("network", _traffic(did.sent_bytes, did.received_bytes)),
        )
    )


def _traffic(sent: int | None, received: int | None) -> str | None:
    return None if sent is None or received is None else f"{words.size(sent)} out, {words.size(received)} in"


def _hook(call: Call, number: int, scene: Scene) -> Markup:
    event = call.hooks[number]
    tone = _TONES[hook_tone(event)]
    rewritten = json.dumps(event.rewritten, indent=1, ensure_ascii=False) if event.rewritten is not None else None
    said = [event.location, event.reason, event.fault, rewritten]
    text = "\n".join(filter(None, said))
    return el("div", el("p", hook_line(event), cls=tone), block(text, scene.max_chars) if text else None)


def _job(job: Job) -> Markup:
    end, started = job.finished, job.started
    state = "no end is recorded" if end is None else end.state
    return el(
        "section",
        el("h4", f"Background job {started.job_id}"),
        facts(
            (
                ("kind", started.kind),
                ("what", el("code", started.what)),
                ("ended", state),
                ("exit code", str(end.exit_code) if end is not None and end.exit_code is not None else None),
                ("after", words.duration(end.duration_s) if end is not None else None),
                ("output", words.size(end.output_bytes) if end is not None and end.output_bytes is not None else None),
                ("in file", started.output_path),
            )
        ),
    )


def _work(work: Work, scene: Scene) -> Markup:
    how = [how for how, holds in (("in the background", work.background), ("gone on with", work.continued)) if holds]
    used = words.tokens(work.usage) if work.usage.total_tokens else ""
    took = words.duration(work.duration_s) if work.duration_s is not None else ""
    line = " · ".join(filter(None, (work.agent_type, *how, words.count(work.turns, "turn"), used, took)))
    head = el(
        "h4",
        f"Sub-agent {work.agent_id}: {work.description} ",
        badge(work.status.replace("_", " "), "good" if work.status == "done" else "bad"),
    )
    return el("section", head, el("p", line, cls="quiet"), _failed(work), timeline(work.items, scene), cls="agent")


def _failed(work: Work) -> Markup | None:
    return el("p", work.error, cls="bad") if work.error else None
