"""Operators that reshape, concatenate, split and repeat."""

from wrong_call import table

test_wrong_call = table("""
autograd.split(CUBE, 0, [1] * 200)
    -> ValueError: [Split] axis 0 x (2, 3, 4) 200 parts
    (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ...)
autograd.reshape(CUBE, (5, 5)) -> ValueError: [reshape] (2, 3, 4) 24 (5, 5)
autograd.reshape(CUBE, (-1, -1)) -> ValueError: [reshape] -1 (-1, -1)
autograd.reshape(CUBE, (-2, 12)) -> ValueError: [reshape] (-2, 12)
autograd.reshape(CUBE, (NAN,)) -> ValueError: [Reshape] shape nan
autograd.reshape(CUBE, None) -> TypeError: [Reshape] shape NoneType
autograd.reshape(CUBE, (BIG, BIG)) -> ValueError: [reshape] (1099511627776, 1099511627776)
autograd.reshape(make(0, 3), (-1, 0)) -> ValueError: [reshape] (0, 3) (-1, 0)
autograd.transpose(CUBE, (0, 0, 1)) -> ValueError: [transpose] axis 0 (2, 3, 4)
autograd.transpose(CUBE, (0, 1)) -> ValueError: [transpose] 2 axes (2, 3, 4)
autograd.transpose(CUBE, (0, 1, 5)) -> ValueError: [transpose] axis 5 3
autograd.transpose(CUBE, "abc") -> TypeError: [Transpose] axes str
autograd.squeeze(CUBE, 0) -> ValueError: [squeeze] axis 0 (2, 3, 4) 1
autograd.squeeze(CUBE, 9) -> ValueError: [squeeze] axis 9 3
autograd.unsqueeze(CUBE, [9]) -> ValueError: [unsqueeze] axis 9 4
autograd.unsqueeze(CUBE, [0, 0]) -> ValueError: [unsqueeze] axis 0
autograd.flatten(CUBE, 9) -> ValueError: [Flatten] axis 9 (2, 3, 4)
autograd.flatten(CUBE, NAN) -> ValueError: [Flatten] axis nan (2, 3, 4)
autograd.cat([CUBE, MATRIX], 0) -> ValueError: [Concat] 1 (2, 3) 0 (2, 3, 4) axis 0
autograd.cat([CUBE, make(2, 3, 5)], 0) -> ValueError: [Concat] 1 (2, 3, 5) 0 (2, 3, 4) axis 0
autograd.cat([CUBE, CUBE], 7) -> ValueError: [Concat] axis 7 3
autograd.cat([], 0) -> ValueError: [Concat] one tensor
autograd.cat([CUBE, None], 0) -> TypeError: [cat] NoneType
autograd.Concat(0).forward(CUBE.data, make(2, 3, 4, dtype="int32").data)
    -> TypeError: [Concat] 1 int32 0 float32
wrap.Concat([None], 0) -> ValueError: [Concat] (None)
wrap.Concat(5, 0) -> TypeError: [Concat] xs int
autograd.slice(CUBE, [0], [1, 2]) -> ValueError: [Slice] starts ends axes steps 1 2
autograd.slice(CUBE, [0], [1], [9]) -> ValueError: [Slice] axis 9 3
autograd.slice(CUBE, [0], [1], [0], [0]) -> ValueError: [Slice] step axis 0
autograd.slice(CUBE, [NAN], [1]) -> ValueError: [Slice] starts nan
autograd.split(CUBE, 0, [1, 5]) -> ValueError: [Split] parts (1, 5) axis 0 x (2, 3, 4)
autograd.split(CUBE, 0, [-1, 3]) -> ValueError: [Split] parts (-1, 3) axis 0 x (2, 3, 4)
autograd.split(CUBE, 9, [1, 1]) -> ValueError: [Split] axis 9 3
autograd.split(CUBE, 0, None) -> ValueError: [Split] parts num_output
autograd.split(CUBE, 1, num_output=2) -> ValueError: [Split] 2 (2, 3, 4) 1
autograd.split(CUBE, 1, num_output=0) -> ValueError: [Split] num_output 1 0
autograd.tile(CUBE, [-1, 1, 1]) -> ValueError: [Tile] repeats (-1, 1, 1) 0
autograd.tile(CUBE, [BIG, BIG, 1]) -> ValueError: [tensor] (2199023255552, 3298534883328, 4)
autograd.tile(CUBE, [BIG, 1, 1]) -> MemoryError: [Tile] (2199023255552, 3, 4) float32 100663296
tensor.repeat(CUBE, -1, 0) -> ValueError: [Repeat] repeats (-1, 1, 1) 0
tensor.repeat(CUBE, 1 << 62, 0)
    -> ValueError: [Repeat] repeats (4611686018427387904, 1, 1) x (2, 3, 4)
tensor.repeat(CUBE, 2, 9) -> ValueError: [Repeat] axis 9 3
tensor.repeat(CUBE, [1, 2, 3], 0) -> ValueError: [Repeat] axis 0 x (2, 3, 4)
autograd.expand(CUBE, (5, 3, 4)) -> ValueError: [Expand] (2, 3, 4) (5, 3, 4)
autograd.expand(make(1), (BIG, BIG)) -> ValueError: [Expand] (1,) (1099511627776, 1099511627776)
autograd.exp(autograd.expand(make(1), (BIG,)))
    -> MemoryError: [Tensor_Contiguous] (1099511627776,) float32 4194304
autograd.pad(CUBE, "foo", [0] * 6) -> ValueError: [Pad] mode constant reflect edge foo
autograd.pad(CUBE, "constant", [0] * 5) -> ValueError: [Pad] 6 pads (2, 3, 4) 5
autograd.pad(CUBE, "constant", [-9] * 6) -> ValueError: [Pad] pads -9 -9 axis 0 (2, 3, 4)
autograd.pad(CUBE, "constant", [1 << 62] * 6)
    -> ValueError: [Pad] pads 4611686018427387904 4611686018427387904 axis 0
autograd.pad(CUBE, "constant", [BIG, 0, 0, 0, 0, 0])
    -> MemoryError: [Pad] (1099511627778, 3, 4) float32 50331648
autograd.pad(make(0, 2), "edge", [1, 0, 1, 0]) -> ValueError: [Pad] edge axis 0 (0, 2)
autograd.pad(CUBE, "constant", [0] * 6, "a") -> TypeError: [Pad] constant str
autograd.depth_to_space(make(1, 3, 4, 4), 2) -> ValueError: [DepthToSpace] axes (1,) (1, 3, 4, 4) 4
autograd.depth_to_space(make(1, 4, 4, 4), 0) -> ValueError: [DepthToSpace] blocksize 1 0
autograd.depth_to_space(make(1, 4, 4, 4), -2) -> ValueError: [DepthToSpace] blocksize 1 -2
autograd.depth_to_space(make(1, 4, 4, 4), 2, "X") -> ValueError: [DepthToSpace] mode DCR CRD X
autograd.depth_to_space(make(1, 4, 4, 4), 1 << 32)
    -> ValueError: [DepthToSpace] axes (1,) (1, 4, 4, 4) 18446744073709551616
autograd.space_to_depth(make(1, 3, 5, 4), 2)
    -> ValueError: [SpaceToDepth] axes (2, 3) (1, 3, 5, 4) 2
autograd.space_to_depth(make(1, 3, 4, 4), 0) -> ValueError: [SpaceToDepth] blocksize 1 0
autograd.upsample(make(1, 3, 4, 4), "nearest", [1, 1, -2, 2]) -> ValueError: [UpSample] scales 1 -2
autograd.upsample(make(1, 3, 4, 4), "nearest", [1, 1, NAN, 2]) -> ValueError: [UpSample] scales nan
autograd.upsample(make(1, 3, 4, 4), "nearest", [1, 1, INF, 2]) -> ValueError: [UpSample] scales inf
autograd.upsample(make(1, 3, 4, 4), "nearest", [1, 1, 1e30, 2])
    -> ValueError: [UpSample] scales 64 1000000000000000019884624838656
autograd.upsample(make(1, 3, 4, 4), "cubic", [1, 1, 2, 2])
    -> ValueError: [UpSample] mode nearest cubic
autograd.upsample(make(1, 3, 4, 4), "nearest", [2, 2])
    -> ValueError: [Upsample] scale x (1, 3, 4, 4) 2
autograd.roll(CUBE, 1, 3) -> ValueError: [Roll] axis 3 3
autograd.roll(CUBE, (1, 2), 0) -> ValueError: [Roll] shifts (1, 2) axes (0,)
autograd.roll(CUBE, (1, 2)) -> ValueError: [Roll] axis shifts (1, 2)
autograd.roll(CUBE, 0.5, 0) -> ValueError: [Roll] shifts 0.5
autograd.channel_shuffle(IMAGES, 2) -> ValueError: [ChannelShuffle] 2 groups (2, 3, 8, 8)
autograd.channel_shuffle(IMAGES, 0) -> ValueError: [ChannelShuffle] 0 groups (2, 3, 8, 8)
autograd.channel_shuffle(IMAGES, -3) -> ValueError: [ChannelShuffle] -3 groups (2, 3, 8, 8)
autograd.channel_shuffle(IMAGES, 1.5) -> ValueError: [ChannelShuffle] groups 1.5
autograd.channel_shuffle(make(3), 3) -> ValueError: [ChannelShuffle] axis (3,)
autograd.interpolate(IMAGES) -> ValueError: [Interpolate] size scale
autograd.interpolate(IMAGES, 4, 2.0) -> ValueError: [Interpolate] size scale
autograd.interpolate(IMAGES, (4, 4, 4)) -> ValueError: [Interpolate] 2 (4, 4, 4)
autograd.interpolate(IMAGES, 0) -> ValueError: [Interpolate] size 1 0
autograd.interpolate(IMAGES, scale_factor=-1.0) -> ValueError: [Interpolate] scales (-1.0, -1.0)
autograd.interpolate(IMAGES, scale_factor=NAN) -> ValueError: [Interpolate] scale NaN
autograd.interpolate(IMAGES, BIG) -> ValueError: [Interpolate] (2, 3, 1099511627776, 1099511627776)
autograd.interpolate(IMAGES, (BIG, 1)) -> MemoryError: [Interpolate] (2, 3, 1099511627776, 1)
    float32
autograd.interpolate(IMAGES, 4, mode="linear")
    -> ValueError: [Interpolate] 'linear' (2, 3, 8, 8) bilinear bicubic trilinear
autograd.interpolate(IMAGES, 4, mode="lanczos") -> ValueError: [Interpolate] 'lanczos' (2, 3, 8, 8)
autograd.interpolate(IMAGES, 4, align_corners=True)
    -> ValueError: [Interpolate] align_corners 'nearest'
autograd.interpolate(IMAGES, 4, antialias=True) -> ValueError: [Interpolate] antialias 'nearest'
autograd.interpolate(make(1, 1, 4, 4, dtype="int32"), 2, mode="bilinear")
    -> TypeError: [Interpolate] (1, 1, 4, 4) int32
autograd.resize(MATRIX, sizes=[3, 3], mode="sinc") -> ValueError: [Interpolate] mode nearest 'sinc'
autograd.resize(MATRIX, sizes=[3, 3], coordinate_transformation_mode="tf_crop_and_resize")
    -> ValueError: [Interpolate] coordinate_transformation_mode half_pixel 'tf_crop_and_resize'
autograd.resize(MATRIX, sizes=[3, 3], nearest_mode="even")
    -> ValueError: [Interpolate] nearest_mode floor ceil 'even'
autograd.resize(MATRIX, sizes=[3, 3], axes=[0, 0]) -> ValueError: [Interpolate] axis 0 (2, 3)
autograd.resize(MATRIX, sizes=[3], axes=[4]) -> ValueError: [Interpolate] axis 4 2
autograd.resize(MATRIX, [1e-300, 1]) -> ValueError: [Interpolate] 1e-300
autograd.glu(CUBE, 1) -> ValueError: [Glu] axis 1 (2, 3, 4)
autograd.glu(CUBE, 3) -> ValueError: [Glu] axis 3 (2, 3, 4)
autograd.softplus(CUBE, 0) -> ValueError: [SoftPlus] beta 0
autograd.pixel_shuffle(IMAGES, 2) -> ValueError: [DepthToSpace] axes (1,) (2, 3, 8, 8) 4
autograd.constant_of_shape(tensor.from_numpy(np.array([-1, 2])), 0)
    -> ValueError: [ConstantOfShape] shape -1
autograd.constant_of_shape(tensor.from_numpy(np.array([BIG, BIG]), dtype="int64"), 0)
    -> ValueError: [tensor] (1099511627776, 1099511627776)
autograd.constant_of_shape(make(2) * 1.5, 0) -> ValueError: [ConstantOfShape] shape 1.5
autograd.cast(CUBE, "nope") -> TypeError: [dtype] nope float32 float16 int32 int8 float64 uint8
autograd.cast(CUBE, 44) -> TypeError: [dtype] 44 float32 float16 int32 int8 float64 uint8
autograd.identity(None) -> TypeError: [Identity] NoneType
autograd.shape(None) -> TypeError: [Shape] NoneType
""")
