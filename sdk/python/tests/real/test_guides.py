"""Compares the code of README.md, and runs the code of docs/tutorial.md, as one program, and of docs/recipes.md and docs/run-code.md. Needs a server: MODBOX_URL and MODBOX_API_TOKEN."""

import ast
import contextlib
import io
import re
import textwrap
import unittest
from pathlib import Path

import modbox

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
        """README.md begins with examples/python/agent.py, which examples/run.sh runs."""
        code = examples("README.md")[0][1]
        self.assertLessEqual(code.count("\n"), 14)
        self.assertEqual(code, (ROOT / "examples/python/agent.py").read_text())

    def test_integrations(self):
        """The code of docs/integrations.md is in the agents of examples/integrations, which other tests run."""
        agents = ROOT / "examples/integrations"
        programs = [path.read_text() for path in (*agents.glob("*/agent.mjs"), *agents.glob("python/*.py"))]
        text = (ROOT / "docs/integrations.md").read_text()
        blocks = re.findall(r"^```(?:js|python)\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)
        self.assertEqual(len(blocks), len(programs) + 1)
        for code in blocks:
            self.assertTrue(any(code in program for program in programs), code)

    def test_run_code(self):
        """The last line of each block of docs/run-code.md is an expression, with its value as a comment."""
        blocks = examples("docs/run-code.md")
        self.assertEqual(len(blocks), 2)
        with modbox.Sandbox.create(image="modbox/data") as sbx:
            for line, code in blocks:
                with self.subTest(line=line), contextlib.redirect_stdout(io.StringIO()):
                    *lines, last = code.rstrip("\n").split("\n")
                    expression, value = last.strip().split("  # ")
                    program = textwrap.dedent("\n".join([*lines, last.replace(last.strip(), f"got = {expression}")]))
                    names = {"sbx": sbx, "ExecLimits": modbox.ExecLimits}
                    exec(compile(program, "docs/run-code.md", "exec"), names)
                    self.assertEqual(names["got"], ast.literal_eval(value))

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
