"""The switch for SINGA's behaviour in the places where singa behaves differently.

`python -m singa run SCRIPT` and SINGA_COMPAT=1 in the environment turn it on. It holds for the
whole process. docs/singa_compat.md lists what it changes, and the differences that remain.
"""

from __future__ import annotations

import os

from .. import singa_wrap as _c

#: Whether SINGA's behaviour is on. Read at each use.
enabled: bool = _c.EnvironmentValue("SINGA_COMPAT") == "1"


def enable() -> None:
    """Turns SINGA's behaviour on in this process and in processes that it starts.

    >>> singa.compat.enabled
    False
    """
    global enabled
    enabled = True
    os.environ["SINGA_COMPAT"] = "1"
