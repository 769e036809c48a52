# Made from ../_async/__init__.py by tools/unasync.py. Change that file, then run make gen.
"""The client and the objects that it consists of."""
