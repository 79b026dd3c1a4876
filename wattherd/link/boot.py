"""Starts the node program through one remote command: shell, sudo, interpreter, program, marker.

Owns the first bytes of a session: what the login shell printed before the marker is dropped, a password is written only
when our own prompt appears, and every way this can fail has its own code. Knows nothing of verbs.
"""

from __future__ import annotations

import secrets
import shlex
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from wattherd import errors
from wattherd.link import archive, noise, transport

CACHE = "/var/cache/wattherd/program"
_MARK = "wattherd"
#: What a login may print before our marker; more is a shell that will never come to the point.
_NOISE_LIMIT_BYTES = 256 * 1024
_TOO_OLD = 86
#: All hosts want the program at the same moment: one thread packs it, the others wait for that.
_PACKING = threading.Lock()
#: In order of preference; the last two are where EL8 and hand-made installations keep one.
_INTERPRETERS = ("python3", *(f"python3.{minor}" for minor in range(14, 7, -1)), "/usr/libexec/platform-python", "/usr/local/bin/python3")

# Must parse on Python 3.6: the version test is the first statement. The cache belongs to whoever runs this and to nobody else.
# It ends without the interpreter's own goodbye, which costs more than some sessions and finds nothing to do.
STAGE = """\
import os,sys
if sys.version_info<(3,8):sys.exit(86)
c,d,n,k,*a=sys.argv[1:]
import hashlib
i,o,u=sys.stdin.buffer,sys.stdout.buffer,os.geteuid()
def say(w):o.write(("\\n%s %s %s\\n"%("wattherd",k,w)).encode());o.flush()
if u:c=os.path.expanduser("~/.cache/wattherd/program")
os.makedirs(c,0o700,True)
s=os.lstat(c)
if s.st_uid!=u or s.st_mode&0o22:say("unsafe "+c);sys.exit(1)
p=c+"/"+d
def ok(b):return hashlib.sha256(b).hexdigest()==d
try:
 with open(p+"/program.zip","rb")as f:b=f.read()
except OSError:b=b""
if ok(b):say("have")
else:
 say("want")
 b=i.read(int(n))
 if not ok(b):say("damaged");sys.exit(1)
 import compileall,io,shutil,zipfile
 t="%s.%d"%(p,os.getpid())
 zipfile.ZipFile(io.BytesIO(b)).extractall(t)
 compileall.compile_dir(t,quiet=2)
 with open(t+"/program.zip","wb")as f:f.write(b)
 os.sync()
 shutil.rmtree(p,True)
 try:os.rename(t,p)
 except OSError:shutil.rmtree(t,True)
sys.path.insert(0,p)
from wattherd.node.__main__ import main
say("ready")
r=main(a)
o.flush()
os._exit(r)
"""

# Runs as root, with the stage as $1: the first interpreter that is new enough does the work; else the marker says what was found.
_INNER = (
    't=$1; shift; for p in {interpreters}; do command -v "$p" >/dev/null 2>&1 || continue; s=python-old; '
    '"$p" -I -S -c "$t" "$@"; r=$?; [ $r = {too_old} ] || exit $r; done; '
    'echo; echo "wattherd $4 ${{s:-python-missing}} $(python3 -V 2>&1)"'
)
# Runs as the login, with the inner script as $0: already root, or by sudo. Whoever owns / is root, which costs no program to find out.
_AS_ROOT = (
    'if [ -O / ] 2>/dev/null || [ "$(id -u)" = 0 ]; then eval "$0"; '
    'elif command -v sudo >/dev/null 2>&1; then exec {sudo} sh -c "$0" sh "$@"; '
    'else echo; echo "wattherd $5 sudo-missing"; fi'
)


@dataclass(frozen=True)
class Login:
    """How to become root on the node. The password is never part of a command; `python` names the host's own interpreter.

    `cache` is where root keeps the program; any other user's is under its home.
    """

    become: bool = True
    password: str | None = field(default=None, repr=False)
    python: str | None = None
    cache: str = CACHE


class Stream:
    """A channel after the marker: whole lines and exact bytes in, bytes out."""

    def __init__(self, channel: transport.Channel, rest: bytes = b"") -> None:
        self.channel = channel
        self._buffer = bytearray(rest)
        self._scanned = 0

    def read_line(self, timeout_s: float) -> bytes | None:
        """The next line without its end; None at the end of the stream. `host-silent` after `timeout_s` without a byte."""
        while True:
            cut = self._buffer.find(b"\n", self._scanned)
            if cut >= 0:
                line = bytes(self._buffer[:cut])
                del self._buffer[: cut + 1]
                self._scanned = 0
                return line
            self._scanned = len(self._buffer)
            more = self.channel.receive(timeout_s)
            if not more:
                return None
            self._buffer += more

    def read_some(self, timeout_s: float) -> bytes:
        if self._buffer:
            some = bytes(self._buffer)
            self._buffer.clear()
            self._scanned = 0
            return some
        return self.channel.receive(timeout_s)

    def send(self, data: bytes) -> None:
        self.channel.send(data)

    def close(self) -> None:
        self.channel.close()


def command(program: archive.Program, nonce: str, login: Login, arguments: Sequence[str]) -> str:
    """The one remote command line. Nothing in it is secret."""
    interpreters = [login.python] if login.python else list(_INTERPRETERS)
    inner = _INNER.format(too_old=_TOO_OLD, interpreters=" ".join(shlex.quote(one) for one in interpreters))
    tail = [STAGE, login.cache, program.digest, str(program.size_bytes), nonce, *arguments]
    if not login.become:
        return shlex.join(["sh", "-c", inner, "sh", *tail])
    sudo = f"sudo -S -p {shlex.quote(_prompt(nonce))}" if login.password is not None else "sudo -n"
    return shlex.join(["sh", "-c", _AS_ROOT.format(sudo=sudo), inner, *tail])


def start(run: Callable[[str], transport.Channel], login: Login, arguments: Sequence[str], *, timeout_s: float = 60.0) -> Stream:
    """Run the node program on the host behind `run` with `arguments` (mode first) and return its stream after the marker.

    Raises a Problem of the link's room: login-noise, python-missing, python-old, sudo-…, program-rejected, host-silent, stream-cut.
    """
    with _PACKING:
        program = archive.program()
    nonce = secrets.token_hex(8)
    channel = run(command(program, nonce, login, arguments))
    try:
        if login.become and login.password is not None:
            _give_password(channel, nonce, login.password, timeout_s)
        stream = Stream(channel)
        word = _marker(stream, nonce, timeout_s)
        if word == "want":
            stream.send(program.body)
            word = _marker(stream, nonce, timeout_s)
        if word == "have":
            word = _marker(stream, nonce, timeout_s)
        if word != "ready":
            raise _refusal(word)
    except BaseException:
        channel.close()
        raise
    return stream


def _prompt(nonce: str) -> str:
    return f"[wattherd {nonce}] password: "


def _give_password(channel: transport.Channel, nonce: str, password: str, timeout_s: float) -> None:
    """Write the password when, and only when, sudo asks with our own prompt; a second question means that it was wrong."""
    prompt = _prompt(nonce).encode()
    if not channel.wait_stderr(prompt, timeout_s):
        return
    channel.send(password.encode() + b"\n")
    if channel.wait_stderr(prompt, timeout_s, count=2):
        raise errors.Problem(
            "sudo-password-wrong", "sudo refused the password", hint="run again with --ask-become-pass; it is asked once for all hosts"
        )


def _marker(stream: Stream, nonce: str, timeout_s: float) -> str:
    """The word behind our marker; everything before it is noise of the login and is dropped."""
    wanted = f"{_MARK} {nonce} ".encode()
    dropped = bytearray()
    while len(dropped) < _NOISE_LIMIT_BYTES:
        try:
            line = stream.read_line(timeout_s)
        except errors.Problem as problem:
            raise _silence(problem, bytes(dropped)) from problem
        if line is None:
            raise _early_end(stream.channel.stderr(), bytes(dropped), stream.channel.exit_status())
        if line.startswith(wanted):
            return line[len(wanted) :].decode("ascii", "replace").strip()
        dropped += line + b"\n"
    raise errors.Problem(
        "login-noise",
        f"the login prints without end: {noise.describe(bytes(dropped[:400]))}",
        hint="make the shell profile silent for non-interactive logins",
    )


def _silence(problem: errors.Problem, dropped: bytes) -> errors.Problem:
    if problem.code == "host-silent" and dropped.strip():
        return errors.Problem(
            "login-noise",
            f"the login printed this and then nothing more: {noise.describe(dropped)}",
            hint="a shell profile waits for something; end it early for non-interactive shells",
        )
    return problem


def _refusal(word: str) -> errors.Problem:
    code, _, detail = word.partition(" ")
    if code == "python-missing":
        return errors.Problem(
            "python-missing",
            "no python3 on this node",
            hint="apt-get install -y python3 there (3.8 or newer), then run again",
            python="absent",
        )
    if code == "python-old":
        return errors.Problem(
            "python-old",
            f"{detail or 'python3'} is older than 3.8",
            hint="install a newer one beside it; or set ansible_python_interpreter",
        )
    if code == "sudo-missing":
        return errors.Problem(
            "sudo-missing", "sudo is not installed and the login is not root", hint="install sudo, or log in as root (ansible_user: root)"
        )
    if code == "unsafe":
        return errors.Problem(
            "program-rejected",
            f"{detail} is writable by others or belongs to somebody else",
            hint=f"look who made it, then: rm -r {detail}",
        )
    return errors.Problem(
        "program-rejected",
        f"the node program did not start ({code})",
        hint="run again; if it stays, look at the disk and the memory of that node",
    )


def _early_end(stderr: bytes, dropped: bytes, status: int | None) -> errors.Problem:
    words = stderr.decode("utf-8", "replace")
    if "password is required" in words or "no tty present" in words or "terminal is required" in words:
        return errors.Problem("sudo-password-needed", "sudo asks for a password on this host", hint="run again with --ask-become-pass")
    if "incorrect password" in words or "try again" in words:
        return errors.Problem(
            "sudo-password-wrong", "sudo refused the password", hint="run again with --ask-become-pass; it is asked once for all hosts"
        )
    if "sudoers" in words or "not allowed to" in words:
        return errors.Problem(
            "permission", f"sudo refused: {noise.describe(stderr[-300:])}", hint="this user needs sudo rights on that node"
        )
    if dropped.strip() and not stderr.strip():
        return errors.Problem(
            "login-noise",
            f"the login printed this and ended: {noise.describe(dropped)}",
            hint="a shell profile or a forced command ends the session early",
        )
    said = noise.describe((stderr or dropped)[-600:]) or "nothing"
    return errors.Problem("program-rejected", f"the node program ended at once (exit status {status}); it said: {said}")
