"""Modules that need only the C++ core (`singa_wrap`), `singa.device` and `singa.dtypes`.

- `arrays`: shapes, and conversion of NumPy arrays to types that singa has.
- `check`: checks of numeric arguments.
- `exports`: the names that a package takes from its modules.
- `indexing`: the meaning of `t[key]`.
- `process`: threads, random seed and numeric modes of the process.
- `tracebacks`: what an error that ends a program shows.
"""
