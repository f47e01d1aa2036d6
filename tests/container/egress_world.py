"""Servers that stand for the package indexes of the world: HTTPS with an authority of its own, plain HTTP, and what
pip, npm, apt, git and curl fetch there, all made here."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import ssl
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAMES = ("pip.test", "npm.test", "git.test", "files.test", "moves.test", "lies.test")
"""Hosts that the server has a certificate for."""


@dataclass
class Served:
    """Two running servers. `seen` are method, host and path of every request that reached them."""

    folder: Path
    ca_file: Path
    https_port: int = 0
    http_port: int = 0
    seen: list[tuple[str, str, str]] = field(default_factory=list)


@contextmanager
def world(folder: Path) -> Iterator[Served]:
    """Both servers, serving the files in `folder`/root."""
    root = folder / "root"
    root.mkdir()
    served = Served(root, folder / "ca.pem")
    certificate, key = _certificates(served.ca_file, folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    plain = _Server(served, None)
    secure = _Server(served, context)
    served.http_port, served.https_port = plain.server_port, secure.server_port
    threads = [threading.Thread(target=server.serve_forever, args=(0.05,)) for server in (plain, secure)]
    for thread in threads:
        thread.start()
    try:
        yield served
    finally:
        for server in (plain, secure):
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()


class _Server(http.server.ThreadingHTTPServer):
    """TLS is spoken in the thread of a connection, so that a client that says nothing holds up nobody."""

    daemon_threads = False

    def __init__(self, served: Served, context: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.served = served
        self.context = context

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no fault of the server's."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10

    def setup(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        if server.context is not None:
            self.request = server.context.wrap_socket(self.request, server_side=True)
        self.served = server.served
        super().setup()

    def finish(self) -> None:
        super().finish()
        self.request.close()  # the server closes what it was before TLS took it over

    def do_GET(self) -> None:
        self.served.seen.append((self.command, self.headers.get("Host", ""), self.path))
        path = self.served.folder / self.path.partition("?")[0].lstrip("/")
        if self.path.startswith("/moved-to/"):
            self.send_response(302)
            self.send_header("Location", "http://" + self.path.removeprefix("/moved-to/"))
            self._end(b"")
        elif path.is_dir() and (path / "index.html").is_file():
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self._end((path / "index.html").read_bytes())
        elif path.is_file():
            self.send_response(200)
            self.send_header("Content-Type", "application/json" if path.suffix == "" else "application/octet-stream")
            self._end(path.read_bytes())
        else:
            self.send_response(404)
            self._end(b"")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def _end(self, body: bytes) -> None:
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""


def _certificates(ca_file: Path, folder: Path) -> tuple[Path, Path]:
    """An authority in `ca_file`; a server's certificate by it, and its key."""
    now = datetime.now(UTC)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a test")])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)

    def begun(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
        return builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=2))

    ca = (
        begun(issuer, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([x509.DNSName(name) for name in NAMES])
    leaf = (
        begun(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAMES[0])]), key.public_key())
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    ca_file.write_bytes(ca.public_bytes(pem))
    certificate_file, key_file = folder / "server.pem", folder / "server.key"
    certificate_file.write_bytes(leaf.public_bytes(pem))
    plain = serialization.PrivateFormat.TraditionalOpenSSL
    key_file.write_bytes(key.private_bytes(pem, plain, serialization.NoEncryption()))
    return certificate_file, key_file


def put_python_package(root: Path) -> None:
    """`tinypkg` in a simple index."""
    data = io.BytesIO()
    info = "tinypkg-1.0.dist-info"
    files = {
        "tinypkg.py": b"WORD = 'from the index'\n",
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tinypkg\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_urlsafe(text)},{len(text)}\n" for name, text in files.items())
    with zipfile.ZipFile(data, "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}.items():
            wheel.writestr(name, text)
    folder = root / "simple" / "tinypkg"
    folder.mkdir(parents=True)
    (folder / "tinypkg-1.0-py3-none-any.whl").write_bytes(data.getvalue())
    (folder / "index.html").write_text('<a href="tinypkg-1.0-py3-none-any.whl">tinypkg-1.0-py3-none-any.whl</a>')


def put_node_package(root: Path) -> None:
    """`tinypkg-js` in a registry."""
    files = {
        "package/package.json": json.dumps({"name": "tinypkg-js", "version": "1.0.0", "main": "index.js"}).encode(),
        "package/index.js": b"module.exports = 'from the registry';\n",
    }
    tarball = _tar(files, mode="w:gz")
    (root / "tinypkg-js.tgz").write_bytes(tarball)
    version = {
        "name": "tinypkg-js",
        "version": "1.0.0",
        "dist": {
            "tarball": "https://npm.test/tinypkg-js.tgz",
            "integrity": "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode(),
        },
    }
    described = {"name": "tinypkg-js", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    (root / "tinypkg-js").write_text(json.dumps(described))


def put_debian_package(root: Path) -> None:
    """`tinypkg-deb` in an archive that nobody has signed."""
    control = (
        b"Package: tinypkg-deb\nVersion: 1.0\nArchitecture: all\nMaintainer: test <t@t.test>\nDescription: small\n"
    )
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": _tar({"./control": control}, mode="w:gz"),
        "data.tar.gz": _tar({"./usr/share/tinypkg": b"from the archive\n"}, mode="w:gz"),
    }
    package = b"!<arch>\n"
    for name, data in members.items():
        package += (
            f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
        )
    folder = root / "debian"
    folder.mkdir()
    (folder / "tinypkg-deb_1.0_all.deb").write_bytes(package)
    digest = hashlib.sha256(package).hexdigest()
    packages = control + f"Filename: ./tinypkg-deb_1.0_all.deb\nSize: {len(package)}\nSHA256: {digest}\n".encode()
    (folder / "Packages").write_bytes(packages)
    listed = f" {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n"
    (folder / "Release").write_text(f"Date: {datetime.now(UTC):%a, %d %b %Y %H:%M:%S} UTC\nSHA256:\n{listed}")


def put_git_repository(root: Path, folder: Path) -> None:
    """`repo.git`, as files for the plain protocol."""
    work = folder / "work"
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": "t@t.test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }

    def git(*words: str) -> None:
        subprocess.run(["git", *words], check=True, env=environment, capture_output=True)

    git("init", "-q", "-b", "main", str(work))
    (work / "file").write_text("from the repository\n")
    git("-C", str(work), "add", "file")
    git("-C", str(work), "commit", "-q", "-m", "one")
    git("clone", "-q", "--bare", str(work), str(root / "repo.git"))
    git("-C", str(root / "repo.git"), "update-server-info")


def _tar(files: Mapping[str, bytes], *, mode: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as tar:  # type: ignore[call-overload]
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o644
            tar.addfile(entry, io.BytesIO(text))
    return data.getvalue()


def _urlsafe(text: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
