"""The comparison of messages with the tables."""

import wrong_call


def test_names_that_a_message_lacks():
    message = "[Add] x (2, 3) float32 and y (2, 3) int32 on cpu-7: 1.5, -4, [0, 3)"
    assert not wrong_call.missing("[Add] x (2, 3) y (2, 3) int32 cpu- 1.5 -4 [0, 3)", message)
    for names in ("[add]", "(2, 3) (2, 3) (2, 3)", "float", "1", "5", "4", "7", "[0, 3]", "y y"):
        assert wrong_call.missing(names, message), names
