"""The pages' Python. Each page is one module; only generate_agent_code is added.

Called with a directory of ``<page>.py`` and the name of this run; prints a JSON
object {"name", "error"} for each test, where error is null when it passed.
"""

import json
import os
import sys
import traceback
from pathlib import Path

from modbox import ModboxClient

work, run = Path(sys.argv[1]), sys.argv[2]
client = ModboxClient()


def load(page):
    """Runs a page's code and returns its names."""
    names = {"__name__": page.replace("-", "_")}
    path = work / f"{page}.py"
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names


def equal(got, want):
    if got != want:
        raise AssertionError(f"got {got!r}, want {want!r}")


def agent_session():
    names = load("ai-coding-agents")
    prompts = []

    def generate_agent_code(prompt):
        prompts.append(prompt)
        return "import os; print('I am', os.environ['SESSION_ID'])"

    names["generate_agent_code"] = generate_agent_code
    output = names["run_agent_session"]("say who you are", f"py-{run}")
    equal((output["exitCode"], output["stdout"], output["stderr"]), (0, f"I am py-{run}\n", ""))
    equal(prompts, ["say who you are"])
    equal(client.get_sandbox(f"agent-py-{run}").status, "destroyed")


def execute_code():
    # The page reads the variable without a default, so it must be there; the sandbox has no such key.
    os.environ["SANDBOX_API_KEY"] = "anything"
    execute = load("code-execution")["execute_code"]
    result = execute('print("Hello, world!")', "python3")
    equal((result["exitCode"], result["stdout"], result["stderr"]), (0, "Hello, world!\n", ""))
    if not (isinstance(result["durationMs"], int) and result["durationMs"] >= 0):
        raise AssertionError(f"durationMs is {result['durationMs']!r}")
    result = execute("echo out; echo err >&2; exit 4", "bash")
    equal((result["exitCode"], result["stdout"], result["stderr"]), (4, "out\n", "err\n"))


TESTS = {
    "Python agent session: the code runs in its own sandbox, which ends": agent_session,
    "Python execute_code: Python and Bash": execute_code,
}

for name, test in TESTS.items():
    error = None
    try:
        test()
    except Exception:
        error = traceback.format_exc()
    print(json.dumps({"name": name, "error": error}), flush=True)
