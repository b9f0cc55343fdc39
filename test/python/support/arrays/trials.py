"""How many random cases tests draw: SINGA_TEST_TRIALS, 200 where it is not set."""

import os

TRIALS = int(os.environ.get("SINGA_TEST_TRIALS", "200"))


def draws(most: int) -> int:
    """How many of `most` cases a test draws: the share that TRIALS has of 200."""
    return max(2, min(most, most * TRIALS // 200))
