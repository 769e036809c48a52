"""How answers become objects."""

from __future__ import annotations

import re
from dataclasses import MISSING, field, fields
from datetime import datetime
from typing import Any, Callable, Dict, List, Mapping, Optional, Type, TypeVar

T = TypeVar("T")


def parse_time(text: str) -> datetime:
    """Reads RFC 3339. Before Python 3.11 fromisoformat knows neither Z nor other than 3 or 6 digits."""
    text = re.sub(r"\.(\d+)", lambda m: "." + m.group(1)[:6].ljust(6, "0"), text)
    return datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))


def _by(convert: Callable[[Any], Any], **more: Any) -> Any:
    """A field whose value on the wire, unless null, goes through convert."""
    return field(metadata={"convert": convert}, **more)


def _missing() -> Any:
    raise TypeError("a member that is required is missing")


def _required(convert: Optional[Callable[[Any], Any]] = None) -> Any:
    """A field without a default, also after fields that have one."""
    return field(metadata={"convert": convert}, default_factory=_missing)


def _optional_time() -> Any:
    return _by(parse_time, default=None)


def decode(cls: Type[T], wire: Mapping[str, Any]) -> T:
    """Makes a model from the wire. Unknown members are omitted: a newer server may send more."""
    values: Dict[str, Any] = {}
    for f in fields(cls):
        value = wire.get(f.name)
        if value is None:
            if f.default is MISSING and f.default_factory in (MISSING, _missing):
                raise KeyError(f"{cls.__name__}.{f.name}")
            continue
        convert = f.metadata.get("convert")
        values[f.name] = convert(value) if convert else value
    return cls(**values)


def _object(cls: Type[T]) -> Callable[[Any], T]:
    return lambda wire: decode(cls, wire)


def _list(cls: Type[T]) -> Callable[[Any], List[T]]:
    return lambda wire: [decode(cls, item) for item in wire]
