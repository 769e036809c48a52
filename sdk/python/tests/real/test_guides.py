"""Runs the code of README.md, of docs/tutorial.md, as one program, and of docs/recipes.md. Needs a server: MODBOX_URL and MODBOX_API_TOKEN."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[4]


def examples(page):
    """Returns the Python code of a page, with the line of the page before each block."""
    text = (ROOT / page).read_text()
    return [(text.count("\n", 0, m.start(1)), m[1]) for m in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


class GuidesTest(unittest.TestCase):
    def printed_by(self, page, line, code, **names):
        """Runs code and returns its output."""
        printed = []

        def show(*values):
            printed.append(" ".join(map(str, values)).strip())

        exec(compile("\n" * line + code, page, "exec"), {"__name__": "guide", "print": show, **names})
        return printed

    def run_code(self, page, line, code):
        """Runs code and compares its output with the comments behind its prints."""
        expected = [part for comment in re.findall(r"print\(.*\)  # (.*)$", code, re.MULTILINE) for part in comment.split(" # ")]
        self.assertTrue(expected)
        self.assertEqual(self.printed_by(page, line, code), expected)

    def test_readme(self):
        line, code = examples("README.md")[0]
        self.assertLessEqual(code.count("\n"), 14)
        steps = iter(["print(primes[999])", "print([n for n in range(2, 8000) if all(n % d for d in range(2, int(n**0.5) + 1))][999])", None])
        conversations = []

        def model(messages):
            conversations.append(list(messages))
            return next(steps)

        self.assertEqual(self.printed_by("README.md", line, code, model=model), ["7919"])
        self.assertIn("NameError", conversations[1][-1]["content"])

    def test_tutorial(self):
        blocks = examples("docs/tutorial.md")
        self.assertGreater(len(blocks), 5)
        program = ""
        for line, code in blocks:
            program += "\n" * (line - program.count("\n")) + code
        self.run_code("docs/tutorial.md", 0, program)

    def test_recipes(self):
        blocks = examples("docs/recipes.md")
        self.assertGreater(len(blocks), 5)
        for line, code in blocks:
            with self.subTest(line=line):
                self.run_code("docs/recipes.md", line, code)
