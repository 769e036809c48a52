"""Runs the examples of docs/sdk.md. Needs a server: MODBOX_URL and MODBOX_API_TOKEN."""

import re
import time
import unittest
from pathlib import Path

from modbox import CommandError, ModboxClient, Sandbox

TEXT = (Path(__file__).parents[4] / "docs" / "sdk.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


class DocsTest(unittest.TestCase):
    def test_examples(self):
        self.assertTrue(EXAMPLES)
        for i, example in enumerate(EXAMPLES):
            with self.subTest(i + 1), ModboxClient() as modbox:
                printed = []
                told = [line for lines in re.findall(r"print\(.*\)  # (.*)$", example, re.MULTILINE) for line in lines.split(" # ")]
                self.assertTrue(told)

                def show(*values, printed=printed):
                    printed.append(" ".join(map(str, values)).strip())

                exec(compile(example, f"docs/sdk.md, example {i + 1}", "exec"), {"modbox": modbox, "ModboxClient": ModboxClient, "Sandbox": Sandbox, "CommandError": CommandError, "time": time, "print": show})
                self.assertEqual(printed, told)
