"""Operators that reshape, join, cut and repeat."""

import numpy as np
from singa import autograd, tensor
from singa import singa_wrap as wrap
from wrong_call import INF, NAN, Row, check, make, parametrize

CUBE, MATRIX = make(2, 3, 4), make(2, 3)
BIG = 1 << 40


ROWS = [
    Row(
        "split into 200",
        lambda: autograd.split(CUBE, 0, [1] * 200),
        ValueError,
        r"\[Split\] parts \((1, ){16}\.\.\.\), 200 in all, do not add up to axis 0 of x",
    ),
    Row(
        "reshape",
        lambda: autograd.reshape(CUBE, (5, 5)),
        ValueError,
        r"\[reshape\] shape \(2, 3, 4\) \(24 elements\) does not fit into \(5, 5\)",
    ),
    Row(
        "reshape two -1",
        lambda: autograd.reshape(CUBE, (-1, -1)),
        ValueError,
        r"\[reshape\] more than one -1 in \(-1, -1\)",
    ),
    Row(
        "reshape -2",
        lambda: autograd.reshape(CUBE, (-2, 12)),
        ValueError,
        r"\[reshape\] negative dimension in \(-2, 12\)",
    ),
    Row(
        "reshape nan",
        lambda: autograd.reshape(CUBE, (NAN,)),
        ValueError,
        r"\[Reshape\] shape must be a whole number, got nan",
    ),
    Row(
        "reshape none",
        lambda: autograd.reshape(CUBE, None),
        TypeError,
        r"\[Reshape\] shape must be an integer, got NoneType",
    ),
    Row(
        "reshape overflow",
        lambda: autograd.reshape(CUBE, (BIG, BIG)),
        ValueError,
        r"\[reshape\] shape \(1099511627776, 1099511627776\) has too many elements",
    ),
    Row(
        "reshape -1 0",
        lambda: autograd.reshape(make(0, 3), (-1, 0)),
        ValueError,
        r"\[reshape\] shape \(0, 3\) does not fit into \(-1, 0\)",
    ),
    Row(
        "transpose rep",
        lambda: autograd.transpose(CUBE, (0, 0, 1)),
        ValueError,
        r"\[transpose\] axis 0 appears twice for shape \(2, 3, 4\)",
    ),
    Row(
        "transpose len",
        lambda: autograd.transpose(CUBE, (0, 1)),
        ValueError,
        r"\[transpose\] 2 axes for shape \(2, 3, 4\)",
    ),
    Row(
        "transpose range",
        lambda: autograd.transpose(CUBE, (0, 1, 5)),
        ValueError,
        r"\[transpose\] axis 5 is outside a tensor of 3 dimensions",
    ),
    Row(
        "transpose str",
        lambda: autograd.transpose(CUBE, "abc"),
        TypeError,
        r"\[Transpose\] axes must be integers, got str",
    ),
    Row(
        "squeeze",
        lambda: autograd.squeeze(CUBE, 0),
        ValueError,
        r"\[squeeze\] axis 0 of shape \(2, 3, 4\) is not of length 1",
    ),
    Row(
        "squeeze range",
        lambda: autograd.squeeze(CUBE, 9),
        ValueError,
        r"\[squeeze\] axis 9 is outside a tensor of 3 dimensions",
    ),
    Row(
        "unsqueeze range",
        lambda: autograd.unsqueeze(CUBE, [9]),
        ValueError,
        r"\[unsqueeze\] axis 9 is outside a tensor of 4 dimensions",
    ),
    Row(
        "unsqueeze rep",
        lambda: autograd.unsqueeze(CUBE, [0, 0]),
        ValueError,
        r"\[unsqueeze\] axis 0 appears twice",
    ),
    Row(
        "flatten axis",
        lambda: autograd.flatten(CUBE, 9),
        ValueError,
        r"\[Flatten\] axis 9 is outside a tensor of shape \(2, 3, 4\)",
    ),
    Row(
        "flatten nan",
        lambda: autograd.flatten(CUBE, NAN),
        ValueError,
        r"\[Flatten\] axis nan is outside a tensor of shape \(2, 3, 4\)",
    ),
    Row(
        "cat shapes",
        lambda: autograd.cat([CUBE, MATRIX], 0),
        ValueError,
        r"\[Concat\] tensor 1 \(2, 3\) does not fit tensor 0 \(2, 3, 4\) beside axis 0",
    ),
    Row(
        "cat shapes2",
        lambda: autograd.cat([CUBE, make(2, 3, 5)], 0),
        ValueError,
        r"\[Concat\] tensor 1 \(2, 3, 5\) does not fit tensor 0 \(2, 3, 4\) beside axis 0",
    ),
    Row(
        "cat axis",
        lambda: autograd.cat([CUBE, CUBE], 7),
        ValueError,
        r"\[Concat\] axis 7 is outside a tensor of 3 dimensions",
    ),
    Row(
        "cat empty",
        lambda: autograd.cat([], 0),
        ValueError,
        r"\[Concat\] needs at least one tensor",
    ),
    Row(
        "cat None",
        lambda: autograd.cat([CUBE, None], 0),
        TypeError,
        r"\[Concat\] inputs have to be Tensors, got NoneType",
    ),
    Row(
        "cat dtypes",
        lambda: autograd.cat([CUBE, make(2, 3, 4, dtype="int32")], 0),
        TypeError,
        r"\[Concat\] tensor 1 is int32, tensor 0 float32",
    ),
    Row(
        "Concat raw None",
        lambda: wrap.Concat([None], 0),
        ValueError,
        r"\[Concat\] one of the tensors is an empty tensor \(None\)",
    ),
    Row(
        "Concat raw int",
        lambda: wrap.Concat(5, 0),
        TypeError,
        r"\[Concat\] xs has to be a sequence, got int",
    ),
    Row(
        "slice len",
        lambda: autograd.slice(CUBE, [0], [1, 2]),
        ValueError,
        r"\[Slice\] starts, ends, axes and steps have to be of one length, got 1, 2,",
    ),
    Row(
        "slice axis",
        lambda: autograd.slice(CUBE, [0], [1], [9]),
        ValueError,
        r"\[Slice\] axis 9 is outside a tensor of 3 dimensions",
    ),
    Row(
        "slice step0",
        lambda: autograd.slice(CUBE, [0], [1], [0], [0]),
        ValueError,
        r"\[Slice\] the step of axis 0 is zero",
    ),
    Row(
        "slice nan",
        lambda: autograd.slice(CUBE, [NAN], [1]),
        ValueError,
        r"\[Slice\] starts must be a whole number, got nan",
    ),
    Row(
        "split parts",
        lambda: autograd.split(CUBE, 0, [1, 5]),
        ValueError,
        r"\[Split\] parts \(1, 5\) do not add up to axis 0 of x \(2, 3, 4\)",
    ),
    Row(
        "split neg",
        lambda: autograd.split(CUBE, 0, [-1, 3]),
        ValueError,
        r"\[Split\] parts \(-1, 3\) do not add up to axis 0 of x \(2, 3, 4\)",
    ),
    Row(
        "split axis",
        lambda: autograd.split(CUBE, 9, [1, 1]),
        ValueError,
        r"\[Split\] axis 9 is outside a tensor of 3 dimensions",
    ),
    Row(
        "split none",
        lambda: autograd.split(CUBE, 0, None),
        ValueError,
        r"\[Split\] needs parts or num_output",
    ),
    Row(
        "split num",
        lambda: autograd.split(CUBE, 1, num_output=2),
        ValueError,
        r"\[Split\] 2 equal pieces of shape \(2, 3, 4\) along 1",
    ),
    Row(
        "split num0",
        lambda: autograd.split(CUBE, 1, num_output=0),
        ValueError,
        r"\[Split\] num_output must be at least 1, got 0",
    ),
    Row(
        "tile",
        lambda: autograd.tile(CUBE, [-1, 1, 1]),
        ValueError,
        r"\[Tile\] repeats \(-1, 1, 1\) has to be at least 0",
    ),
    Row(
        "tile huge",
        lambda: autograd.tile(CUBE, [1 << 40, 1 << 40, 1]),
        ValueError,
        r"\[tensor\] shape \(2199023255552, 3298534883328, 4\) has too many elements",
    ),
    Row(
        "tile mem",
        lambda: autograd.tile(CUBE, [1 << 40, 1, 1]),
        MemoryError,
        r"\[Tile\] a tensor of \(2199023255552, 3, 4\) float32: 100663296 MiB asked for",
    ),
    Row(
        "repeat",
        lambda: tensor.repeat(CUBE, -1, 0),
        ValueError,
        r"\[Repeat\] repeats \(-1, 1, 1\) has to be at least 0",
    ),
    Row(
        "repeat huge",
        lambda: tensor.repeat(CUBE, 1 << 62, 0),
        ValueError,
        r"\[Repeat\] repeats \(4611686018427387904, 1, 1\) is too large for x \(2, 3, 4\)",
    ),
    Row(
        "repeat axis",
        lambda: tensor.repeat(CUBE, 2, 9),
        ValueError,
        r"\[Repeat\] axis 9 is outside a tensor of 3 dimensions",
    ),
    Row(
        "repeat len",
        lambda: tensor.repeat(CUBE, [1, 2, 3], 0),
        ValueError,
        r"\[Repeat\] needs one count, or one for each element of axis 0 of x \(2, 3,",
    ),
    Row(
        "expand",
        lambda: autograd.expand(CUBE, (5, 3, 4)),
        ValueError,
        r"\[Expand\] shape \(2, 3, 4\) does not broadcast with \(5, 3, 4\)",
    ),
    Row(
        "expand huge",
        lambda: autograd.expand(make(1), (BIG, BIG)),
        ValueError,
        r"\[Expand\] shape \(1,\) does not broadcast with \(1099511627776, 1099511627776\)",
    ),
    Row(
        "expand huge used",
        lambda: autograd.exp(autograd.expand(make(1), (BIG,))),
        MemoryError,
        r"\[Tensor_Contiguous\] a tensor of \(1099511627776,\) float32: 4194304 MiB",
    ),
    Row(
        "pad mode",
        lambda: autograd.pad(CUBE, "foo", [0] * 6),
        ValueError,
        r"\[Pad\] mode has to be constant, reflect or edge, got 'foo'",
    ),
    Row(
        "pad len",
        lambda: autograd.pad(CUBE, "constant", [0] * 5),
        ValueError,
        r"\[Pad\] needs 6 pads for shape \(2, 3, 4\), got 5",
    ),
    Row(
        "pad neg",
        lambda: autograd.pad(CUBE, "constant", [-9] * 6),
        ValueError,
        r"\[Pad\] pads -9 and -9 crop axis 0 of shape \(2, 3, 4\) to less than nothing",
    ),
    Row(
        "pad huge",
        lambda: autograd.pad(CUBE, "constant", [1 << 62] * 6),
        ValueError,
        r"\[Pad\] pads 4611686018427387904 and 4611686018427387904 of axis 0 are out",
    ),
    Row(
        "pad mem",
        lambda: autograd.pad(CUBE, "constant", [1 << 40, 0, 0, 0, 0, 0]),
        MemoryError,
        r"\[Pad\] a tensor of \(1099511627778, 3, 4\) float32: 50331648 MiB asked for",
    ),
    Row(
        "pad edge empty",
        lambda: autograd.pad(make(0, 2), "edge", [1, 0, 1, 0]),
        ValueError,
        r"\[Pad\] edge padding needs an element along axis 0 of shape \(0, 2\)",
    ),
    Row(
        "pad const str",
        lambda: autograd.pad(CUBE, "constant", [0] * 6, "a"),
        TypeError,
        r"\[Pad\] constant must be a number, got str",
    ),
    Row(
        "depth_to_space",
        lambda: autograd.depth_to_space(make(1, 3, 4, 4), 2),
        ValueError,
        r"\[DepthToSpace\] axes \(1,\) of shape \(1, 3, 4, 4\) do not divide by 4",
    ),
    Row(
        "depth_to_space 0",
        lambda: autograd.depth_to_space(make(1, 4, 4, 4), 0),
        ValueError,
        r"\[DepthToSpace\] blocksize must be at least 1, got 0",
    ),
    Row(
        "depth_to_space neg",
        lambda: autograd.depth_to_space(make(1, 4, 4, 4), -2),
        ValueError,
        r"\[DepthToSpace\] blocksize must be at least 1, got -2",
    ),
    Row(
        "depth_to_space mode",
        lambda: autograd.depth_to_space(make(1, 4, 4, 4), 2, "X"),
        ValueError,
        r"\[DepthToSpace\] mode has to be 'DCR' or 'CRD', got 'X'",
    ),
    Row(
        "depth_to_space big",
        lambda: autograd.depth_to_space(make(1, 4, 4, 4), 1 << 32),
        ValueError,
        r"\[DepthToSpace\] axes \(1,\) of shape \(1, 4, 4, 4\) do not divide by",
    ),
    Row(
        "space_to_depth",
        lambda: autograd.space_to_depth(make(1, 3, 5, 4), 2),
        ValueError,
        r"\[SpaceToDepth\] axes \(2, 3\) of shape \(1, 3, 5, 4\) do not divide by 2",
    ),
    Row(
        "space_to_depth 0",
        lambda: autograd.space_to_depth(make(1, 3, 4, 4), 0),
        ValueError,
        r"\[SpaceToDepth\] blocksize must be at least 1, got 0",
    ),
    Row(
        "upsample neg",
        lambda: autograd.upsample(make(1, 3, 4, 4), "nearest", [1, 1, -2, 2]),
        ValueError,
        r"\[UpSample\] scales must be at least 1, got -2",
    ),
    Row(
        "upsample nan",
        lambda: autograd.upsample(make(1, 3, 4, 4), "nearest", [1, 1, NAN, 2]),
        ValueError,
        r"\[UpSample\] scales must be a whole number, got nan",
    ),
    Row(
        "upsample inf",
        lambda: autograd.upsample(make(1, 3, 4, 4), "nearest", [1, 1, INF, 2]),
        ValueError,
        r"\[UpSample\] scales must be a whole number, got inf",
    ),
    Row(
        "upsample huge",
        lambda: autograd.upsample(make(1, 3, 4, 4), "nearest", [1, 1, 1e30, 2]),
        ValueError,
        r"\[UpSample\] scales does not fit 64 bits: 1000000000000000019884624838656",
    ),
    Row(
        "upsample mode",
        lambda: autograd.upsample(make(1, 3, 4, 4), "cubic", [1, 1, 2, 2]),
        ValueError,
        r"\[UpSample\] mode has to be 'nearest', got 'cubic'",
    ),
    Row(
        "upsample len",
        lambda: autograd.upsample(make(1, 3, 4, 4), "nearest", [2, 2]),
        ValueError,
        r"\[Upsample\] needs one scale for each axis of x \(1, 3, 4, 4\), got 2",
    ),
    Row(
        "constant_of_shape neg",
        lambda: autograd.constant_of_shape(tensor.from_numpy(np.array([-1, 2])), 0),
        ValueError,
        r"\[ConstantOfShape\] shape must not be negative, got -1",
    ),
    Row(
        "constant_of_shape huge",
        lambda: autograd.constant_of_shape(
            tensor.from_numpy(np.array([BIG, BIG]), dtype="int64"), 0
        ),
        ValueError,
        r"\[tensor\] shape \(1099511627776, 1099511627776\) has too many elements",
    ),
    Row(
        "constant_of_shape float",
        lambda: autograd.constant_of_shape(make(2) * 1.5, 0),
        ValueError,
        r"\[ConstantOfShape\] shape must be a whole number, got 1\.5",
    ),
    Row(
        "cast",
        lambda: autograd.cast(CUBE, "nope"),
        TypeError,
        r"\[dtype\] 'nope' is none of float32, float16, int32, int8, float64, uint8,",
    ),
    Row(
        "cast num",
        lambda: autograd.cast(CUBE, 44),
        TypeError,
        r"\[dtype\] 44 is none of float32, float16, int32, int8, float64, uint8,",
    ),
    Row(
        "identity none",
        lambda: autograd.identity(None),
        TypeError,
        r"\[Identity\] inputs have to be Tensors, got NoneType",
    ),
    Row(
        "shape none",
        lambda: autograd.shape(None),
        TypeError,
        r"\[Shape\] inputs have to be Tensors, got NoneType",
    ),
]


@parametrize(ROWS)
def test_wrong_call(row):
    check(row)
