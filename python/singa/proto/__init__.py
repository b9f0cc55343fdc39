"""Modules that SINGA generates from its .proto files: only what scripts import from them."""
