"""examples/custom_operator/train.py."""

import re


def results(output):
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", output)]
    (beyond,) = re.findall(r"mean squared error ([\d.]+)", output)
    return losses, float(beyond)


def test_the_operator_is_right_and_learns_what_relu_cannot(run):
    done = run("custom_operator/train.py")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "gradcheck: the gradient of Snake is correct" in done.stdout
    losses, beyond = results(done.stdout)
    assert losses[0] > 0.3  # the mean square of a sine is 0.5
    assert losses[-1] < 0.01
    assert beyond < 0.25

    relu = run("custom_operator/train.py", "--relu")
    assert relu.returncode == 0, relu.stderr
    assert results(relu.stdout)[1] > 1


def test_gradcheck_finds_a_wrong_backward(run, examples, tmp_path):
    """gradcheck of the example can fail."""
    script = tmp_path / "wrong.py"
    text = (examples / "custom_operator/train.py").read_text()
    assert "2 * self.a" in text
    script.write_text(text.replace("2 * self.a", "self.a"))
    done = run(str(script))
    assert done.returncode != 0
    assert "GradientError" in done.stderr


def test_help_and_wrong_steps(run):
    assert "--relu" in run("custom_operator/train.py", "--help").stdout
    done = run("custom_operator/train.py", "--steps", "0")
    assert done.returncode == 2
    assert "--steps must be 1 or more" in done.stderr
