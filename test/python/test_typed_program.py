"""A user's program with types, which `make lint` checks with mypy --strict, also runs."""

import typed_program


def test_it_trains() -> None:
    losses = typed_program.main()
    assert len(losses) == 6
    assert losses[-1] < losses[0]
