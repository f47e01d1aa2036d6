"""Whatever becomes of the parser, a command is asked or denied: there is no second, weaker way of judging it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from sandbox_agent.policy.shell.parser import shfmt_binary

PROGRAM = """
import json, os, sys
from pathlib import Path

from sandbox_agent.policy.shell.parser import shfmt_binary
from sandbox_agent.policy.load import load_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.policy.shell import analyse
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
    analyse.cache_clear()
    policies = (restricted, unrestricted)
    found[how] = [p.decide(request, mode).verdict.name for p in policies for mode in (Mode.DEFAULT, Mode.PLAN)]
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


def test_a_command_is_asked_or_denied(tmp_path: Path) -> None:
    """Denied where rules restrict commands, asked elsewhere, in plan mode as well. The fake parsers stand where the
    package's own record leads."""
    record = tmp_path / "shfmt_py-9.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: shfmt-py\nVersion: 9\n")
    (record / "RECORD").write_text("shfmt,,\n")

    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "shfmt")],
        input=json.dumps(FAILING).encode(),
        env={"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]), "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    )

    verdicts = json.loads(ended.stdout)
    works = verdicts.pop("works after all")
    assert works == ["ALLOW"] * 4
    assert verdicts == {how: ["DENY", "DENY", "ASK", "ASK"] for how in verdicts}
    assert set(verdicts) == set(FAILING) - {"works after all"}
