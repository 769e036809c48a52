"""The generator of the types of the API, and what decode makes of them."""

import sys
import unittest
from datetime import datetime, timezone
from pathlib import Path

import modbox
from modbox._decode import decode
from modbox.models import PublishedPort, SandboxInfo

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import schemas


def generator(**members):
    """A generator of a document in which Cause has these members; the required ones end with _r."""
    required = [name for name in members if name.endswith("_r")]
    document = schemas.document()
    document["components"]["schemas"]["Cause"] = {"description": "Why.", "properties": members, "required": required}
    return schemas.Generator(document)


class GeneratorTest(unittest.TestCase):
    def test_members(self):
        text, cause = {"type": "string"}, {"$ref": "#/components/schemas/Resources"}
        cases = {
            "a_r": (text, 'str = ""'),
            "a": (text, "Optional[str] = None"),
            "b": ({"type": "boolean"}, "bool = False"),
            "c_r": ({"type": ["integer", "null"]}, "Optional[int] = None"),
            "d_r": ({"type": "string", "format": "date-time"}, "datetime = _required(parse_time)"),
            "e_r": ({"type": ["string", "null"], "format": "date-time"}, "Optional[datetime] = _optional_time()"),
            "f_r": ({"type": "string", "enum": ["x", "y"]}, 'Literal["x", "y"] = _required()'),
            "g": ({"type": "array", "items": text}, "List[str] = field(default_factory=list)"),
            "h": ({"type": "object", "additionalProperties": text}, "Dict[str, str] = field(default_factory=dict)"),
            "i_r": (cause, "Resources = _by(_object(Resources), default=Resources())"),
            "j_r": ({"anyOf": [cause, {"type": "null"}]}, "Optional[Resources] = _by(_object(Resources), default=None)"),
            "k": ({"type": "array", "items": cause}, "List[Resources] = _by(_list(Resources), default_factory=list)"),
            "l_r": ({"type": "string", "enum": ["public", "private"]}, "PortAccess = _required()"),
        }
        lines = list(generator(**{name: schema for name, (schema, _) in cases.items()}).dataclass("Cause"))
        for name, (_, want) in cases.items():
            with self.subTest(name):
                self.assertIn(f"    {name}: {want}", lines)

    def test_what_it_does_not_know_is_refused(self):
        for schema in ({"type": "object"}, {"$ref": "#/components/schemas/Problem"}, {"type": ["string", "integer"]}):
            with self.subTest(schema), self.assertRaises(schemas.Unknown):
                list(generator(a=schema).dataclass("Cause"))

    def test_a_table_that_names_no_member_is_refused(self):
        renamed = schemas.document()
        token = renamed["components"]["schemas"]["NewToken"]["properties"]
        token["text"] = token.pop("token")
        with self.assertRaisesRegex(schemas.Unknown, r"NewToken\.token"):
            schemas.Generator(renamed).text()

    def test_descriptions(self):
        lines = list(generator(a={"type": "string", "description": "The reason; null without one."}).dataclass("Cause"))
        self.assertEqual(lines[2:5], ['    """Why."""', "", "    #: The reason; None without one."])

    def test_the_file_is_current(self):
        self.assertEqual(schemas.TARGET.read_text(), schemas.generated())


class DecodeTest(unittest.TestCase):
    WHEN = "2026-01-01T00:00:00Z"

    def test_members_that_are_not_known_are_left_out(self):
        port = decode(PublishedPort, {"port": 1, "access": "public", "url": "u", "created_at": self.WHEN, "colour": "red"})
        self.assertEqual(port, modbox.PublishedPort(1, "u", "public", datetime(2026, 1, 1, tzinfo=timezone.utc)))

    def test_a_server_may_be_older(self):
        wire = {"id": "s", "state": "running", "created_at": self.WHEN, "updated_at": self.WHEN}
        sandbox = decode(SandboxInfo, wire)
        self.assertEqual((sandbox.name, sandbox.labels, sandbox.cause, sandbox.url_access), ("", {}, None, "open"))
        for name in wire:
            with self.subTest(name), self.assertRaises(KeyError):
                decode(SandboxInfo, {k: v for k, v in wire.items() if k != name})
        with self.assertRaises(TypeError):
            SandboxInfo(id="s", state="running")
