"""The generator of the synchronous client."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import unasync


class TransformTest(unittest.TestCase):
    def test_code(self):
        cases = {
            "await self._try(call)": "self._try(call)",
            "return await f(await g())": "return f(g())",
            "async def f() -> AsyncX[int]: ...": "def f() -> X[int]: ...",
            "async for chunk in chunks:\n    yield chunk": "for chunk in chunks:\n    yield chunk",
            "async with _AsyncLock() as lock:\n    pass": "with _Lock() as lock:\n    pass",
            "[x async for x in y]": "[x for x in y]",
            "x: AsyncGenerator[Dict[str, int], None] = y[0]": "x: Generator[Dict[str, int], None, None] = y[0]",
            "def list(self) -> AsyncPages[X]: ...": "def list(self) -> Page[X]: ...",
            "await chunks.aclose()": "chunks.close()",
            "async def __aenter__(self): ...": "def __enter__(self): ...",
            "import asyncio": "import time",
            "f(\n    a,  # why\n    await b,\n)": "f(\n    a,  # why\n    b,\n)",
            "x = \\\n    await y": "x = \\\n    y",
        }
        for source, want in cases.items():
            with self.subTest(source):
                self.assertEqual(unasync.transform(source + "\n"), want + "\n")

    def test_prose_but_no_other_strings(self):
        source = 'async def f():\n    """As AsyncX; for an ``async with`` block, with asyncio."""\n    # Of AsyncX.\n    g("async for")\n'
        want = 'def f():\n    """As X; for an ``with`` block, with asyncio."""\n    # Of X.\n    g("async for")\n'
        self.assertEqual(unasync.transform(source), want)

    def test_a_name_without_a_rule_is_refused(self):
        for source in ["run_async()", "x.async_lock", 'x: "AsyncX" = 1']:
            with self.subTest(source), self.assertRaises(unasync.UnknownName):
                unasync.transform(source + "\n")


class FilesTest(unittest.TestCase):
    def test_drift_is_found(self):
        made = unasync.generated()
        path = next(path for path in made if path.name == "client.py")
        self.assertIn("class Modbox:", made[path])
        self.assertEqual(unasync.drifted(made), [])
        self.assertEqual(unasync.drifted({**made, path: made[path] + "x"}), [path])
        self.assertEqual(unasync.drifted({p: text for p, text in made.items() if p != path}), [path])
