#!/usr/bin/python3
"""Makes src/modbox/_sync from src/modbox/_async: the same classes for programs that wait for each call.

    unasync.py            writes the files
    unasync.py --check    exits with 1 when a file is not what this program would write

The text is changed token by token, so that layout and comments stay: ``async`` and ``await`` are dropped,
and names are replaced as ``NAMES`` says, or lose their ``Async``. A name with ``async`` in it that no rule covers
is an error. Docstrings and comments are changed in the same way, other strings are not.
Code that differs in more than that between the two clients (transports, terminals, locks, threads, the iteration
over lists) is written by hand, outside of the two folders, as ``AsyncX`` and ``X``.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from pathlib import Path
from typing import Dict, Iterator, List

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "modbox"

NAMES = {
    "AsyncPages": "Page",  # what a list call returns: for asyncio there is one more step, the await
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "aclosing": "closing",
    "asynccontextmanager": "contextmanager",
    "asyncio": "time",  # of which only sleep is used
    "connect_async": "connect",
    "default_async_client": "default_client",
    "default_async_transport": "default_transport",
    "merged_async": "merged",
    "read_async": "read",
    "tell_async": "tell",
}

_HEADER = "# Made from {source} by tools/unasync.py. Change that file, then run make gen.\n"
_WORD = re.compile(r"\b(?:async (?=for\b|with\b)|\w+)")


class UnknownName(Exception):
    """A name says that it is asynchronous, and no rule gives its other form."""


def synchronous(name: str) -> str:
    """The name that a name of code has in the synchronous client."""
    renamed = _renamed(name)
    if "async" in renamed.lower():
        raise UnknownName(name)
    return renamed


def _renamed(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    return name.replace("Async", "", 1) if re.match("_*Async[A-Z]", name) else name


def _prose(text: str) -> str:
    """A docstring or a comment with the names of the synchronous client; asyncio is then that of the other client."""

    def word(match: re.Match[str]) -> str:
        found = match.group()
        return "" if found == "async " else found if found == "asyncio" else _renamed(found)

    return _WORD.sub(word, text)


def transform(source: str) -> str:
    """The synchronous form of a module's text."""
    return "".join(_pieces(source))


def _pieces(source: str) -> Iterator[str]:
    lines = source.splitlines(keepends=True)
    row, column = 1, 0  # where the text goes on that is not written yet
    generators: List[int] = []  # the depths of brackets in which the arguments of an AsyncGenerator are
    depth = 0
    dropped = False
    previous = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            continue  # their text is the space before the next token
        between = _between(lines, (row, column), token.start)
        yield "" if dropped else between
        row, column = token.end
        dropped = token.type == tokenize.NAME and token.string in ("async", "await")
        text = "" if dropped else _changed(token)
        if token.string == "[":
            depth += 1
            if previous == "AsyncGenerator":
                generators.append(depth)
        elif token.string == "]":
            if generators and generators[-1] == depth:
                generators.pop()
                text = ", None]"  # what a generator returns
            depth -= 1
        yield text
        previous = token.string


def _between(lines: List[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """The text between two places, which is space, or a backslash at the end of a line."""
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    rest = lines[start[0] - 1][start[1] :] if start[0] <= len(lines) else ""
    return rest + "".join(lines[start[0] : end[0] - 1]) + lines[end[0] - 1][: end[1]]


def _changed(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME:
        return synchronous(token.string)
    if token.type == tokenize.COMMENT or token.type == tokenize.STRING and token.string.startswith('"""'):
        return _prose(token.string)
    if token.type == tokenize.STRING and re.search(r"\bAsync[A-Z]", token.string):
        raise UnknownName(token.string)  # it would stay as it is
    return token.string


def generated() -> Dict[Path, str]:
    """The text of every file of _sync."""
    made = {}
    for source in sorted((PACKAGE / "_async").glob("*.py")):
        header = _HEADER.format(source=f"../_async/{source.name}")
        made[PACKAGE / "_sync" / source.name] = header + transform(source.read_text())
    return made


def drifted(files: Dict[Path, str]) -> List[Path]:
    """The files of _sync that are missing, have another text, or are too many."""
    there = set((PACKAGE / "_sync").glob("*.py"))
    return [path for path, text in files.items() if path not in there or path.read_text() != text] + sorted(there - files.keys())


def main() -> int:
    files = generated()
    wrong = drifted(files)
    if sys.argv[1:] == ["--check"]:
        for path in wrong:
            print(f"{path}: differs from what tools/unasync.py makes of _async; run make gen")
        return 1 if wrong else 0
    for path in wrong:
        if path in files:
            path.parent.mkdir(exist_ok=True)
            path.write_text(files[path])
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
