#!/usr/bin/env python3
"""Runs the array API standard's test suite on singa's functions.

    PYTHONPATH=build/ci/python python scripts/array_api.py [--suite FOLDER] [--page]
    PYTHONPATH=build/ci/python python scripts/array_api.py -k clip --max-examples 1000

The suite is data-apis/array-api-tests, which is not on PyPI. Without --suite the script clones it
and its submodule, the standard, into build/array-api-tests, which needs a network; --suite names a
folder with both.

`test/python/support/interface/singa_array_api.py` has singa's functions under the standard's names.
The tests of EXPECTED fail, for the reason given there; one of them that passes is an error, too.
Draws depend on the version of hypothesis, which `scripts/requirements.py` pins, and not on chance.
The script prints how many tests passed, and how many failed for which reason; --page writes these
counts to `docs/coming_from/pytorch_names.md`. Other arguments go to pytest. The exit status is
pytest's.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "coming_from" / "pytorch_names.md"
#: The lines of the page that are written.
MARKS = "<!-- array API -->\n", "<!-- end of array API -->\n"

#: Address and commit of a release of the suite (2026.02.26), and of the standard that it pins.
SUITE = "https://github.com/data-apis/array-api-tests", "41379d15d26d67a1e66c840e775d41a8a7fb1516"
STANDARD = "https://github.com/data-apis/array-api", "5f847a3858875c682ae901aa22b0413bf24be9da"

#: By reason, the tests that fail: names of functions that are missing, and patterns of tests,
#: without spaces and with ( ) for [ ].
EXPECTED = {
    "complex numbers, which singa does not have": """
        conj imag real test_has_names(*__complex__) test_array_method_signature(__complex__)
        test_unary(*(real(x_i)*) test_unary(*(imag(x_i)*)
    """,
    "`cross`, factors, inverses, eigenvalues and norms of matrices, which singa does not have": """
        cholesky cross det eigh eigvalsh inv matrix_norm matrix_power matrix_rank pinv qr slogdet
        solve svd svdvals vector_norm test_eig test_eigvals
    """,
    "Fourier transforms, which singa does not have": "test_has_names(fft-*)",
    "`broadcast_arrays`, `broadcast_shapes`, `isin`, `nextafter`, `unique_all` and `vecdot`, which "
    "singa does not have": """
        broadcast_arrays broadcast_shapes TestBroadcastShapes::* isin TestIsin::* nextafter
        test_binary_with_scalars_real(nextafter) test_binary(nextafter(*) unique_all vecdot
        test_vecdot_conj
    """,
    "`sign(NaN)` is 0, a remainder of 0 has the sign of the dividend, `inf // x` is NaN and "
    "`-1 // inf` is -1, as in PyTorch": """
        test_unary(sign(x_iisNaN)*
        test_*(*mod__(x1_iis+0andx2_i<0)* test_*(*mod__(x1_iis-0andx2_i>0)*
        test_binary(remainder(x1_iis+0andx2_i<0)* test_binary(remainder(x1_iis-0andx2_i>0)*
        test_*(*floor*(x1_iis?infinityandisfinite(x2_i)* test_*(*floor*(isfinite(x1_i)*->-0)
    """,
    "`autograd.max(x, 1)` could mean an axis, so that numbers are refused; PyTorch's `maximum` "
    "takes none either": """
        test_binary_with_scalars_real(maximum) test_binary_with_scalars_real(minimum)
    """,
    "`x.to_device(device)` moves x itself, and a `tensordot` that leaves no axes has shape (1,), "
    "as in SINGA": """
        test_array_method_signature(to_device) test_tensordot test_linalg_tensordot
    """,
    "`unsqueeze` raises ValueError for an axis outside": "TestExpandDims::test_expand_dims",
    "a tensor has at most 12 axes": "test_reshape",
    "the diagonal of `eye` is a number of 64 bits": "test_eye",
    "a mask has the length of its axis, also if that is 0, as in PyTorch": "test_getitem_masking",
}


#: The tests of each function.
_OF_NAME = (
    *("test_has_names(*-{0})", "test_func_signature({0})", "test_{0}", "test_linalg_{0}"),
    "test_extension_func_signature(linalg.{0})",
)


def patterns(text: str) -> list[str]:
    """The patterns of a row of EXPECTED."""
    words = [
        [word] if word[1:4] == "est" else [each.format(word) for each in _OF_NAME]
        for word in text.split()
    ]
    return [pattern for each in words for pattern in each]


# The suite.


def get_suite() -> Path:
    """Clones what is not there. Raises SystemExit if it cannot be had."""
    folder = ROOT / "build" / "array-api-tests"
    wanted = (folder, *SUITE), (folder / "array-api", *STANDARD)
    for place, address, commit in wanted:
        if (place / ".git").exists() and _git(place, "diff", "--quiet", commit):
            continue
        place.mkdir(parents=True, exist_ok=True)
        if not (
            _git(place, "init", "-q")
            and _git(place, "fetch", "-q", "--depth", "1", address, commit)
            and _git(place, "checkout", "-q", "FETCH_HEAD")
        ):
            lines = "".join(f"\n  {url} at {commit} in {place}" for place, url, commit in wanted)
            raise SystemExit(
                f"error: the test suite could not be cloned. It needs{lines}\n"
                "or --suite FOLDER, which has the first one, and the second one in array-api"
            )
    return folder


def _git(place: Path, *arguments: str) -> bool:
    return not subprocess.run(["git", "-C", place, *arguments]).returncode


# Its tests.


class Results:
    """A plugin of pytest that marks the tests of EXPECTED, and counts."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()  # by outcome or reason
        self.failed: list[str] = []

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        import pytest

        names = {item: _name(item.nodeid) for item in items}
        for reason, text in EXPECTED.items():
            for item in items:
                if any(fnmatch.fnmatchcase(names[item], each) for each in patterns(text)):
                    item.add_marker(pytest.mark.xfail(reason=reason, strict=True))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call" and report.passed:
            return
        reason = getattr(report, "wasxfail", "")
        self.counts[reason if report.skipped and reason else report.outcome] += 1
        if report.failed:
            self.failed.append(_name(report.nodeid))


def _name(node: str) -> str:
    """The name of a test as EXPECTED has it."""
    return node.partition("::")[2].replace("[", "(").replace("]", ")").replace(" ", "")


def run(suite: Path, arguments: list[str]) -> tuple[int, Results]:
    """pytest's exit status, and the results."""
    sys.path[:0] = [str(ROOT / "test" / "python" / "support" / "interface"), str(suite)]
    os.environ["ARRAY_API_TESTS_MODULE"] = "singa_array_api"
    os.environ["ARRAY_API_TESTS_SKIP_DTYPES"] = "complex64,complex128"
    import pytest

    results = Results()
    options = ["-q", "-p", "no:cacheprovider", f"--rootdir={suite}", "--disable-deadline"]
    options += ["--hypothesis-derandomize", "-W", "ignore", str(suite / "array_api_tests")]
    return pytest.main([*options, *arguments], plugins=[results]), results


# The counts.


def table(results: Results) -> str:
    """How many tests passed, and why others did not, in Markdown."""
    import singa_array_api

    rows = [("pass", results.counts["passed"])]
    rows += [(f"fail: {reason}", results.counts[reason]) for reason in EXPECTED]
    rows += [("fail for another reason", results.counts["failed"])]
    rows += [("are skipped without complex numbers or `fft`", results.counts["skipped"])]
    lines = ["| tests that | number |", "|---|---|"]
    lines += [f"| {what} | {count} |" for what, count in rows]
    lines += ["", "| calls that are left out of tests, since | number |", "|---|---|"]
    lines += [f"| {why} | {count} |" for why, count in sorted(singa_array_api.left_out.items())]
    return "\n".join(lines) + "\n"


def write_page(text: str) -> None:
    """Puts the counts between the marks of the page."""
    before, first, rest = PAGE.read_text().partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    PAGE.write_text(f"{before}{first}\n{text}\n{MARKS[1]}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--suite", type=Path, help="a folder with the suite")
    parser.add_argument("--page", action="store_true", help="write the counts to the page")
    options, arguments = parser.parse_known_args()
    status, results = run((options.suite or get_suite()).resolve(), arguments)
    print(table(results), *results.failed, sep="\n")
    if options.page:
        write_page(table(results))
    return status


if __name__ == "__main__":
    sys.exit(main())
