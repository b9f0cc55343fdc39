"""Public names have docstrings, with examples that do what they say."""

import re
from pathlib import Path

import docstring_examples
import public_names
import pytest
from public_names import MODULES, Name
from singa import tensor

#: What has no example, and why. Methods are shown in the example of their class, operators in that
#: of their function.
_WITHOUT_EXAMPLE = {
    "singa.accelerate": "needs PyTorch",
    "singa.advise": "its results depend on the machine",
    "singa.data.download_cifar10": "needs the network",
    "singa.data.download_cifar100": "needs the network",
    "singa.distributed.abort": "ends the process",
    "singa.from_torch": "needs PyTorch",
    "singa.training.pretrained.load_pretrained": "needs a file of another library",
}


@pytest.fixture(scope="module")
def names() -> dict[str, list[Name]]:
    found: dict[str, list[Name]] = {module: [] for module in MODULES}
    for name in public_names.public_names():
        found[name.module].append(name)
    return found


def test_public_names_have_docstrings(names: dict[str, list[Name]]) -> None:
    assert sum(map(len, names.values())) > 1000
    lacking = [str(name) for each in names.values() for name in each if not name.doc]
    assert not lacking, f"no docstring: {', '.join(lacking)}"


def test_public_names_have_examples(names: dict[str, list[Name]]) -> None:
    lacking = {
        str(name)
        for each in names.values()
        for name in each
        if not name.is_member and not name.is_operator and ">>>" not in name.doc
    }
    assert lacking == set(_WITHOUT_EXAMPLE)


@pytest.mark.parametrize("module", MODULES)
def test_examples_do_what_they_say(names: dict[str, list[Name]], module: str) -> None:
    docs = {name.doc: str(name) for name in reversed(names[module]) if ">>>" in name.doc}
    differing = [docstring_examples.run(doc, name) for doc, name in docs.items()]
    assert not any(differing), "".join(differing)


def test_elementwise_functions_take_the_types_that_they_say(names: dict[str, list[Name]]) -> None:
    x = tensor.Tensor(data=[1, 2], dtype="int32")
    notes = ("unless that is a float type", "The result has the shape and the type of x.")
    listed = (*names["singa.tensor"], *names["singa.autograd"])
    found = [n for n in listed if not n.is_member]
    of_floats = [n.value for n in found if notes[0] in n.doc]
    of_all = [n.value for n in found if notes[1] in n.doc]
    assert (len(of_floats), len(of_all)) == (23, 34)
    for function in of_all:
        if function in of_floats:
            with pytest.raises(TypeError, match="float type"):
                function(x)
        else:
            assert (function(x).shape, function(x).dtype) == (x.shape, x.dtype)


def test_declarations_of_public_headers_have_comments() -> None:
    """SINGA's wrappers in compat.h are described together."""
    folder = Path(__file__).parents[2] / "include" / "singa"
    headers = [path for path in folder.rglob("*.h") if path.name != "compat.h"]
    assert len(headers) > 40
    lacking = []
    for path in headers:
        before = ""
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            declares = re.match(
                r"SINGA_API |(class|struct|enum class) (SINGA_API )?\w+ (: .*)?\{", line
            )
            if declares and not before.startswith(("//", "template")) and "///<" not in line:
                lacking.append(f"{path.relative_to(folder)}:{number}: {line}")
            before = line
    assert not lacking, "\n".join(lacking)
