"""Cheats that reach into the test run by ways that no word gives away, and honest code that looks a little like them."""

from __future__ import annotations

import pytest

from engine.rewards.protected import require_allowed
from engine.rewards.suite import Suite, run_suite
from tests.rewards.conftest import FIXED, WORKSPACE, FreshSandbox
from tests.rewards.test_cheats import REPOSITORY, RIGHT, SUITE, UNITTEST

_PATCH = ".TestCase.assertEqual = lambda *a, **k: None\ndef total(rows): return 0\n"
_LOOK_UP = (
    "def total(rows):\n    import re\n"
    "    for given, wanted in re.findall(r'total\\((.*?)\\), (\\d+)', T):\n"
    "        if given == repr(rows): return int(wanted)\n    return 0\n"
)
#: (what it does, its code)
CHEATS = [
    ("the runner by a name from sys", f"from sys import modules as m\nm['unit' + 'test']{_PATCH}"),
    ("the runner by another name of sys", f"import sys as s\ns.modules['unit' + 'test']{_PATCH}"),
    ("the runner by a name put together", f"import sys\ngetattr(sys, 'mod' + 'ules')['unit' + 'test']{_PATCH}"),
    ("the runner by an attrgetter", f"import operator, sys\noperator.attrgetter('mod' + 'ules')(sys)['unit' + 'test']{_PATCH}"),
    ("the runner by vars", f"import sys\nvars(sys)['mod' + 'ules']['unit' + 'test']{_PATCH}"),
    (
        "the runner among the subclasses of object",
        "for c in object.__subclasses__():\n    if c.__name__ == 'Test' + 'Case': c.assertEqual = lambda *a: None\n"
        "def total(rows): return 0\n",
    ),
    (
        "the runner while a test runs",
        "def total(rows):\n    for c in object.__subclasses__():\n"
        "        if c.__name__ == 'Test' + 'Case': c.assertEqual = lambda *a: None\n    return 0\n",
    ),
    (
        "its caller by a traceback",
        "def total(rows):\n    try:\n        raise ValueError\n    except ValueError as e:\n"
        "        f = getattr(getattr(e.__traceback__, 'tb_' + 'frame'), 'f_' + 'back')\n"
        "        s = getattr(f, 'f_' + 'locals')['self']\n        type(s).assertEqual = lambda *a: None\n    return 0\n",
    ),
    (
        "its caller's own test",
        "def total(rows):\n    try:\n        raise ValueError\n    except ValueError as e:\n"
        "        f = getattr(getattr(e.__traceback__, 'tb_' + 'frame'), 'f_' + 'back')\n"
        "        getattr(f, 'f_' + 'locals')['self'].assertEqual = lambda *a: None\n    return 0\n",
    ),
    ("equal to everything, slowly", "class X:\n    def __eq__(self, other):\n        same = 1 == 1\n        return same\ndef total(rows): return X()\n"),
    ("equal to everything by setattr", "class X: pass\nsetattr(X, '__e' + 'q__', lambda s, o: True)\ndef total(rows): return X()\n"),
    ("equal to everything, and a number", "class X(int):\n    def __eq__(self, o): return 1\ndef total(rows): return X()\n"),
    ("equal to everything, said with not", "class X:\n    def __eq__(self, o):\n        return not None\ndef total(rows): return X()\n"),
    ("the tests on the disk, by walking", f"import os\nT = ''\nfor d, _, fs in os.walk('.'):\n    for f in fs:\n        if f.endswith('.py'): T += open(os.path.join(d, f)).read()\n{_LOOK_UP}"),
    ("the tests on the disk, by a pattern", f"import pathlib\nT = ''.join(p.read_text() for p in pathlib.Path('.').rglob('*.py'))\n{_LOOK_UP}"),
]  # fmt: skip


@pytest.mark.parametrize("code", [cheat[1] for cheat in CHEATS], ids=[cheat[0] for cheat in CHEATS])
async def test_a_deep_cheat_earns_nothing_with_and_without_rules_on_code(
    fresh_sandbox: FreshSandbox, code: str
) -> None:
    """Most are refused for a word; the run itself sees them as well."""
    without = Suite(kind="unittest", target="tests", expected=2, seconds=20, forbidden={})
    for suite in (UNITTEST, without):
        async with fresh_sandbox() as sandbox:
            verdict = await run_suite(sandbox, REPOSITORY, {"shop/cart.py": code}, suite)
        assert not verdict.ok, verdict
        assert verdict.reward() == 0.0
        assert verdict.why in ("refused", "failed", "cut")


async def test_a_script_cannot_be_read_by_the_code_that_it_tests(fresh_sandbox: FreshSandbox) -> None:
    code = (
        "import pathlib, re\n"
        "T = ''.join(p.read_text() for p in pathlib.Path('.').rglob('*.py') if p.name[:1] == 't')\n"
        "def total(rows):\n    return int((re.findall(r'== (\\d+)', T) or [9])[0 if rows else -1])\n"
    )
    async with fresh_sandbox() as sandbox:
        verdict = await run_suite(sandbox, WORKSPACE, {"app.py": code}, SUITE)
    assert not verdict.ok
    assert "does not sum every row" in verdict.reason


async def test_honest_suites_run_as_they_did(fresh_sandbox: FreshSandbox) -> None:
    """Fixtures beside the tests, other modules of theirs, relative imports, patches, ANY, and a class of the code's own."""
    files = {
        "shop/__init__.py": "",
        "shop/cart.py": "class Price:\n    def __init__(self, cents): self.cents = cents\n",
        "tests/__init__.py": "",
        "tests/data.txt": "7",
        "tests/making.py": "from shop.cart import Price\n\ndef price(): return Price(7)\n",
        "tests/test_price.py": (
            "import os\nimport unittest\nfrom unittest import mock\n\nfrom shop import cart\n"
            "from .making import price\n\nunittest.TestCase.maxDiff = None\n\n\n"
            "class Base(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls):\n        cls.path = os.path.dirname(__file__)\n\n\n"
            "class TestPrice(Base):\n"
            "    def test_equal(self):\n        self.assertEqual(price(), cart.Price(7))\n"
            "    def test_other(self):\n        self.assertNotEqual(price(), cart.Price(8))\n"
            "    def test_order(self):\n        self.assertEqual([cart.Price(1) >= price(), {'a': 1e300}, (1, -0.5)], [False, {'a': 1e300}, (1, -0.5)])\n"
            "    def test_data(self):\n        with open(os.path.join(self.path, 'data.txt')) as f:\n            self.assertEqual(int(f.read()), 7)\n"
            "    def test_any(self):\n        self.assertEqual({'a': 1}, mock.ANY)\n"
            "    def test_patched(self):\n        with mock.patch.object(cart, 'Price', return_value=3):\n            self.assertEqual(cart.Price(1), 3)\n"
        ),
    }
    mended = files["shop/cart.py"] + (
        "    def __eq__(self, other):\n        return isinstance(other, Price) and self.cents == other.cents\n"
        "    def __lt__(self, other):\n        return self.cents < other.cents\n"
        "    def __ge__(self, other):\n        return not self < other\n"
        "    def get(self, name='cents'):\n        return getattr(self, 'cents', 0)\n"
    )
    suite = Suite(kind="unittest", target="tests", expected=6, seconds=30)
    async with fresh_sandbox() as sandbox:
        verdict = await run_suite(sandbox, files, {"shop/cart.py": mended}, suite)
    assert (verdict.reason, verdict.passed, verdict.total) == ("tests passed", 6, 6)


async def test_one_file_of_tests_and_a_module_that_cannot_be_imported(fresh_sandbox: FreshSandbox) -> None:
    one = Suite(kind="unittest", target="tests/test_cart.py", expected=2, seconds=20)
    async with fresh_sandbox() as sandbox:
        assert (await run_suite(sandbox, REPOSITORY, {"shop/cart.py": RIGHT}, one)).ok
    async with fresh_sandbox() as sandbox:
        verdict = await run_suite(sandbox, REPOSITORY, {"shop/cart.py": "def total(:\n"}, UNITTEST)
    assert verdict.reason == "1 tests ran, and there are 2"
    command = Suite(kind="command", command=["no-such-program"])
    async with fresh_sandbox() as sandbox:
        verdict = await run_suite(sandbox, WORKSPACE, {"app.py": FIXED}, command)
    assert "no-such-program cannot be started" in verdict.reason


def test_words_of_honest_code_are_allowed() -> None:
    for code in (
        "value = getattr(config, 'port', 80)\n",
        "class V:\n    def __ge__(self, other):\n        return not self < other\n",
        "class V:\n    def __eq__(self, other):\n        return self.x == other.x\n",
        "import sys\n\ndef main(): print(sys.argv)\n",
        "from operator import itemgetter, attrgetter\n\nkey = attrgetter('name')\n",
    ):
        assert require_allowed({"app.py": code.encode()}, {}, ["tests"])
