#!/usr/bin/python3
"""Makes src/modbox/_schemas.py from api/openapi.yaml: the classes of answers, and the options of calls.

    schemas.py            writes the file
    schemas.py --check    exits with 1 when the file is not what this program would write

A member that the document requires has no default if it is a time, an id or one of several words. Text, numbers,
lists and the like are empty by default instead, because a server that is older than the client does not send members
that were added since. A member that the document does not require is None when it is absent, except lists, maps
and booleans, and those in ``EMPTY``. Needs python3-yaml.
"""

from __future__ import annotations

import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import yaml  # type: ignore[import]  # Debian has no package of its types

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "api" / "openapi.yaml"
TARGET = ROOT / "sdk" / "python" / "src" / "modbox" / "_schemas.py"

#: The schemas that are classes, with their names where these differ from the schemas' names.
CLASSES = {
    "Cause": "",
    "Resources": "",
    "ExecLimits": "",
    "Timeouts": "",
    "PublishedPort": "",
    "PortLink": "",
    "Network": "NetworkOptions",
    "SandboxNetwork": "",
    "Sandbox": "SandboxInfo",
    "FileInfo": "",
    "OriginalFile": "",
    "FileChange": "",
    "SnapshotFile": "",
    "SnapshotDownload": "",
    "Event": "",
    "Stats": "",
    "Usage": "",
    "Point": "",
    "Desktop": "DesktopScreen",
    "DesktopWindow": "",
    "Recording": "",
    "ImageLayer": "",
    "Image": "",
    "SandboxImage": "",
    "PrunedImage": "",
    "PrunedImages": "",
    "Requirements": "",
    "Runtime": "",
    "InvalidAptPackage": "",
    "ValidatedAptPackages": "AptPackageChecks",
    "Finding": "",
    "CodeScan": "",
    "OutputStream": "",
    "Execution": "",
    "CodeError": "",
    "Context": "CodeContext",
    "Checkpoint": "",
    "Snapshot": "",
    "Registry": "",
    "Token": "",
    "NewToken": "",
    "SSHKey": "",
    "SignInSession": "",
    "Whoami": "Identity",
    "Version": "ServerVersion",
    "User": "",
    "NewUser": "",
    "Member": "",
    "Workspace": "",
    "WorkspaceDetail": "",
    "Invitation": "",
    "NewInvitation": "",
    "AddedMember": "",
    "Quota": "",
    "DiskUse": "",
    "QuotaUsed": "",
    "QuotaReport": "",
    "AuditRecord": "",
    "AuditEntry": "",
    "AuditReport": "",
    "Webhook": "",
    "NewWebhook": "",
    "WebhookDelivery": "",
    "Worker": "",
    "HostResource": "",
    "HostSandboxes": "",
    "HostImages": "",
    "HostPool": "",
    "HostTemplates": "",
    "HostWaiting": "",
    "HostOperation": "",
    "Host": "",
}
#: The classes that have a base class, whose members they do not repeat.
BASES = {
    "SnapshotFile": "FileInfo",
    "NewToken": "Token",
    "NewUser": "User",
    "WorkspaceDetail": "Workspace",
    "NewInvitation": "Invitation",
    "NewWebhook": "Webhook",
}
#: The members whose words have a type of their own.
WORDS = {
    "SandboxState": ("Sandbox", "state"),
    "PortAccess": ("PublishedPort", "access"),
    "URLAccess": ("Sandbox", "url_access"),
    "Role": ("Member", "role"),
    "CodeScanMode": ("Workspace", "code_scan"),
    "WebhookDeliveryState": ("WebhookDelivery", "state"),
    "WorkerState": ("Worker", "state"),
}
#: The members that repr does not show.
SECRETS = {"PortLink.url", "PortLink.token", "NewToken.token", "NewUser.code", "NewInvitation.code", "NewWebhook.secret"}
#: The members of text that are empty when they are absent; ``*`` is any member of the schema.
EMPTY = {"Sandbox.description", "Snapshot.description", "Snapshot.message", "Member.email", "Webhook.description", "AuditRecord.*", "Runtime.*"}
#: The members that older servers do not send, with the values that hold there.
OLDER = {"Sandbox.url_access": "open", "Workspace.url_access": "open", "Workspace.code_scan": "off"}
#: The schemas of what callers give.
GIVEN = {"Network", "ExecLimits"}


@dataclass
class Options:
    """The options of a call: a class whose members are those of bodies."""

    doc: str
    #: The schemas of the bodies.
    of: Tuple[str, ...] = ()
    #: Members that are arguments of the call, or do not exist in Python.
    without: Tuple[str, ...] = ()
    #: Members with another type than in the body, or with none there; a comment after the type describes them.
    types: Mapping[str, str] = field(default_factory=dict)
    base: str = "TypedDict"
    #: The call whose parameters they are, instead of bodies.
    parameters: str = ""


OPTIONS = {
    "ExecutionCommand": Options(
        "A command that is kept: exactly one of ``command`` and ``shell``.",
        of=("ExecutionCommand",),
        types={
            "files": "Optional[Mapping[str, Union[str, bytes]]]  # Written before it starts, by path.",
            "tty": "Optional[Tuple[int, int]]  # Run it on a terminal of so many rows and columns.",
        },
    ),
    "CreateOptions": Options(
        "What sandbox to make; nothing is the default image with default limits.",
        of=("CreateSandbox",),
        types={
            "command": "Optional[ExecutionCommand]",
            "idempotency_key": "Optional[str]  # Makes repeated creates one within 24 hours; a new key for this call when left out.",
        },
    ),
    "SandboxImageOptions": Options(
        "What can be said of an image of the catalogue. What is left out is as the image has it, or stays.",
        of=("CreateSandboxImage",),
        without=("name", "image"),
    ),
    "SandboxImageChanges": Options(
        "What to change of an image of the catalogue.",
        of=("UpdateSandboxImage",),
        base="SandboxImageOptions",
    ),
    "BuildOptions": Options(
        "What a snapshot is built of, and called.",
        of=("BeginSnapshotBuild", "FinishSnapshotBuild"),
        without=("runtime",),
        types={
            "files": "Union[bytes, Iterable[bytes], AsyncIterable[bytes], None]  # A tar.gz, or chunks of it, with names relative to ``dir``."
        },
    ),
    "BuildImageOptions": Options(
        "What image to build from a Dockerfile.",
        of=("ImageBuild",),
        types={
            "dockerfile": "Optional[str]  # The Dockerfile's text, instead of the file at ``path``.",
            "path": "Optional[str]  # Where the Dockerfile is among the files; ``Dockerfile`` when left out.",
        },
    ),
    "SnapshotFilter": Options(
        "Which snapshots to list; nothing is all of the workspace, newest first.",
        parameters="list-snapshots",
        without=("limit", "cursor"),
    ),
    "AuditFilter": Options(
        "What to list of the audit log; nothing is all of the workspace.",
        parameters="list-audit",
        without=("limit", "cursor"),
        types={"since": "Optional[datetime]", "until": "Optional[datetime]"},
    ),
}

HEADER = '''"""The types of the API. Made from api/openapi.yaml by tools/schemas.py; run make gen."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, AsyncIterable, Dict, Iterable, List, Literal, Mapping, Optional, Sequence, Tuple, TypedDict, Union

from ._decode import _by, _list, _object, _optional_time, _required, parse_time
'''

Schema = Dict[str, Any]


class Unknown(Exception):
    """The document has something that this program does not know."""


class Generator:
    """Writes the classes of a document."""

    def __init__(self, document: Schema) -> None:
        self.schemas: Dict[str, Schema] = document["components"]["schemas"]
        self.operations = {o["operationId"]: o for path in document["paths"].values() for o in path.values() if "operationId" in o}
        self.words = {tuple(self.schemas[s]["properties"][p]["enum"]): name for name, (s, p) in WORDS.items()}

    def check_tables(self) -> None:
        """Refuses entries of the tables that name no member: a member that was renamed could show a secret."""
        entries = [entry.split(".") for entry in [*SECRETS, *EMPTY, *OLDER]] + [list(member) for member in WORDS.values()]
        entries += [[schema, name] for o in OPTIONS.values() for schema in o.of[:1] for name in o.without if not self.has(o.of, name)]
        for schema, name in entries:
            if schema not in self.schemas or name != "*" and name not in self.schemas[schema]["properties"]:
                raise Unknown(f"a table names {schema}.{name}, which the document does not have")

    def has(self, names: Tuple[str, ...], member: str) -> bool:
        return any(member in self.schemas[name]["properties"] for name in names)

    def text(self) -> str:
        self.check_tables()
        parts = [HEADER]
        for name, (schema, prop) in WORDS.items():
            s = self.schemas[schema]["properties"][prop]
            parts.append("\n" + "\n".join([*comment(s.get("description", ""), ""), f"{name} = {literal(s['enum'])}"]) + "\n")
        parts += ["\n\n" + "\n".join(self.dataclass(schema)) + "\n" for schema in CLASSES]
        parts += ["\n\n" + "\n".join(self.options(name, o)) + "\n" for name, o in OPTIONS.items()]
        return "".join(parts)

    # Answers.

    def dataclass(self, schema: str) -> Iterator[str]:
        s = self.schemas[schema]
        base = BASES.get(schema)
        yield "@dataclass(frozen=True)"
        yield f"class {class_name(schema)}{f'({class_name(base)})' if base else ''}:"
        yield from docstring(s.get("description", ""))
        inherited = self.schemas[base]["properties"] if base else {}
        members = {p: v for p, v in s["properties"].items() if p not in inherited}
        required = s.get("required", [])
        for p, v in members.items():
            yield from comment(v.get("description", ""))
            yield f"    {p}: {self.member(schema, p, v, p in required)}"

    def strict(self, s: Schema, required: bool) -> bool:
        """Whether a member has no default."""
        if not required or nullable(s):
            return False
        if "$ref" in s:
            o = self.schemas[ref(s)]
            return any(self.strict(v, p in o.get("required", [])) for p, v in o["properties"].items())
        return bool(s.get("format") in ("uuid", "date-time") or "enum" in s)

    def member(self, schema: str, name: str, s: Schema, required: bool) -> str:
        """The type of a member, and its default."""
        empty, optional = EMPTY & {f"{schema}.{name}", f"{schema}.*"}, nullable(s) or not required
        kind = self.kind(s)
        secret = f"{schema}.{name}" in SECRETS
        if kind == "datetime":
            return "Optional[datetime] = _optional_time()" if optional else "datetime = _required(parse_time)"
        if "$ref" in bare(s):
            if optional:
                return f"Optional[{kind}] = _by(_object({kind}), default=None)"
            return f"{kind} = " + (f"_required(_object({kind}))" if self.strict(s, required) else f"_by(_object({kind}), default={kind}())")
        if s.get("type") == "array" and schema in GIVEN:
            return f"{self.kind(s, given=True)} = ()"
        if s.get("type") == "array":
            item = s["items"]
            convert = f"_by(_list({self.kind(item)}), default_factory=list)" if "$ref" in item else "field(default_factory=list)"
            return f"{kind} = {convert}"
        if kind.startswith("Dict["):
            return f"{kind} = field(default_factory=dict)"
        if f"{schema}.{name}" in OLDER:
            return f'{kind} = "{OLDER[f"{schema}.{name}"]}"'
        if self.strict(s, required):
            return f"{kind} = _required()"
        default = {"str": '""', "int": "0", "float": "0", "bool": "False"}.get(kind)
        if optional and kind != "bool" and not (kind == "str" and empty):
            kind, default = f"Optional[{kind}]", "None"
        if default is None:
            raise Unknown(f"{schema}.{name}: {s}")
        return f"{kind} = field(default={default}, repr=False)" if secret else f"{kind} = {default}"

    def kind(self, s: Schema, given: bool = False) -> str:
        """The type of a value that is not null; ``given`` is for what callers give."""
        s = bare(s)
        if "$ref" in s:
            name = class_name(ref(s))
            return f"Union[{name}, Mapping[str, Any]]" if given else name
        if "enum" in s:
            return self.words.get(tuple(s["enum"])) or literal(s["enum"])
        types = [t for t in listed(s.get("type")) if t != "null"]
        if types == ["string"]:
            return "datetime" if s.get("format") == "date-time" else "str"
        if types == ["array"]:
            return f"{'Sequence' if given else 'List'}[{self.kind(s['items'], given)}]"
        if types == ["object"] and isinstance(s.get("additionalProperties"), dict):
            return f"{'Mapping' if given else 'Dict'}[str, {self.kind(s['additionalProperties'], given)}]"
        simple = {"integer": "int", "number": "float", "boolean": "bool"}
        if len(types) != 1 or types[0] not in simple:
            raise Unknown(f"no type for {s}")
        return simple[types[0]]

    # What callers give.

    def options(self, name: str, o: Options) -> Iterator[str]:
        yield f"class {name}({o.base}, total=False):"
        yield from docstring(o.doc)
        inherited = self.given(OPTIONS[o.base]) if o.base in OPTIONS else {}
        for p, s in self.given(o).items():
            if p in inherited:
                continue
            override, _, described = o.types.get(p, "").partition("  # ")
            yield from comment(described or s.get("description", ""))
            yield f"    {p}: {override or f'Optional[{self.kind(s, given=True)}]'}"

    def given(self, o: Options) -> Dict[str, Schema]:
        """The members of options."""
        members: Dict[str, Schema] = {p: {} for p in o.types}
        for schema in o.of:
            members = {**self.schemas[schema]["properties"], **{p: v for p, v in members.items() if v or p not in self.schemas[schema]["properties"]}}
        if o.parameters:
            for p in self.operations[o.parameters]["parameters"]:
                if p["in"] == "query":
                    members[p["name"]] = {**p["schema"], "description": p.get("description", "")}
        return {p: s for p, s in members.items() if p not in o.without}


def class_name(schema: str) -> str:
    if schema not in CLASSES:
        raise Unknown(f"the schema {schema} has no class; add it to CLASSES")
    return CLASSES[schema] or schema


def bare(s: Schema) -> Schema:
    """A schema without its "or null"."""
    return next(a for a in s["anyOf"] if a.get("type") != "null") if "anyOf" in s else s


def nullable(s: Schema) -> bool:
    return any(a.get("type") == "null" for a in s.get("anyOf", [])) or "null" in listed(s.get("type"))


def listed(value: Any) -> List[Any]:
    return value if isinstance(value, list) else [value]


def ref(s: Schema) -> str:
    return str(bare(s)["$ref"]).rpartition("/")[2]


def literal(words: List[str]) -> str:
    return "Literal[" + ", ".join(f'"{w}"' for w in words if w is not None) + "]"


def comment(text: str, indent: str = "    ") -> List[str]:
    text = re.sub(r"\b(null|absent)\b", "None", text)
    return [f"{indent}#: {line}" for line in textwrap.wrap(text, 110, break_long_words=False, break_on_hyphens=False)]


def docstring(text: str) -> List[str]:
    lines = textwrap.wrap(text.replace("\\", "\\\\"), 110, break_long_words=False, break_on_hyphens=False)
    if not lines:
        raise Unknown("a class without a description")
    if len(lines) == 1:
        return [f'    """{lines[0]}"""', ""]
    return [f'    """{lines[0]}', *(f"    {line}" for line in lines[1:]), '    """', ""]


def document() -> Schema:
    loaded: Schema = yaml.load(DOCUMENT.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return loaded


def generated() -> str:
    """The text of the file."""
    return Generator(document()).text()


def main() -> int:
    made = generated()
    if TARGET.exists() and TARGET.read_text() == made:
        return 0
    if sys.argv[1:] == ["--check"]:
        print(f"{TARGET}: differs from what tools/schemas.py makes of api/openapi.yaml; run make gen")
        return 1
    TARGET.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
