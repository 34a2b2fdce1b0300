"""Runs in the sandbox, by itself: the test run in a child with limits, and one line that only the child's end can earn.

This file's text is written into the fresh sandbox and started with ``python3 -I -S``; nothing of the engine is there.
Every attempt pays for its start, so it imports what it needs where it needs it.
Its request is a JSON file that it deletes before the tests begin: {"nonce", "kind", "target", "command", "seconds",
"cpu_seconds", "memory_mb", "file_mb", "processes"}. It prints ``<nonce> {json}`` as its last line.
"""

import json
import os
import resource
import select
import sys
import time

SIGKILL = 9


def main() -> None:
    where = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(where, "request.json"), encoding="utf-8") as file:
        request = json.load(file)
    for name in os.listdir(where):
        os.unlink(os.path.join(where, name))
    os.rmdir(where)
    nonce = request.pop("nonce")
    out = os.dup(1)
    os.set_inheritable(out, False)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.close(out)
        os.setsid()
        _limit(request)
        _run(request, nonce, writing)
        os._exit(0)
    os.close(writing)
    said, status, timed_out = _wait(child, reading, request["seconds"])
    result = _result(said, status, timed_out, nonce)
    os.write(out, ("\n" + nonce + " " + json.dumps(result) + "\n").encode())


def _limit(request):
    mb = 1024 * 1024
    for which, amount in (
        (resource.RLIMIT_CPU, request["cpu_seconds"]),
        (resource.RLIMIT_AS, request["memory_mb"] * mb),
        (resource.RLIMIT_FSIZE, request["file_mb"] * mb),
        (resource.RLIMIT_NPROC, request["processes"]),
        (resource.RLIMIT_CORE, 0),
    ):
        most = resource.getrlimit(which)[1]
        most = float("inf") if most == resource.RLIM_INFINITY else most
        # At the soft limit of processor time comes SIGXCPU, which tells what it was; at the hard one SIGKILL.
        spare = 2 if which == resource.RLIMIT_CPU else 0
        resource.setrlimit(which, (int(min(amount, most)), int(min(amount + spare, most))))


def _wait(child, reading, seconds):
    """What the child wrote, how it ended, and whether its deadline did it."""
    deadline, said, open_end = time.monotonic() + seconds, b"", True
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        left = deadline - time.monotonic()
        if left <= 0:
            os.killpg(child, SIGKILL)
            os.waitpid(child, 0)
            return said, None, True
        if not open_end:
            time.sleep(min(0.01, left))
        elif select.select([reading], [], [], min(0.05, left))[0]:
            more = os.read(reading, 65536)
            said += more
            open_end = bool(more)
    while open_end and select.select([reading], [], [], 0)[0]:
        more = os.read(reading, 65536)
        said, open_end = said + more, bool(more)
    try:  # noqa: SIM105 - contextlib is an import that every attempt would pay for
        os.killpg(child, SIGKILL)  # what the tests left running
    except ProcessLookupError:
        pass
    return said, os.waitstatus_to_exitcode(status), False


def _result(said, status, timed_out, nonce):
    if timed_out:
        return {"ended": "timed_out"}
    mark = (nonce + " ").encode()
    if status == 0 and said.startswith(mark):
        return {"ended": "completed", **json.loads(said[len(mark) :])}
    if status is not None and status < 0:
        import signal

        return {"ended": "killed", "signal": signal.Signals(-status).name}
    return {"ended": "cut", "status": status}


def _run(request, nonce, writing):
    """In the child: run the tests and tell how they went, which no code of the workspace comes to do."""
    kind = request["kind"]
    if kind == "command":
        found = _command(request["command"])
        os.write(writing, (nonce + " " + json.dumps(found)).encode())
        return
    import site

    site.main()  # what is installed for everybody, which -S left out
    if kind == "script":
        found = _script(request["target"])
    else:
        found = _unittest(request["target"])
    os.write(writing, (nonce + " " + json.dumps(found)).encode())


def _command(command):
    nothing = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    try:
        process = os.posix_spawnp(command[0], command, os.environ, file_actions=nothing)
    except OSError as error:
        return {"total": 1, "passed": 0, "first": f"{command[0]} cannot be started: {error.strerror}"}
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return {"total": 1, "passed": int(code == 0), "first": f"exit code {code}"}


def _script(target):
    """Run a file of plain assertions to its end."""
    import runpy
    import traceback

    sys.path.insert(0, os.getcwd())  # only now: no file of the workspace is imported instead of those above
    sys.argv = [target]
    first = ""
    try:
        runpy.run_path(target, run_name="__main__")
    except SystemExit as error:
        last = traceback.extract_tb(error.__traceback__)[-1].filename
        if os.path.abspath(last) != os.path.abspath(target):
            first = f"the test run was left by {os.path.relpath(last)}"
        elif error.code not in (None, 0):
            first = f"exit code {error.code}"
    except BaseException as error:  # noqa: BLE001 - whatever the tests raise is their result
        first = f"{type(error).__name__}: {error}"
    sys.stdout.flush()
    return {"total": 1, "passed": int(not first), "first": first}


def _unittest(target):
    """Run the tests of a directory or a file; a skipped or an expectedly failing one has not passed."""
    import unittest

    sys.path.insert(0, os.getcwd())  # only now: no file of the workspace is imported instead of unittest
    loader = unittest.TestLoader()
    if os.path.isdir(target):
        suite = loader.discover(target, top_level_dir=".")
    else:
        suite = loader.loadTestsFromName(os.path.splitext(target)[0].replace("/", "."))
    total = suite.countTestCases()

    class Counting(unittest.TestResult):
        passed = 0

        def addSuccess(self, test):
            super().addSuccess(test)
            self.passed += 1

    result = Counting()
    first = ""
    try:
        suite.run(result)
    except SystemExit:
        first = "the test run was left"
    bad = result.errors + result.failures
    if bad:
        test, trace = bad[0]
        name = test.id().rpartition(".")[2]
        first = f"{name}: {trace.strip().splitlines()[-1]}"
    return {"total": total, "passed": result.passed, "first": first}


if __name__ == "__main__":
    main()
