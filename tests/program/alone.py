"""One run at a time in a build folder: `alone.py FOLDER COMMAND...` runs the command when nobody else builds or tests there, and says
whom it waits for. What runs under it, run.py and make included, asks again and goes on at once.

Relies on: flock, which ends with the processes that hold it. Relied on by: Makefile (check, test, fuzz), run.py, harness.py."""
import errno
import fcntl
import os
import shlex
import signal
import sys
import time

LOCK = "alone.lock"
HELD = "SHARDC_ALONE"  # in the environment of what runs alone: the folder, and its lock's descriptor


def held(folder):
    """The descriptor of a lock on this folder that our parents hold; None: they hold none."""
    fd, _, path = os.environ.get(HELD, "").partition(":")
    if path != folder:
        return None
    try:
        if os.path.samestat(os.fstat(int(fd)), os.stat(os.path.join(folder, LOCK))):
            return int(fd)
    except OSError:
        pass
    return -1  # a program on the way has closed it; who set the variable waits for us, and holds the lock


def alone(folder, what, inherited=False):
    """Returns when nobody else is at work in the folder; until this process ends, nobody else will be. inherited: what it starts holds the
    lock too."""
    folder = os.path.realpath(folder)
    fd = held(folder)
    if fd is None:
        os.makedirs(folder, exist_ok=True)
        fd = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            if e.errno not in (errno.EAGAIN, errno.EACCES):
                return  # a file system without locks
            print("waiting for %s, which is at work in %s; B=FOLDER (run.py: --build FOLDER) takes another one"
                  % (os.pread(fd, 4096, 0).decode(errors="replace").strip() or "another run", folder), file=sys.stderr, flush=True)
            fcntl.flock(fd, fcntl.LOCK_EX)
        os.ftruncate(fd, 0)
        os.pwrite(fd, ("process %d (%s, since %s)\n" % (os.getpid(), what, time.strftime("%H:%M:%S"))).encode(), 0)
        os.environ[HELD] = "%d:%s" % (fd, folder)
    if fd >= 0:
        os.set_inheritable(fd, inherited)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while it waits
    alone(sys.argv[1], shlex.join(sys.argv[2:]), inherited=True)
    os.execvp(sys.argv[2], sys.argv[2:])
