"""The client and the objects that it consists of."""
