"""Code in sandboxes that are used again, for both clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence

from ._schemas import CodeScan, ExecLimits, Finding, Resources
from .models import ExecResult, LimitName, Program

#: The directory in which code runs.
WORK_DIR = "/tmp/code"
#: The modules that Python code may import unless its config says otherwise.
_PYTHON_IMPORTS = ("json", "math", "re")
#: The sandbox's memory beyond the limit of its code: the agent, files in memory, and a reserve, so that the limit is hit.
_SPARE_MB = 256

#: The file of a program.
_FILES = {"python": "main.py", "javascript": "main.js", "bash": "main.sh"}


@dataclass
class SandboxConfig:
    """How code runs: its language, limits and imports."""

    #: ``python``, ``javascript`` or ``bash``.
    language: str = "python"
    #: The program is killed after this.
    timeout_seconds: int = 30
    #: The memory of the program with all its processes, at least 16.
    max_memory_mb: int = 256
    #: The packages that the program itself may import: their top-level names. None allows all. The default holds for
    #: Python; for other languages the default is None. Not for ``bash``.
    allowed_imports: Optional[Sequence[str]] = field(default_factory=lambda: list(_PYTHON_IMPORTS))
    #: Whether programs are scanned before they run: ``off``; ``warn``: the result has the findings; ``block``: a program
    #: with findings does not run.
    scan: Literal["off", "warn", "block"] = "off"
    #: The rules whose findings count; None is all rules.
    scan_rules: Optional[Sequence[str]] = None
    #: The processor time of the program with all its processes.
    max_cpu_seconds: Optional[int] = None
    #: The size of each file that the program writes.
    max_file_mb: Optional[int] = None
    #: The processes that the program may have at a time.
    max_processes: Optional[int] = None
    #: The image of the sandbox; it must have the language.
    image: str = "modbox/code-exec"
    #: Variables of the sandbox's environment.
    env: Mapping[str, str] = field(default_factory=dict)
    #: Whether the sandbox has network.
    network: bool = False
    #: The sandbox ends by itself this long after its creation, or in a pool after it was last acquired.
    ttl_seconds: int = 900

    def __post_init__(self) -> None:
        if self.language not in _FILES:
            raise ValueError(f"language is {self.language!r}; it must be one of {', '.join(_FILES)}")
        if isinstance(self.allowed_imports, str):
            raise TypeError("allowed_imports is a list of names, not a string")
        if self.language != "python" and self.allowed_imports == list(_PYTHON_IMPORTS):
            self.allowed_imports = None
        if self.language == "bash" and self.allowed_imports is not None:
            raise ValueError("allowed_imports has no meaning for bash, which has no imports")
        if self.scan not in ("off", "warn", "block"):
            raise ValueError(f"scan is {self.scan!r}; it must be off, warn or block")

    def limits(self) -> ExecLimits:
        """The limits of one execution."""
        return ExecLimits(
            memory=f"{self.max_memory_mb}Mi",
            cpu_seconds=self.max_cpu_seconds,
            file_size=None if self.max_file_mb is None else f"{self.max_file_mb}Mi",
            processes=self.max_processes,
        )

    def create_options(self) -> Dict[str, Any]:
        """The options with which the sandbox is created."""
        return {
            "image": self.image,
            "env": dict(self.env),
            "network": {"enabled": self.network},
            "resources": Resources(memory=f"{self.max_memory_mb + _SPARE_MB}Mi"),
            "ttl_seconds": self.ttl_seconds,
        }

    def program(self, code: str) -> Program:
        """A program with its file and its allowed imports."""
        return Program(code, f"{WORK_DIR}/{_FILES[self.language]}", self.language, self.allowed_imports)  # type: ignore[arg-type]


@dataclass
class ExecutionResult:
    """The output of code, and how it ended."""

    stdout: str = ""
    stderr: str = ""
    #: 128 + signal when a signal ended it.
    exit_code: int = 0
    timed_out: bool = False
    #: The limit that it exceeded, and that ended it.
    limit: Optional[LimitName] = None
    #: The findings of the scan before it ran: of the scan of the config, or else of the scan that the policy of the
    #: workspace demands.
    findings: List[Finding] = field(default_factory=list)
    #: It did not run, because of its findings, or by the policy of the workspace, as ``stderr`` says then; ``exit_code``
    #: is 1.
    blocked: bool = False


def execution_result(config: SandboxConfig, r: ExecResult[str], findings: List[Finding]) -> ExecutionResult:
    if config.scan == "off" and r.scan is not None:
        findings = r.scan.findings
    return ExecutionResult(
        stdout=r.stdout, stderr=r.stderr, exit_code=r.exit_code, timed_out=r.timed_out, limit=r.limit_exceeded, findings=findings
    )


def counted(config: SandboxConfig, scan: CodeScan) -> List[Finding]:
    """The findings of a scan that count. A program that was not scanned, or not completely, counts in any case."""
    rules = config.scan_rules
    return [f for f in scan.findings if rules is None or f.rule in rules or f.rule == "syntax" or scan.truncated]


def blocked_result(findings: List[Finding]) -> ExecutionResult:
    """The result of a program that does not run."""
    lines = [f"line {f.line}, column {f.column}: {f.rule}: {f.reason}" for f in findings]
    return ExecutionResult(stderr="\n".join(["The program was not run:", *lines, ""]), exit_code=1, findings=findings, blocked=True)
