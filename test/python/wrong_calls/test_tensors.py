"""Creation of tensors, and reading and writing of their elements."""

from wrong_call import table

test_wrong_call = table("""
tensor.Tensor((-1, 2)) -> ValueError: [tensor] (-1, 2)
tensor.Tensor((NAN, 2)) -> TypeError: [Tensor] shape float
tensor.Tensor((2.5, 2)) -> TypeError: [Tensor] shape float
tensor.Tensor("abc") -> TypeError: [Tensor] shape str
tensor.Tensor((BIG, BIG)) -> ValueError: [tensor] (1099511627776, 1099511627776)
tensor.Tensor((BIG, 0, BIG)) -> ValueError: [tensor] (1099511627776, 0, 1099511627776)
tensor.Tensor((BIG,)) -> MemoryError: [Full] (1099511627776,) float32 4194304
tensor.Tensor((1,) * 20) -> ValueError: [Full] shape 20 12
tensor.Tensor((2,), dtype="complex64")
    -> TypeError: [dtype] complex64 float32 float16 int32 int8 float64 uint8
tensor.Tensor((2,), dtype=99) -> TypeError: [dtype] 99 float32 float16 int32 int8 float64 uint8
tensor.Tensor((2,), dtype=None) -> TypeError: [dtype] None float32 float16 int32 int8 float64 uint8
tensor.Tensor((2,), device="cpu") -> TypeError: [Tensor] device cpu
tensor.Tensor(data=np.array([object()])) -> TypeError: [tensor] object
tensor.Tensor(data=np.ones(2, "c8")) -> TypeError: [tensor] complex64
tensor.Tensor(data="hello") -> TypeError: [tensor] <U5
tensor.Tensor(data={}) -> TypeError: [tensor] object
tensor.Tensor(data=[[1, 2], [3]]) -> ValueError: sequence array
tensor.Tensor(data=np.array(["2020-01-01"], "M8[D]")) -> TypeError: [tensor] datetime64[D]
tensor.Tensor((3,), data=np.ones(4)) -> ValueError: [reshape] (4,) 4 (3,)
tensor.Tensor(data=np.zeros(2, [("a", "f4"), ("b", "i4")]))
    -> TypeError: [tensor]
tensor.Tensor(data=b"abc") -> TypeError: [tensor] |S3
tensor.from_numpy(None) -> TypeError: [tensor] object
tensor.from_numpy(np.ones(2, "c16")) -> TypeError: [tensor] complex128
tensor.from_numpy(np.array([None])) -> TypeError: [tensor] object
tensor.from_numpy(np.array([2**63], "u8"))
    -> ValueError: [from_numpy] uint64 int32 dtype=tensor.int64
tensor.from_numpy(np.array([2**40])) -> ValueError: [from_numpy] int64 int32 dtype=tensor.int64
tensor.from_numpy(np.array([2**63], "u8"), dtype="int64")
    -> ValueError: [tensor] 9223372036854775808 9223372036854775808 int64
tensor.from_numpy(np.array([NAN]), dtype="int32") -> ValueError: [tensor] nan nan int32
tensor.ones((1,)).__dlpack__(dl_device=(2, 0)) -> BufferError: [dlpack] dl_device (1, 0) (2, 0)
tensor.from_dlpack(5) -> TypeError: [from_dlpack] capsule dltensor
tensor.from_dlpack(np.ones(2, "c8")) -> TypeError: [from_dlpack] code 5 64 bits 1 lanes
wrap.from_dlpack(__import__("datetime").datetime_CAPI) -> TypeError: [from_dlpack] capsule dltensor
tensor.zeros(None) -> TypeError: [tensor] shape NoneType
tensor.zeros(3) -> TypeError: [tensor] shape 3 (3,)
wrap.Full((2,), "a", None, 0) -> TypeError: [Full] value str
wrap.Full((2,), 0.0, None, 77) -> TypeError: [dtype] 77
wrap.Full((2,), 0.0, None, -1) -> TypeError: [dtype] -1
wrap.Tensor((-1,)) -> ValueError: [tensor] (-1,)
wrap.Tensor((1,), None, 77) -> TypeError: [dtype] 77
wrap.Tensor((1,), None, 77).size() -> TypeError: [dtype] 77
CUBE.data.AsType(77) -> TypeError: [dtype] 77
CUBE.data.AsType(-3) -> TypeError: [dtype] -3
CUBE.as_type("nope") -> TypeError: [dtype] nope float32 float16 int32 int8 float64 uint8
wrap.Tensor().Item() -> ValueError: [item] empty tensor
wrap.Tensor().Clone() -> ValueError: [clone] empty
wrap.Tensor().Fill(1) -> ValueError: [fill] empty
wrap.Tensor().Reshape((1,)) -> ValueError: [reshape] empty
wrap.Tensor().Transpose() -> ValueError: [transpose] empty
wrap.Tensor().CopyFrom(CUBE.data) -> ValueError: [copy] empty
np.asarray(wrap.Exporter(wrap.Tensor())) -> ValueError: [export] empty
wrap.Tensor().SliceAxis(0, 0, 1) -> ValueError: [slice] empty
wrap.Tensor().shape(0) -> ValueError: [shape] axis 0 0
wrap.Tensor().Plain() -> ValueError: [to_layout] empty
tensor.Tensor(data=wrap.Tensor()).numpy() -> ValueError: [to_buffer] empty
repr(tensor.Tensor(data=wrap.Tensor())) -> ValueError: [to_buffer] empty
CUBE.data.ToDevice(None) -> ValueError: [to_device] device
CUBE.to_device("cpu") -> TypeError: [to_device] device cpu
CUBE.data.CopyFrom(None) -> ValueError: [copy] empty
CUBE.data.CopyFrom(make(5).data) -> ValueError: [broadcast] (5,) (2, 3, 4)
CUBE.data.Fill("a") -> TypeError: [Tensor_Fill] value str
make(2, dtype="int32").data.Fill(NAN) -> ValueError: [fill] value nan int32
make(2, dtype="int8").data.Fill(1e9) -> ValueError: [fill] value 1e+09 int8
CUBE.set_value("a") -> TypeError: [tensor] <U1
CUBE.set_value(np.ones((7,))) -> ValueError: [broadcast] (7,) (2, 3, 4)
CUBE.set_value(None) -> TypeError: [tensor] object
CUBE.copy_from_numpy(np.ones(5)) -> ValueError: [copy_from_numpy] 5 offset 0 24
CUBE.copy_from_numpy(np.ones(5), -1) -> ValueError: [copy_from_numpy] 5 offset -1 24
CUBE.copy_from_numpy(np.ones(5), 1 << 70)
    -> ValueError: [copy_from_numpy] offset 64 1180591620717411303424
CUBE.copy_from_numpy(np.ones(5), NAN) -> ValueError: [copy_from_numpy] offset nan
f"{CUBE:.3f}" -> TypeError: [format] .3f (2, 3, 4)
CUBE.to("cuda:0") -> TypeError: [to] Device cpu cuda:0
CUBE.to("complex64") -> TypeError: [dtype] complex64
CUBE.sum(axes=1) -> TypeError: [sum] axes axis keepdims
CUBE.sum(3) -> ValueError: [ReduceSum] 3 3
CUBE.var(3) -> ValueError: [var] 3 (2, 3, 4)
CUBE.max(dim=1) -> TypeError: [max] max(axis) autograd.topk
CUBE.min(CUBE) -> TypeError: [min] autograd.min
CUBE.flatten() -> ValueError: [flatten] start_dim=0 axis=1
CUBE.flatten(2) -> ValueError: [flatten] start_dim=2 axis=2
CUBE.flatten(2, 1) -> ValueError: [flatten] 2 1 (2, 3, 4)
CUBE.squeeze(1) -> ValueError: [squeeze] 1 (2, 3, 4)
CUBE.view(5, -1) -> ValueError: [reshape] (2, 3, 4)
make(3).mT -> ValueError: [mT] (3,)
CUBE.copy_from_numpy(np.array(["a"])) -> TypeError: [tensor] <U1
tensor.copy_data_to_from(CUBE, MATRIX, 100) -> ValueError: [copy_data_to_from] 100 offset 0 dst 24
tensor.copy_data_to_from(CUBE, MATRIX, -1) -> ValueError: [copy_data_to_from] -1 offset 0 dst 24
tensor.copy_data_to_from(CUBE, MATRIX, 2, -5, 0)
    -> ValueError: [copy_data_to_from] 2 offset -5 dst 24
wrap.CopyDataToFrom(CUBE.data, MATRIX.data, 100)
    -> ValueError: [CopyDataToFrom] 100 0 (2, 3, 4) float32
wrap.CopyDataToFrom(CUBE.data, MATRIX.data, 2, -5, -2)
    -> ValueError: [CopyDataToFrom] 2 -5 (2, 3, 4) float32
CUBE.data.CopyFloatDataFromHostPtr(np.ones(100))
    -> ValueError: [CopyFromHostPtr] 100 0 (2, 3, 4) float32
CUBE.data.CopyFloatDataFromHostPtr("abc") -> TypeError: [CopyFromHostPtr] 'abc'
CUBE.data.CopyFloatDataFromHostPtr(np.ones(2), -5)
    -> ValueError: [CopyFromHostPtr] 2 -5 (2, 3, 4) float32
CUBE.data.GetFloatValue(1000) -> ValueError: [GetFloatValue] 1000 0 (2, 3, 4) float32
CUBE.data.GetFloatValue(-1) -> ValueError: [GetFloatValue] -1 0 (2, 3, 4) float32
CUBE.item() -> ValueError: [item] (2, 3, 4) float32
make(0).item() -> ValueError: [item] (0,) float32
float(CUBE) -> ValueError: [item] (2, 3, 4) float32
bool(CUBE) -> ValueError: [bool] (2, 3, 4)
[1, 2][make(1)] -> TypeError: [index] float32
len(tensor.Tensor(())) -> TypeError: [len] ()
CUBE[5] -> IndexError: [getitem] 5 axis 0 2
CUBE[-3] -> IndexError: [getitem] -3 axis 0 2
CUBE[0, 0, 0, 0] -> IndexError: [getitem] 4 indices 3
CUBE[1.5] -> TypeError: [getitem] float index
CUBE["a"] -> TypeError: [getitem] str index
CUBE[::0] -> ValueError: [getitem] slice(None, None, 0) 2 step
CUBE[..., ...] -> IndexError: [getitem] ...
CUBE[np.array([7])] -> IndexError: [Gather] 7 0 [-2, 2)
CUBE[np.array([0.5])] -> TypeError: [getitem] float64 index
CUBE[np.ones((5,), bool)] -> IndexError: [getitem] mask (5,) (2, 3, 4)
CUBE[make(2)] -> TypeError: [getitem] float32 tensor index int64
CUBE[:, np.ones((5,), bool)] -> IndexError: [getitem] mask (5,) (2, 3, 4)
CUBE[[[0], [1, 2]]] -> TypeError: [getitem] [[0], [1, 2]] index
CUBE[1 << 70] -> IndexError: [getitem] 1180591620717411303424 axis 0 2
CUBE["a":"b"] -> TypeError: [getitem] slice('a', 'b', None) 2
CUBE[np.array([0, 1]), np.array([0, 1, 2])] -> IndexError: [getitem] (2,) (3,)
CUBE[[0], [3]] -> IndexError: [getitem] 3 1 3
CUBE[[0], [[True], [False]]] -> IndexError: [getitem] mask (2, 1)
CUBE[True, [0], [0]] -> IndexError: [getitem] bool
CUBE.__setitem__(0, np.ones(9)) -> ValueError: [broadcast] (9,) (3, 4)
CUBE.__setitem__(0, "a") -> TypeError: [tensor] <U1
CUBE.__setitem__(0, None) -> TypeError: [tensor] object
CUBE.__setitem__(9, 1.0) -> IndexError: [getitem] 9 axis 0 2
CUBE.__setitem__(make(2), 1.0) -> TypeError: [getitem] float32 tensor index int64
CUBE.__setitem__(np.ones((2, 3, 1), bool), 1.0) -> IndexError: [getitem] mask (2, 3, 1) (2, 3, 4)
CUBE.__setitem__([0, 1], np.ones((3, 3, 4))) -> ValueError: [broadcast] (3, 3, 4) (2, 3, 4)
CUBE.__setitem__(([0], [9]), 1.0) -> IndexError: [getitem] 9 1 3
""")
