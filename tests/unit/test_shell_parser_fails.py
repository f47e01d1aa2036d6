"""Whatever becomes of the parser, a command is asked or denied: there is no second, weaker way of judging it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sandbox_agent.policy.shell import ShellAnalysis, look_again
from sandbox_agent.policy.shell.analyse import STARVED_TRIES
from sandbox_agent.policy.shell.parser import shfmt_binary

analyse_module = import_module("sandbox_agent.policy.shell.analyse")

PROGRAM = """
import json, os, sys
from pathlib import Path

from sandbox_agent.policy.shell.parser import shfmt_binary
from sandbox_agent.policy.load import load_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.policy.shell import analyse, look_again
from sandbox_agent.policy.shell.analyse import forget
from sandbox_agent.types import Mode, PermissionRequest, Subject
place, found = Path(sys.argv[1]), {}
restricted = load_policy(None, allow=["Bash(*)"], deny=["Bash(rm:*)"])
unrestricted = Policy("open").with_allow("Bash(*)").with_allow("Bash(ls:*)")
request = PermissionRequest("Bash", Subject("ls", command="ls"), input_sha256="")
for how, text in json.load(sys.stdin).items():
    place.unlink(missing_ok=True)
    if text is not None:
        place.write_text(text)
        place.chmod(0o755)
    forget()
    policies = (restricted, unrestricted)
    found[how] = [p.decide(request, mode).verdict.name for p in policies for mode in (Mode.DEFAULT, Mode.PLAN)]
print(json.dumps(found))
"""
AGAIN = """
import json, sys
from pathlib import Path

from sandbox_agent.policy.shell import analyse, look_again
place, good = Path(sys.argv[1]), sys.stdin.read()
def parser(text):
    place.unlink(missing_ok=True)
    place.write_text(text)
    place.chmod(0o755)
def shown(analysis):
    return [analysis.problem, analysis.passing, len(analysis.commands)]
parser("#!/bin/sh\\nkill -9 $$\\n")
found = [shown(analyse("ls"))]
sh = "case $3 in bash) {};; *) kill -9 $$;; esac\\n"
parser("#!/bin/sh\\n" + sh.format(good))
found.append(shown(analyse("sh -c 'ls'")))  # the second reading of it ran out of time
parser("#!/bin/sh\\nexit 3\\n")
found.append(shown(analyse("id")))
parser("#!/bin/sh\\n" + good)
found += [shown(analyse("ls")), shown(look_again("ls"))]
found += [shown(look_again(text, after_s=0)) for text in ("ls", "sh -c 'ls'", "id")]
count = place.with_name("count")
parser(f"#!/bin/sh\\necho x >> {count}; test $(wc -l < {count}) -gt 1 || exec sleep 60\\n" + good)
found.append(shown(look_again("pwd")))
print(json.dumps(found))
"""
FAILING = {
    "missing": None,
    "not a program": "",
    "ends with a fault": "#!/bin/sh\nexit 3\n",
    "says that all is well": "#!/bin/sh\nexit 0\n",
    "prints no JSON": "#!/bin/sh\necho ls\n",
    "prints another tree": "#!/bin/sh\necho '[1]'\n",
    "prints a tree without commands": '#!/bin/sh\necho \'{"Type": "File"}\'\n',
    "prints a tree of nonsense": '#!/bin/sh\necho \'{"Stmts": [{"Cmd": {"Type": "CallExpr", "Args": 3}}]}\'\n',
    "is killed": "#!/bin/sh\nkill -9 $$\n",
    "hangs": "#!/bin/sh\nexec sleep 60\n",
    "never stops printing": "#!/bin/sh\nexec yes\n",
    "works after all": f'#!/bin/sh\nexec {shlex.quote(str(shfmt_binary()))} "$@"\n',
}


def run(program: str, told: str, folder: Path) -> Any:
    """What a program prints whose parser is the file that it is given the path of."""
    record = folder / "shfmt_py-9.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: shfmt-py\nVersion: 9\n")
    (record / "RECORD").write_text("shfmt,,\n")

    ended = subprocess.run(
        [sys.executable, "-c", program, str(folder / "shfmt")],
        input=told.encode(),
        env={"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)]), "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    return json.loads(ended.stdout)


def test_a_command_is_asked_or_denied(tmp_path: Path) -> None:
    """Denied where rules restrict commands, asked elsewhere, in plan mode as well. The fake parsers stand where the
    package's own record leads."""
    verdicts = run(PROGRAM, json.dumps(FAILING), tmp_path)
    works = verdicts.pop("works after all")
    assert works == ["ALLOW"] * 4
    assert verdicts == {how: ["DENY", "DENY", "ASK", "ASK"] for how in verdicts}
    assert set(verdicts) == set(FAILING) - {"works after all"}


def test_a_reading_that_ran_out_of_time_is_kept_for_one_call_only(tmp_path: Path) -> None:
    """All who ask about a call get one answer; the next call with the text is read anew. What is wrong with the text
    stays, and no second reading is left out because it was not done in time. One that got no time
    is read again at once."""
    found = run(AGAIN, f'exec {shlex.quote(str(shfmt_binary()))} "$@"', tmp_path)

    late = ["reading it took too long", True, 0]
    assert found[:2] == [late, late]
    assert found[2][1:] == [False, 0]
    assert found[3:5] == [late, late]
    assert found[5:7] == [[None, False, 1], [None, False, 2]]
    assert found[7] == found[2]
    assert found[8] == [None, False, 1]


@pytest.mark.parametrize(("starved", "tries"), [(True, STARVED_TRIES + 1), (False, 1)])
def test_only_a_starved_reading_is_tried_again_and_not_for_ever(
    starved: bool, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that takes long itself would take long again."""
    made: list[str] = []

    def late(command: str) -> ShellAnalysis:
        made.append(command)
        return ShellAnalysis(command, problem="reading it took too long", passing=True, starved=starved)

    monkeypatch.setattr(analyse_module, "_analysed", late)
    command = f"echo starved {starved}"
    assert look_again(command).passing
    assert made == [command] * tries
    analyse_module.forget()
