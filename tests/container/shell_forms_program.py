"""Runs in the container: shell forms from stdin, each by bash in a fresh folder; says what really ran and changed.

In: {"forms": [text, ...], "limit_s": for each}. Out, one JSON line: for each form the arguments of every run of the
marker program, the names in the folder that are new or different afterwards, and whether it had to be stopped.
"""

import contextlib
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

ROOM = "/workspace/.forms"
FOLDER = ROOM + "/folder"
LOG = ROOM + "/log"
PATH = ROOM + "/bin:/usr/local/bin:/usr/bin:/bin"
ALIVE_FD = 97
IDENTITY = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
# One write for each run, so that runs at the same time do not mix.
MARKER = f'#!/bin/sh\nprintf "%s\\037" "$@" "$(printf "\\036")" >> {LOG} 2>/dev/null\n'


def prepare():
    os.makedirs(ROOM + "/bin", exist_ok=True)
    with open(ROOM + "/bin/mark", "w") as file:
        file.write(MARKER)
    os.chmod(ROOM + "/bin/mark", 0o755)


def fresh_folder(form):
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER + "/d")
    for name, text in (("f", "mark\n"), ("g", "b\na\n"), ("d/f", "mark y\n"), ("s.sh", "mark from s.sh\n")):
        with open(FOLDER + "/" + name, "w") as file:
            file.write(text)
    if "git" in form:
        git("init", "-q")
        git("add", ".")
        git("-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "c")
        with open(FOLDER + "/f", "w") as file:
            file.write("mark changed\n")


def git(*words):
    subprocess.run(["git", *words], cwd=FOLDER, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def content():
    found = {}
    for folder, folders, names in os.walk(FOLDER):
        if ".git" in folders:
            folders.remove(".git")  # git refreshes its index as it reads
        for name in names + folders:
            path = os.path.join(folder, name)
            data = b""
            if os.path.isfile(path) and not os.path.islink(path):
                with contextlib.suppress(OSError), open(path, "rb") as file:
                    data = file.read(1 << 20)
            found[os.path.relpath(path, FOLDER)] = hashlib.sha256(data).hexdigest()
    return found


def run(form, limit_s):
    fresh_folder(form)
    open(LOG, "w").close()
    before = content()
    alive, held = os.pipe()
    os.dup2(held, ALIVE_FD)
    os.close(held)
    process = subprocess.Popen(
        ["bash", "--noprofile", "--norc", "-c", form],
        cwd=FOLDER,
        env={"PATH": PATH, "HOME": "/home/agent", "LANG": "C.UTF-8", **IDENTITY},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(ALIVE_FD,),
        start_new_session=True,
    )
    os.close(ALIVE_FD)
    # The pipe ends when everything that the form started has ended.
    stopped = not select.select([alive], [], [], limit_s)[0]
    os.close(alive)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    after = content()
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    with open(LOG, "rb") as file:
        raw = file.read(1 << 20)
    runs = [one.split(b"\037")[:-1] for one in raw.split(b"\036\037")[:-1]]
    words = [[word.decode("utf-8", "surrogateescape") for word in one] for one in runs]
    return {"runs": words, "changed": changed, "stopped": stopped}


def main():
    prepare()
    started = time.monotonic()
    asked = json.load(sys.stdin)
    outcomes = [run(form, asked["limit_s"]) for form in asked["forms"]]
    shutil.rmtree(FOLDER, ignore_errors=True)
    print(json.dumps({"outcomes": outcomes, "took_s": time.monotonic() - started}))


if __name__ == "__main__":
    main()
