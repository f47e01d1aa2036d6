"""Conformance of the file verbs: modes, hard and symbolic links, and where paths lead."""

from __future__ import annotations

import hashlib

from sandbox_agent.sandboxes.base import FileKind, PathChangedError, Sandbox
from sandbox_agent.testing.conformance_check import Need, check, folder, holds, make, raises, same


@check()
async def the_mode_is_kept(sandbox: Sandbox) -> None:
    """Of an existing file; a new one is 0644."""
    place = await folder(sandbox, "mode")
    path = f"{place}/script"
    same((await sandbox.replace_file(path, b"1", expected_sha256=None)).mode, 0o644)
    await make(sandbox, "chmod", "750", path)
    same((await sandbox.replace_file(path, b"2", expected_sha256=_sha256(b"1"))).mode, 0o750)
    same((await sandbox.resolve([path]))[0].mode, 0o750)


@check(Need.KERNEL)
async def set_id_bits_are_not_kept(sandbox: Sandbox) -> None:
    """The new content was not what somebody trusted with them."""
    place = await folder(sandbox, "setid")
    path = f"{place}/program"
    await sandbox.replace_file(path, b"1", expected_sha256=None)
    await make(sandbox, "sh", "-c", f"chmod 755 {path}; chmod 4755 {path} 2>&1 || true")  # a sandbox may refuse it
    await sandbox.replace_file(path, b"2", expected_sha256=_sha256(b"1"))
    same((await sandbox.resolve([path]))[0].mode, 0o755)


@check()
async def all_names_of_a_file_show_the_new_content(sandbox: Sandbox) -> None:
    """Hard links stay links; shorter and longer content."""
    place = await folder(sandbox, "hard")
    await sandbox.replace_file(f"{place}/one", b"before", expected_sha256=None)
    await make(sandbox, "ln", f"{place}/one", f"{place}/two")
    last = b"before"
    for data in (b"after, and longer", b"short", b""):
        await sandbox.replace_file(f"{place}/one", data, expected_sha256=_sha256(last))
        same((await sandbox.read_file(f"{place}/two")).data, data)
        last = data


@check()
async def a_link_is_followed_and_stays(sandbox: Sandbox) -> None:
    """Its target changes; a dangling one makes its target."""
    place = await folder(sandbox, "soft")
    await sandbox.replace_file(f"{place}/target", b"before", expected_sha256=None)
    await make(sandbox, "ln", "-s", "target", f"{place}/link")
    await make(sandbox, "ln", "-s", f"{place}/new", f"{place}/dangling")
    await sandbox.replace_file(f"{place}/link", b"after", expected_sha256=_sha256(b"before"))
    await sandbox.replace_file(f"{place}/dangling", b"made", expected_sha256=None)
    same((await sandbox.read_file(f"{place}/target")).data, b"after")
    same((await sandbox.read_file(f"{place}/new")).data, b"made")
    same((await sandbox.resolve([f"{place}/link"]))[0].resolved, f"{place}/target")


@check()
async def a_path_that_leads_elsewhere_now_is_refused(sandbox: Sandbox) -> None:
    """What was judged is what is touched, or nothing is."""
    place = await folder(sandbox, "moved")
    for name in ("one", "two"):
        await sandbox.replace_file(f"{place}/{name}/file", name.encode(), expected_sha256=None)
    await make(sandbox, "ln", "-s", f"{place}/one", f"{place}/link")
    path, judged = f"{place}/link/file", f"{place}/one/file"
    same((await sandbox.read_file(path, resolved=judged)).data, b"one")
    await make(sandbox, "rm", f"{place}/link")
    await make(sandbox, "ln", "-s", f"{place}/two", f"{place}/link")
    await raises(PathChangedError, sandbox.read_file(path, resolved=judged))
    replace = sandbox.replace_file(path, b"x", expected_sha256=_sha256(b"two"), resolved=judged)
    await raises(PathChangedError, replace)
    await raises(
        PathChangedError,
        sandbox.replace_file(f"{place}/link/new", b"x", expected_sha256=None, resolved=f"{place}/one/new"),
    )
    same((await sandbox.read_file(f"{place}/two/file")).data, b"two")


@check()
async def paths_are_resolved_in_the_sandbox(sandbox: Sandbox) -> None:
    """Links, folders, `..`, dangling links, loops, and what is not there."""
    place = await folder(sandbox, "resolve")
    await sandbox.replace_file(f"{place}/dir/file", b"12345", expected_sha256=None)
    for target, name in (("dir", "link"), ("/workspace/none", "dangling"), ("loop", "loop"), ("../file", "dir/up")):
        await make(sandbox, "ln", "-s", target, f"{place}/{name}")
    wanted = {
        f"{place}/dir/file": (f"{place}/dir/file", FileKind.FILE),
        f"{place}/link/file": (f"{place}/dir/file", FileKind.FILE),
        f"{place}/link": (f"{place}/dir", FileKind.DIRECTORY),
        f"{place}/dir/../dir/./file": (f"{place}/dir/file", FileKind.FILE),
        f"{place}/link/../none": (f"{place}/none", FileKind.MISSING),
        f"{place}/dangling": ("/workspace/none", FileKind.MISSING),
        f"{place}/dir/up": (f"{place}/file", FileKind.MISSING),
        f"{place}/no/where/at/all": (f"{place}/no/where/at/all", FileKind.MISSING),
        "/": ("/", FileKind.DIRECTORY),
    }
    infos = await sandbox.resolve(list(wanted))
    same({info.path: (info.resolved, info.kind) for info in infos}, wanted)
    same((infos[0].size_bytes, infos[0].mode), (5, 0o644))
    holds(infos[0].mtime_ns > 10**18, "the time of change is known")
    same((await sandbox.resolve([f"{place}/loop"]))[0].kind, FileKind.MISSING)
    same(await sandbox.resolve([]), [])


@check(Need.KERNEL)
async def many_paths_are_resolved_at_once(sandbox: Sandbox) -> None:
    """Answered in order."""
    paths = [f"/workspace/many/{number:04}" for number in range(300)]
    same([info.path for info in await sandbox.resolve(paths)], paths)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


CHECKS = (
    the_mode_is_kept,
    set_id_bits_are_not_kept,
    all_names_of_a_file_show_the_new_content,
    a_link_is_followed_and_stays,
    a_path_that_leads_elsewhere_now_is_refused,
    paths_are_resolved_in_the_sandbox,
    many_paths_are_resolved_at_once,
)
