"""Finds constructs in Python code that deserve a look. Reads {"code", "allowed"} and writes {"findings"}, as JSON."""
import ast
import json
import sys

MODULES = {
    "process": "subprocess multiprocessing pty popen2 concurrent.futures.process",
    "network": "socket ssl urllib http ftplib smtplib poplib imaplib telnetlib xmlrpc socketserver asyncore "
    "requests httpx aiohttp urllib3 websocket websockets paramiko",
    "native": "ctypes cffi _ctypes cython",
}
CALLS = {
    "process": "os.system os.popen os.fork os.forkpty os.posix_spawn os.posix_spawnp os.startfile os.kill os.killpg "
    "asyncio.create_subprocess_exec asyncio.create_subprocess_shell",
    "network": "asyncio.open_connection asyncio.start_server",
    "file_delete": "os.remove os.unlink os.rmdir os.removedirs os.truncate shutil.rmtree",
    "eval": "eval exec compile builtins.eval builtins.exec builtins.compile code.interact runpy.run_path runpy.run_module",
    "environment": "os.getenv os.putenv os.unsetenv os.environ.get os.environb.get",
}
DELETE_METHODS = {"unlink", "rmdir", "rmtree"}
MODULE_RULES = {name: rule for rule, names in MODULES.items() for name in names.split()}
CALL_RULES = {name: rule for rule, names in CALLS.items() for name in names.split()}


class Scan(ast.NodeVisitor):
    def __init__(self, allowed):
        self.allowed, self.names, self.findings = allowed, {}, []

    def add(self, node, rule, reason):
        self.findings.append({"line": node.lineno, "column": node.col_offset + 1, "rule": rule, "reason": reason})

    def module(self, node, name):
        if self.allowed is not None and name.partition(".")[0] not in self.allowed:
            self.add(node, "import", f"imports {name}, which is not allowed")
        parts = name.split(".")
        for i in range(len(parts), 0, -1):
            rule = MODULE_RULES.get(".".join(parts[:i]))
            if rule:
                self.add(node, rule, f"imports {name}")
                return

    def visit_Import(self, node):
        for alias in node.names:
            self.module(node, alias.name)
            self.names[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else alias.name.partition(".")[0]

    def visit_ImportFrom(self, node):
        if node.level:
            return
        self.module(node, node.module)
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            self.names[alias.asname or alias.name] = full
            if full in ("os.environ", "os.environb"):
                self.add(node, "environment", f"imports {full}")

    def dotted(self, node):
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        return ".".join([self.names.get(node.id, node.id), *reversed(parts)])

    def visit_Attribute(self, node):
        if self.dotted(node) in ("os.environ", "os.environb"):
            self.add(node, "environment", f"uses {self.dotted(node)}")
        self.generic_visit(node)

    def visit_Call(self, node):
        name = self.dotted(node.func)
        cell = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call) and self.dotted(node.func.value.func) == "get_ipython"
        if cell and node.func.attr in ("system", "getoutput"):
            self.add(node, "process", "runs a shell command")
        elif cell:
            self.add(node, "eval", f"calls a method {node.func.attr} of IPython")
        if name in CALL_RULES and name not in ("os.environ.get", "os.environb.get"):
            self.add(node, CALL_RULES[name], f"calls {name}")
        elif name and name.startswith(("os.exec", "os.spawn")):
            self.add(node, "process", f"calls {name}")
        elif isinstance(node.func, ast.Attribute) and node.func.attr in DELETE_METHODS:
            self.add(node, "file_delete", f"calls a method {node.func.attr}")
        elif name in ("__import__", "builtins.__import__", "importlib.import_module"):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                self.module(node, first.value)
            else:
                self.add(node, "eval", f"calls {name} with a name that is not constant")
        self.generic_visit(node)


def parsed(code):
    """The tree of code. Code that is no Python may be a cell of IPython, whose commands, such as !ls, become calls."""
    try:
        return ast.parse(code)
    except SyntaxError:
        if not any(line.lstrip().startswith(("!", "%", "?")) or "= !" in line or "= %" in line or line.endswith("?") for line in code.splitlines()):
            raise
        try:
            from IPython.core.inputtransformer2 import TransformerManager
        except ImportError:
            raise SyntaxError("it is no Python, and IPython is not installed") from None
        return ast.parse(TransformerManager().transform_cell(code))


def main():
    request = json.load(sys.stdin)
    allowed = request["allowed"]
    scan = Scan(None if allowed is None else set(allowed))
    try:
        scan.visit(parsed(request["code"]))
    except SyntaxError as err:
        scan.findings.append({"line": err.lineno or 1, "column": err.offset or 1, "rule": "syntax", "reason": f"{err.msg}"})
    except (ValueError, RecursionError, MemoryError) as err:
        scan.findings.append({"line": 1, "column": 1, "rule": "syntax", "reason": f"it cannot be parsed: {err}"})
    scan.findings.sort(key=lambda f: (f["line"], f["column"]))
    json.dump({"findings": scan.findings[:201]}, sys.stdout)


main()
