"""JUnit: a case for each of the person's checks and for each task, in the form that pipelines read."""

from __future__ import annotations

from xml.etree import ElementTree

from sandbox_agent.events.checks import CheckFinished
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.reports.html.dom import shortened
from sandbox_agent.reports.parts import Task
from sandbox_agent.reports.story import Story

MAX_OUTPUT_CHARS = 20_000
MAX_NAME_CHARS = 200

_NOT_THE_TASK = frozenset(
    {"sandbox_error", "model_error", "config_error", "replay_mismatch", "interrupted", "terminated", "unfinished"}
)
"""Ends that say nothing of the task: an error of the run, and not a failure of what was tested."""


def render(story: Story) -> str:
    """The report as XML, for a session in any state. A task that is not done, and a check that does not pass, fails."""
    root = ElementTree.Element("testsuites", name="sandbox-agent")
    checks, tasks = story.checks, story.own_tasks
    if checks:
        root.append(_suite(f"checks of {story.session_id}", story, [_check(one) for one in checks]))
    root.append(_suite(f"tasks of {story.session_id}", story, [_task(one, story) for one in tasks]))
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _suite(name: str, story: Story, cases: list[ElementTree.Element]) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=text(name), tests=str(len(cases)))
    for plural, tag in (("failures", "failure"), ("errors", "error")):
        suite.set(plural, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")
    suite.extend(cases)
    return suite


def _check(check: CheckFinished) -> ElementTree.Element:
    case = _case("check", check.command, check.duration_s)
    if not check.passed:
        tag = "error" if check.error is not None else "failure"
        _inside(case, tag, check.output or check.outcome, message=check.outcome)
    elif check.output:
        _inside(case, "system-out", check.output)
    return case


def _task(task: Task, story: Story) -> ElementTree.Element:
    case = _case("task", task.text, task.duration_s)
    end = task.finished
    denials = [f"{one.get('tool_name')}: {one.get('reason')}" for one in end.denials] if end is not None else []
    if task.status != "done":
        tag = "error" if task.status in _NOT_THE_TASK else "failure"
        said = (end.error if end is not None else None) or task.status.replace("_", " ")
        _inside(case, tag, "\n".join((said, *denials)), message=said, type=task.status)
    answer = end.text if end is not None else ""
    _inside(case, "system-out", "\n\n".join(filter(None, (answer, f"session {story.session_id}"))))
    return case


def _case(kind: str, name: str, duration_s: float) -> ElementTree.Element:
    one_line = shortened(" ".join(name.split()), MAX_NAME_CHARS).replace("\n", " ")
    attributes = {"classname": f"sandbox-agent.{kind}", "name": text(one_line), "time": f"{duration_s:.3f}"}
    return ElementTree.Element("testcase", attributes)


def _inside(case: ElementTree.Element, tag: str, said: str, **attributes: str) -> None:
    given = {name: text(shortened(value, 1_000)) for name, value in attributes.items()}
    ElementTree.SubElement(case, tag, given).text = text(shortened(said, MAX_OUTPUT_CHARS))


def text(value: str) -> str:
    """XML has no way to write control characters: they are escapes here as on a terminal."""
    return sanitise(value, newlines=True, tabs=True)
