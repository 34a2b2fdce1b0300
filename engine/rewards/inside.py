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
    """Run a file of plain assertions to its end. The file is gone by then: what it expects cannot be read."""
    import traceback
    import types

    with open(target, encoding="utf-8") as file:
        code = compile(file.read(), target, "exec")
    os.unlink(target)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = target
    sys.path.insert(0, os.getcwd())  # only now: no file of the workspace is imported instead of those above
    sys.argv = [target]
    first = ""
    try:
        exec(code, main.__dict__)
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
    """Run the tests of a directory or a file; a skipped or an expectedly failing one has not passed.

    Their files are gone by then, and a run whose assertions or runner were changed has no verdict.
    """
    import importlib
    import unittest

    unittest.TestCase.assertEqual = _strict(unittest.TestCase.assertEqual)
    runner = (unittest.TestCase, unittest.TestResult, unittest.TestSuite, unittest.BaseTestSuite)
    before = [(cls, _methods(cls)) for cls in runner]
    tests = _Tests(target)
    sys.meta_path.insert(0, tests)
    sys.path.insert(0, os.getcwd())  # only now: no file of the workspace is imported instead of unittest
    suite = unittest.TestSuite()
    for name in tests.names:
        try:
            suite.addTest(unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(name)))
        except Exception as error:  # noqa: BLE001 - whatever importing a test raises is its result
            suite.addTest(unittest.FunctionTestCase(_raising(error), description=name))
    total = suite.countTestCases()
    for cls in {
        cls for test in _cases(suite) for cls in type(test).__mro__ if issubclass(cls, unittest.TestCase)
    }:
        before.append((cls, _methods(cls)))

    def changed(test=None):
        for cls, was in before:
            now = _methods(cls)
            if len(now) != len(was) or any(now.get(name) is not value for name, value in was.items()):
                return True
        own = {} if test is None else vars(test)
        return any(_is_code(own[name]) and hasattr(unittest.TestCase, name) for name in own)

    class Counting(unittest.TestResult):
        passed = 0
        touched = ""

        def addSuccess(self, test):
            super().addSuccess(test)
            if changed(test):
                self.touched = self.touched or test.id().rpartition(".")[2]
            else:
                self.passed += 1

    result = Counting()
    first = ""
    try:
        suite.run(result)
    except SystemExit:
        first = "the test run was left"
    if changed() or result.touched:
        return {"total": total, "passed": 0, "first": "the code changed how its tests are run"}
    bad = result.errors + result.failures
    if bad:
        test, trace = bad[0]
        name = test.id().rpartition(".")[2]
        first = f"{name}: {trace.strip().splitlines()[-1]}"
    return {"total": total, "passed": result.passed, "first": first}


class _Tests:
    """The modules of a directory or a file, out of memory: their files are removed as soon as they are read."""

    def __init__(self, target):
        places = [target]
        if os.path.isdir(target):
            places = [
                os.path.join(at, name)
                for at, _, names in os.walk(target)
                for name in names
                if name[-3:] == ".py"
            ]
        self.modules = {}
        for place in sorted(places):
            package = os.path.basename(place) == "__init__.py"
            module = os.path.dirname(place) if package else place[:-3]
            with open(place, encoding="utf-8") as file:
                self.modules[os.path.normpath(module).replace(os.sep, ".")] = (place, package, file.read())
            os.unlink(place)
        self.names = [
            name for name, (place, _, _) in self.modules.items()
            if place == target or os.path.basename(place).startswith("test")
        ]  # fmt: skip

    def find_spec(self, name, path=None, target=None):
        if name not in self.modules:
            return None
        from importlib.machinery import ModuleSpec

        place, package, _ = self.modules[name]
        spec = ModuleSpec(name, self, origin=os.path.abspath(place), is_package=package)  # type: ignore[arg-type]
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [os.path.dirname(os.path.abspath(place))]
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        place, package, text = self.modules[module.__name__]
        self.modules[module.__name__] = (place, package, "")
        exec(compile(text, place, "exec"), module.__dict__)


def _is_code(value):
    return callable(value) or isinstance(value, (classmethod, staticmethod))


def _methods(cls):
    """What a class does by itself; of a test only what a test case has too, the rest being its own affair."""
    import unittest

    own = {name: value for name, value in vars(cls).items() if _is_code(value)}
    if not issubclass(cls, unittest.TestCase):
        return own
    return {name: own[name] for name in own if hasattr(unittest.TestCase, name) or name[:4] == "test"}


def _cases(suite):
    for test in suite:
        if hasattr(test, "__iter__"):
            yield from _cases(test)
        else:
            yield test


def _raising(error):
    def failed():
        raise error

    return failed


def _strict(original):
    def assertEqual(self, first, second, msg=None):
        original(self, first, second, msg)
        if _equals_all(first, second) or _equals_all(second, first):
            self.fail("it is equal to everything")

    return assertEqual


def _equals_all(value, other):
    """Whether a value that equals ``other`` also equals what does not."""
    if type(value).__module__ == "unittest.mock":  # ANY, in a test
        return False
    if isinstance(other, bool):
        others = [not other]
    elif isinstance(other, (int, float, complex)):
        others = [other + 1, -other - 1]
    elif isinstance(other, (str, bytes)):
        others = [other[:0] if other else other.ljust(1)]
    elif isinstance(other, (list, tuple)):
        others = [type(other)([*other[:-1], object()])] if type(other) in (list, tuple) else []
    elif type(other) is dict and other:
        others = [{**other, next(iter(other)): object()}]
    else:
        others = [object()]
    try:
        return bool(others) and all(value == another for another in others)
    except Exception:  # noqa: BLE001 - what cannot be compared is not equal
        return False


if __name__ == "__main__":
    main()
