"""CodeSandbox and SandboxPool, and the examples of docs/safety.md. Needs a server: MODBOX_URL and MODBOX_API_TOKEN."""

import asyncio
import re
import threading
import unittest
from pathlib import Path

from modbox import AsyncCodeSandbox, AsyncSandboxPool, CodeSandbox, ExecLimits, ExecutionResult, Modbox, ModboxError, Sandbox, SandboxConfig, SandboxPool

TEXT = (Path(__file__).parents[4] / "docs" / "safety.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)

# The programs of the skill "Sandbox Agent", which import its classes from here.
SKILL = """\
from modbox import CodeSandbox, ExecutionResult, SandboxConfig

config = SandboxConfig(
    language="python",
    timeout_seconds=30,
    max_memory_mb=256,
    allowed_imports=["json", "math", "re"])
sandbox = CodeSandbox(config)
result: ExecutionResult = sandbox.execute('''
import json, math
print(json.dumps({"area": round(math.pi * 4, 3)}))
''')
if result.timed_out:
    print("timed out")
elif result.exit_code != 0:
    print(result.stderr)
else:
    print(result.stdout)
"""

SKILL_POOL = """\
from modbox import SandboxConfig, SandboxPool

pool = SandboxPool(pool_size=3)
pool.initialize(SandboxConfig())
print(pool.status())
sb = pool.acquire()
print(sb.execute("print(sum(range(10)))").stdout)
print(pool.status()["in_use"])
pool.release(sb)
print(pool.status()["available"])
"""

# What a hostile user leaves: a file, a process, a changed environment, a program in the place of another.
DIRT = """\
import os, subprocess
open("/tmp/left", "w").write("secret")
open("/tmp/code/left.py", "w").write("secret = 1")
subprocess.Popen(["sleep", "1000"], start_new_session=True)
open(os.path.expanduser("~/.profile"), "a").write("export LEFT=1")
open("/dev/shm/left", "w").write("secret")
# A process that holds a deleted file open, out of the reach of those who remove files.
held = open("/tmp/held", "w+")
held.write("secret")
held.flush()
os.unlink("/tmp/held")
subprocess.Popen(["tail", "-f", "/dev/null"], stdin=held, pass_fds=[held.fileno()], start_new_session=True)
"""
SEARCH = """\
ls /tmp/left /tmp/code /dev/shm/left /usr/local/bin/python3 2>/dev/null
grep -lsE 'sleep|tail' /proc/[0-9]*/comm
ls -l /proc/[0-9]*/fd 2>/dev/null | grep -o '/tmp/held.*'
grep LEFT ~/.profile
true
"""


class SafetyTest(unittest.TestCase):
    def test_examples_of_the_page(self):
        self.assertEqual(len(EXAMPLES), 4)
        for i, example in enumerate(EXAMPLES):
            with self.subTest(i + 1):
                printed = []
                exec(compile(example, f"docs/safety.md, example {i + 1}", "exec"), {"print": lambda *v: printed.append(" ".join(map(str, v)).strip())})
                for said in re.findall(r"print\(.*\)  # (.*)$", example, re.MULTILINE):
                    self.assertTrue(any(said in line for line in printed), f"{printed} has no {said!r}")
                self.assertNotIn("Traceback", printed[0])

    def test_programs_of_the_skill(self):
        for program, want in ((SKILL, ['{"area": 12.566}']), (SKILL_POOL, ["{'total': 3, 'available': 3, 'in_use': 0}", "45", "1", "3"])):
            printed = []
            names = {"print": lambda *v: printed.append(" ".join(map(str, v)).strip())}
            exec(program, names)
            self.assertEqual(printed, want)
            for made in (names.get("sandbox"), names.get("pool")):
                if made is not None:
                    made.close()

    def test_limits_and_imports(self):
        config = SandboxConfig(allowed_imports=None, max_memory_mb=64, max_cpu_seconds=2, max_file_mb=1, max_processes=3, timeout_seconds=20)
        with CodeSandbox(config) as sandbox:
            programs = {
                "memory": "x = bytearray(200 << 20)\nimport time; time.sleep(100)",
                "cpu": "while True: pass",
                "file_size": "open('/tmp/large', 'wb').write(bytes(2 << 20))",
                "processes": "import subprocess, time\nfor i in range(5): subprocess.Popen(['sleep', '100'])\ntime.sleep(100)",
            }
            for limit, program in programs.items():
                result = sandbox.execute(program)
                self.assertEqual((result.limit, result.timed_out), (limit, False), result)
                self.assertNotEqual(result.exit_code, 0)
            self.assertEqual(sandbox.execute("import os; print(os.getcwd(), __name__, __file__)").stdout, "/tmp/code __main__ /tmp/code/main.py\n")
        with self.assertRaisesRegex(ModboxError, "was closed"):
            sandbox.execute("")
        with CodeSandbox(SandboxConfig(timeout_seconds=1)) as sandbox:
            self.assertEqual(sandbox.execute("while True: pass").timed_out, True)
            for program in ("import os", "from os import path", "__import__('os')", "exec('import os')", "def f():\n import os.path\nf()"):
                result = sandbox.execute(program)
                self.assertEqual((result.exit_code, "import of 'os" in result.stderr), (1, True), result)
            self.assertEqual(sandbox.execute("import re, json, math; print(re.sub('a', 'b', 'ca'))"), ExecutionResult("cb\n", "", 0, False))

    def test_other_languages(self):
        with CodeSandbox(SandboxConfig(language="javascript", allowed_imports=["path"])) as sandbox:
            self.assertEqual(sandbox.execute("console.log(require('node:path').sep, require.main === module)").stdout, "/ true\n")
            result = sandbox.execute("require('child_process')")
            self.assertEqual((result.exit_code, "require of 'child_process' is not allowed" in result.stderr), (1, True), result)
        with CodeSandbox(SandboxConfig(language="bash")) as sandbox:
            self.assertEqual(sandbox.execute("echo $((6*7)); exit 3"), ExecutionResult("42\n", "", 3, False))
        for wrong in ({"language": "cobol"}, {"language": "bash", "allowed_imports": ["os"]}):
            with self.assertRaises(ValueError):
                SandboxConfig(**wrong)

    def test_programs_are_scanned_before_they_run(self):
        code = "import math\nfrom os import system as run\nrun('true')\n"
        with CodeSandbox(SandboxConfig(scan="block")) as sandbox:
            refused = sandbox.execute("print(1)\n" + code)
            self.assertEqual((refused.blocked, refused.exit_code, refused.stdout), (True, 1, ""))
            self.assertEqual([(f.line, f.column, f.rule, f.severity) for f in refused.findings], [(3, 1, "import", "high"), (4, 1, "process", "high")])
            self.assertIn("line 3, column 1: import: imports os, which is not allowed", refused.stderr)
            self.assertEqual([f.rule for f in sandbox.execute("x = (").findings], ["syntax"])
            self.assertEqual(sandbox.execute("import math; print(math.pi > 3)"), ExecutionResult("True\n"))
            deep = sandbox.execute("x = " + "(" * 5000 + ")" * 5000)
            self.assertEqual([f.rule for f in deep.findings], ["syntax"])
            every = "import ctypes, socket, os, shutil\nos.environ['A']\nshutil.rmtree('x')\neval('1')\n__import__('pty')\nimportlib.import_module(x)\n"
            scan = sandbox.sandbox.scan_code(every)
            self.assertEqual([f.rule for f in scan.findings], ["native", "network", "environment", "file_delete", "eval", "process", "eval"])
        with CodeSandbox(SandboxConfig(scan="warn", scan_rules=["process"], allowed_imports=None)) as sandbox:
            result = sandbox.execute(code + "print('ran')")
            self.assertEqual((result.stdout, [f.rule for f in result.findings], result.blocked), ("ran\n", ["process"], False))
        with CodeSandbox(SandboxConfig(language="bash", scan="block")) as sandbox:
            self.assertEqual([f.rule for f in sandbox.execute("echo 1\nkill 1").findings], ["process"])
            self.assertEqual(sandbox.execute("echo $#"), ExecutionResult("0\n"))

    def test_a_released_sandbox_is_clean(self):
        with SandboxPool(pool_size=1) as pool:
            pool.initialize(SandboxConfig(allowed_imports=None, env={"KEPT": "yes"}))
            first = pool.acquire()
            clean = first.sandbox.run(SEARCH).stdout
            self.assertEqual(first.execute(DIRT), ExecutionResult())
            first.sandbox.client.sandboxes.update_env(first.sandbox.id, {"LEFT": "1"})
            first.sandbox.url(8000)
            context = first.sandbox.run_code("left=1", language="bash")
            self.assertEqual(context.status, "ok")
            first.sandbox.run("ln -s /bin/true /usr/local/bin/python3", user="root", check=True)
            dirty = first.sandbox.run(SEARCH).stdout
            for trace in ("/tmp/left", "left.py", "/dev/shm/left", "/usr/local/bin/python3", "/comm", "/tmp/held", "LEFT"):
                self.assertEqual((trace in dirty, trace in clean), (True, False), (trace, dirty, clean))
            self.assertIsNone(pool.acquire())
            pool.release(first)
            with self.assertRaises(ModboxError):
                first.execute("print(1)")
            with self.assertRaises(ValueError):
                pool.release(first)
            second = pool.acquire()
            self.assertEqual(second.sandbox.run(SEARCH).stdout, clean)
            self.assertEqual(list(second.sandbox.ports.list()), [])
            self.assertEqual(second.sandbox.run("echo $LEFT-$KEPT").stdout, "-yes\n")
            self.assertEqual(second.sandbox.run_code("echo $left", language="bash").stdout, "\n")
            pool.release(second)

    def test_a_sandbox_that_has_ended_is_replaced(self):
        with SandboxPool(pool_size=2) as pool:
            pool.initialize()
            first, second = pool.acquire(), pool.acquire()
            self.assertEqual(pool.status(), {"total": 2, "available": 0, "in_use": 2})
            ended = first.sandbox
            ended.delete()
            pool.release(first)
            pool.release(second)
            second = pool.acquire()
            second.sandbox.delete()  # behind the back of the pool, and of its release
            ids = set()
            handles = [pool.acquire()]
            pool.release(second)
            handles.append(pool.acquire())
            for handle in handles:
                ids.add(handle.sandbox.id)
                self.assertEqual(handle.execute("print(1)").stdout, "1\n")
            self.assertEqual((len(ids), ended.id in ids), (2, False))
        for sandbox_id in ids:
            self.assertIn(Sandbox(pool_client(), pool_client().sandboxes.get(sandbox_id)).info.state, ("destroyed", "destroying"))

    def test_threads_share_a_pool(self):
        with SandboxPool(pool_size=2) as pool:
            pool.initialize(SandboxConfig(allowed_imports=None))
            failures = []

            def work(n):
                for _ in range(2):
                    sandbox = None
                    while sandbox is None:
                        sandbox = pool.acquire()
                    try:
                        result = sandbox.execute(f"import os\nprint(os.path.exists('/tmp/mine'))\nopen('/tmp/mine', 'w').write('{n}')")
                        if result.stdout != "False\n":
                            failures.append(result)
                    finally:
                        pool.release(sandbox)

            threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual((failures, pool.status()["available"]), ([], 2))

    def test_asyncio(self):
        async def use():
            async with AsyncCodeSandbox(SandboxConfig(timeout_seconds=10)) as sandbox:
                results = await asyncio.gather(*(sandbox.execute(f"print({n})") for n in range(3)))
                self.assertEqual([r.stdout for r in results], ["0\n", "1\n", "2\n"])
                await sandbox.reset()
                self.assertEqual((await sandbox.execute("print(1)")).stdout, "1\n")
            async with AsyncSandboxPool(1) as pool:
                await pool.initialize()
                sandbox = await pool.acquire()
                self.assertEqual(((await sandbox.execute("print(1)")).stdout, await pool.acquire()), ("1\n", None))
                await pool.release(sandbox)
                self.assertEqual(pool.status(), {"total": 1, "available": 1, "in_use": 0})

        asyncio.run(use())


    def test_policies_of_a_workspace(self):
        own = pool_client()
        workspace = own.workspaces.create("policies of Python")
        try:
            client = Modbox(workspace_id=workspace.id)
            with CodeSandbox(SandboxConfig(allowed_imports=["socket", "math"]), client=client) as sandbox:
                client.workspaces.update(workspace.id, code_scan="block")
                refused = sandbox.execute("x = 1\nimport socket")
                self.assertEqual((refused.blocked, refused.exit_code, refused.stdout), (True, 1, ""))
                self.assertIn("line 2: network", refused.stderr)
                self.assertEqual(sandbox.execute("import math; print(math.floor(2.5))"), ExecutionResult("2\n"))
                self.assertIn("import of 'json' is not allowed", sandbox.execute("import json").stderr)
                client.workspaces.update(workspace.id, code_scan="warn")
                warned = sandbox.execute("import socket; print('ran')")
                self.assertEqual((warned.stdout, [f.rule for f in warned.findings], warned.blocked), ("ran\n", ["network"], False))
            client.workspaces.update(workspace.id, code_scan="block")
            for language, good, bad in (("javascript", "console.log(1)", "eval('1')"), ("bash", "echo 1", "eval true")):
                with CodeSandbox(SandboxConfig(language=language), client=client) as sandbox:
                    self.assertEqual((sandbox.execute(good).stdout, sandbox.execute(bad).blocked), ("1\n", True))
        finally:
            own.workspaces.delete(workspace.id)

    def test_limits_of_code(self):
        with Sandbox.create(image="modbox/data") as sandbox:
            sandbox.run_code("kept = 7")
            burned = sandbox.run_code("while True: pass", limits=ExecLimits(cpu_seconds=1))
            self.assertEqual((burned.limit_exceeded, burned.status), ("cpu", "interrupted"))
            context = sandbox.contexts.create(language="bash", limits=ExecLimits(file_size="1Mi"))
            self.assertEqual(context.limits, ExecLimits(file_size="1Mi"))
            self.assertEqual(sandbox.run_code("head -c 2000000 /dev/zero >/tmp/x", context=context).limit_exceeded, "file_size")
            self.assertEqual((sandbox.run_code("kept").text, sandbox.run_code("1").limit_exceeded), ("7", None))


def pool_client():
    return Modbox()
