# The module is generated at build time.
__version__: str
BUILD_TYPE: str
