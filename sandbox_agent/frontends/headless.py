"""`-p --output text|json|stream-json`: stdout carries exactly one of these and nothing else, whatever happens."""

from __future__ import annotations

from typing import Literal, Protocol, TextIO

from sandbox_agent.events import Event
from sandbox_agent.frontends import stream_json
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.frontends.summary import EXIT_CODES, RunSummary

OutputFormat = Literal["text", "json", "stream-json"]


class Output(Protocol):
    """Where a headless run goes. Both methods raise BrokenPipeError when the reader went away."""

    def feed(self, event: Event) -> None:
        """Take one event."""
        ...

    def close(self, summary: RunSummary) -> None:
        """The run is over, or never began: say how it ended."""
        ...


class TextOutput:
    """The final text alone, as soon as nothing can follow it; sanitised, because a pipe often ends on a terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def feed(self, event: Event) -> None:
        """Nothing: only the last answer counts."""

    def close(self, summary: RunSummary) -> None:
        """Print the text of the last answer, if there is one."""
        text = summary.finished.text if summary.finished else ""
        if text:
            self._out.write(sanitise(text, newlines=True, tabs=True) + "\n")
        self._out.flush()


class JsonOutput:
    """One JSON document at the end."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def feed(self, event: Event) -> None:
        """Nothing: the document is made at the end."""

    def close(self, summary: RunSummary) -> None:
        """Print the document."""
        stream_json.write_line(self._out, stream_json.result(summary))


class StreamJsonOutput:
    """One JSON object a line while the run goes on, the result last."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._stream = stream_json.StreamJson()

    def feed(self, event: Event) -> None:
        """Print the lines of one event."""
        for line in self._stream.lines(event):
            stream_json.write_line(self._out, line)

    def close(self, summary: RunSummary) -> None:
        """Print the result line."""
        stream_json.write_line(self._out, self._stream.last_line(summary))


def make_output(output: OutputFormat, out: TextIO) -> Output:
    """The output of the format asked for."""
    match output:
        case "json":
            return JsonOutput(out)
        case "stream-json":
            return StreamJsonOutput(out)
        case "text":
            return TextOutput(out)


def refuse(output: OutputFormat, out: TextIO, exit_code: int, error: str) -> None:
    """What stdout carries when a run could not even begin: the same document, or result line, with the error."""
    summary = RunSummary()
    status = next((name for name, code in EXIT_CODES.items() if code == exit_code), "failed")
    summary.end(status, error)
    try:
        make_output(output, out).close(summary)
    except OSError:
        # The reader went away first, or there is no room: the line on stderr and the exit code are all there is to say.
        return
