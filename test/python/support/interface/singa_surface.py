"""Names, arguments and defaults that scripts for Apache SINGA 5 use, by module.

`name(arguments)` is a function or a constructor. `Class(Base): method(arguments) ...` is a class
with its methods, where `init` stands for `__init__`. singa may have more arguments after these, and
defaults where SINGA has none. Where SINGA's default is a mutable object or a device, singa's
default is None with the same meaning.
"""

AUTOGRAD = """
axis_helper(y_shape, x_shape) back_broadcast(y_shape, x_shape, x) infer_dependency(op)
gradients(y, dy=None) backward(y, dy=None) mean(*l) relu(x) less(x, y) clip(x, min=None, max=None)
identity(x) matmul(x, w) greater(x, y) add_bias(x, b, axis=0) reshape(x, shape) prelu(x, slope)
add(a, b) elu(x, alpha=1) equal(x, y) selu(x, alpha=1.67326, gamma=1.0507) softmax(x, axis=1)
sum(*l) binary_cross_entropy(x, t) cross_entropy(x, t) ranking_loss(pos, neg, M=0.2)
softmax_cross_entropy(x, t) mse_loss(x, t) ctensor2numpy(x) flatten(x, axis=1)
scatter_elements(x, indices, updates, axis=0) cat(xs, axis=0)
conv2d(handle, x, W, b=None, odd_padding=(0, 0, 0, 0))
batchnorm_2d(handle, x, scale, bias, running_mean, running_var)
pooling_2d(handle, x, odd_padding=(0, 0, 0, 0)) tanh(x) cos(x) cosh(x) acos(x) acosh(x) sin(x)
sinh(x) asin(x) asinh(x) tan(x) atan(x) atanh(x) sigmoid(x) mul(x, y) unsqueeze(x, axis=-1)
transpose(x, shape) add_all(*xs) abs(a) exp(a) leakyrelu(x, a=0.01) sign(a) pow(a, b) softsign(x)
sqrt(x) softplus(x) sub(a, b) min(*l) log(x) hardsigmoid(x, alpha=0.2, gamma=0.5)
squeeze(x, axis=[]) div(a, b) shape(x) max(*l) negative(x) reciprocal(x)
gemm(A, B, C=None, alpha=1.0, beta=1.0, transA=0, transB=0)
globalaveragepool(x, data_format='channels_first') constant_of_shape(x, value=0)
dropout(x, seed=0, ratio=0.5) reduce_sum(x, axes=None, keepdims=1)
reduce_mean(x, axes=None, keepdims=1) slice(x, starts, ends, axes=None, steps=None) ceil(x)
floor(x) split(x, axis, parts, num_output=None) gather(x, axis, indices) tile(x, repeats)
nonzero(x) cast(x, to) onehot(axis, indices, depth, values) cossim(a, b) expand(x, shape)
pad(x, mode, pads, constant=0.0) upsample(x, mode, scales)
depth_to_space(x, blocksize, mode='DCR') space_to_depth(x, blocksize, mode='DCR')
where(x, y, condition) round(x) rounde(x) embedding(x, w) erf(x)
Operator(name=None) Dummy(tensor, name=None) Mean() ReLU() Less() Clip(min, max) Identity() Matmul()
Greater() AddBias(axis=0) Reshape(shape) PRelu() Add() Elu(alpha=1.0) Equal()
SeLU(alpha=1.67326, gamma=1.0507) SoftMax(axis=1) Sum() BinaryCrossEntropy(t) CrossEntropy(t)
RankingLoss(M=0.2) SoftMaxCrossEntropy(t) MeanSquareError(t) Flatten(axis=1)
ScatterElements(indices, updates, axis=0) Concat(axis=0)
_Conv2d(handle, odd_padding=(0, 0, 0, 0))
_BatchNorm2d(handle, running_mean, running_var, name=None)
_Pooling2d(handle, odd_padding=(0, 0, 0, 0)) Tanh() Cos() Cosh() Acos() Acosh() Sin() Sinh() Asin()
Asinh() Tan() Atan() Atanh() Sigmoid() Mul() Unsqueeze(axis) Transpose(perm) Abs() Exp()
LeakyRelu(a) Sign() Pow() SoftSign() Sqrt() SoftPlus() Sub() Min() Log()
HardSigmoid(alpha=0.2, gamma=0.5) Squeeze(axis=[]) Div() Shape() Max() And() Or() Not() Xor()
Negative() Reciprocal() Gemm(alpha=1.0, beta=1.0, transA=0, transB=0)
GlobalAveragePool(data_format='channels_first') ConstantOfShape(value=0.0)
Dropout(seed=0, ratio=0.5) ReduceSum(axes=None, keepdims=1) ReduceMean(axes=None, keepdims=1)
Slice(starts, ends, axes=None, steps=None) Ceil() Floor() Split(axis, parts, num_output=None)
Gather(axis, indices) Tile(repeats) NonZero() Cast(to) OneHot(axis, depth, values)
_RNN(handle, return_sequences=False, use_mask=False, seq_lengths=None) CosSim() Expand(shape)
Pad(mode, pads, constant=0.0) UpSample(mode, scales) DepthToSpace(blocksize, mode='DCR')
SpaceToDepth(blocksize, mode='DCR') Where(condition) Round() Rounde() Embedding() Erf()
_and(a, b) _or(a, b) _not(x) _xor(a, b)
"""
DEVICE = """
get_num_gpus() get_gpu_ids() get_gpu_mem_size(id) get_num_opencl_platforms()
get_num_opencl_devices() device_query(id, verbose=False) create_cpu_device() create_cuda_gpus(num)
create_cuda_gpu() create_cuda_gpus_on(device_ids) create_cuda_gpu_on(device_id)
create_opencl_device() get_default_device() enable_lazy_alloc(enable)
"""
TENSOR = """
from_raw_tensor(t) from_raw_tensors(tt) zeros_like(t) ones_like(t) product(shape) sizeof(dtype)
contiguous(tensor) reshape(tensor, shape) transpose(t, axes=None)
copy_data_to_from(dst, src, size, dst_offset=0, src_offset=0) from_numpy(np_array, dev=None)
to_host(t) to_numpy(t) abs(t) exp(t) ceil(t) log(t) sigmoid(t) sign(t) sqrt(t) square(t) tanh(t)
sum(t, axis=None, out=None) pow(t, x, out=None) average(t, axis=None) softmax(t, out=None) lt(t, x)
le(t, x) gt(t, x) ge(t, x) eq(t, x) add(lhs, rhs, ret=None) sub(lhs, rhs, ret=None)
eltwise_mult(lhs, rhs, ret=None) mult(A, B, C=None, alpha=1.0, beta=0.0) einsum(ops, *args)
repeat(t, repeats, axis=None) tensordot(A, B, axes=2) div(lhs, rhs, ret=None) axpy(alpha, x, y)
bernoulli(p, t) gaussian(mean, std, t) uniform(low, high, t) add_column(alpha, v, beta, M)
add_row(alpha, v, beta, M) sum_columns(M) sum_rows(M) copy_from_numpy(data, np_array)
concatenate(tensors, axis) random(shape, device=None)
zeros(shape, device=None) ones(shape, device=None) _call_singa_func(_singa_func, *args)
"""
UTILS = """
update_progress(progress, info) handle_odd_pad_fwd(x, odd_padding)
handle_odd_pad_bwd(dx, odd_padding) same_pad_shape_check(handle, pad_mode, x)
re_new_handle(handle, x, is_pool=False) force_unicode(s) post_order_recursive(root, root_t)
get_padding_shape(pad_mode, input_spatial_shape, kernel_spatial_shape, strides_spatial)
get_output_shape(auto_pad, input_spatial_shape, kernel_spatial_shape, strides_spatial)
"""
IMAGE_TOOL = """
load_img(path, grayscale=False) crop(img, patch, position) crop_and_resize(img, patch, position)
resize(img, small_size) color_cast(img, offset) enhance(img, scale) flip(img) flip_down(img)
get_list_sample(l, sample_size)
"""
IMAGE_TOOL_METHODS = """
load(path, grayscale=False) set(imgs) append(img) get() num_augmentation()
resize_by_range(rng, inplace=True) resize_by_list(size_list, num_case=1, inplace=True)
resize_by_hw_range(rng, inplace=True) resize_by_hw_list(size_list, num_case=1, inplace=True)
rotate_by_range(rng, inplace=True) rotate_by_list(angle_list, num_case=1, inplace=True)
crop5(patch, num_case=1, inplace=True) crop3(patch, num_case=1, inplace=True)
crop8(patch, num_case=1, inplace=True) random_crop(patch, inplace=True)
random_crop_resize(patch, inplace=True) flip(num_case=1, inplace=True)
flip_down(num_case=1, inplace=True) color_cast(offset=20, inplace=True)
enhance(scale=0.2, inplace=True)
"""
METHODS = """
init(shape=(), device=None, dtype=float32, data=None, requires_grad=True, stores_grad=False,
creator=None, name=None)
is_dummy() ndim() is_empty() is_transpose() transpose(axes=None) size() memsize() contiguous()
reshape(shape) reset_like(t) as_type(dtype) to_type(dtype) to_device(device) to_host() l2() l1()
set_value(x, inplace=True) copy_from_numpy(np_array, offset=0) copy_data(t) copy_from(t, offset=0)
clone() repeat(repeats, axis) T() copy() deepcopy() bernoulli(p, inplace=True)
gaussian(mean, std, inplace=True) uniform(low, high, inplace=True) add_column(v) add_row(v)
div_column(v) div_row(v) mult_column(v) mult_row(v)
"""
LAYER = """
LayerMeta(type): init_wrapper(func) forward_wrapper(func)
Layer(object): init() initialize(*input) forward(*input) get_params() set_params(parameters)
    get_states() set_states(states) dtype_check(*inputs) device_check(*inputs)
    register_layers(*args)
Linear(Layer): init(out_features, *args, bias=True, **kwargs) initialize(x) forward(x)
    get_params() set_params(parameters)
Gemm(Layer): init(nb_kernels, alpha=1.0, beta=1.0, transA=False, transB=True, bias=True,
    bias_shape=None) initialize(x) forward(x) get_params() set_params(parameters)
Embedding(Layer): init(input_dim, output_dim, initializer='gaussian') initialize(x)
    from_pretrained(W, freeze=True) forward(x) get_params() set_params(parameters)
Conv2d(Layer): init(nb_kernels, kernel_size, *args, stride=1, padding=0, dilation=1, group=1,
    bias=True, pad_mode='NOTSET', activation='NOTSET', **kwargs) initialize(x) forward(x)
    get_params() set_params(parameters)
SeparableConv2d(Layer): init(nb_kernels, kernel_size, *args, stride=1, padding=0, bias=False)
    initialize(x) forward(x)
BatchNorm2d(Layer): init(*args, momentum=0.9) initialize(x) forward(x) get_params()
    set_params(parameters) get_states() set_states(states)
Pooling2d(Layer): init(kernel_size, stride=None, padding=0, is_max=True, pad_mode='NOTSET')
    initialize(x) forward(x)
MaxPool2d(Pooling2d): init(kernel_size, stride=None, padding=0, pad_mode='NOTSET')
AvgPool2d(Pooling2d): init(kernel_size, stride=None, padding=0, pad_mode='NOTSET')
MaxPool1d(Pooling2d): init(kernel_size, stride=None, padding=0, pad_mode='NOTSET')
AvgPool1d(Pooling2d): init(kernel_size, stride=None, padding=0, pad_mode='NOTSET')
RNN_Base(Layer): step_forward(x=None, h=None, c=None, Wx=None, Wh=None, Bx=None, Bh=None, b=None)
RNN(RNN_Base): init(input_size, hidden_size, num_layers=1, nonlinearity='tanh', bias=True,
    batch_first=False, dropout=0, bidirectional=False) initialize(xs, h0) forward(xs, h0)
    step_forward(x, h, Wx, Wh, b) get_params() set_params(parameters)
LSTM(RNN_Base): init(input_size, hidden_size, nonlinearity='tanh', num_layers=1, bias=True,
    batch_first=False, dropout=0, bidirectional=False) initialize(xs, h0_c0) forward(xs, h0_c0)
    step_forward(x, h, c) get_params() set_params(parameters)
ReLU(Layer): init() forward(x)
Sigmoid(Layer): init() forward(x)
Add(Layer): init() forward(a, b)
Flatten(Layer): init(axis=1) forward(x)
SoftMaxCrossEntropy(Layer): init() forward(x, t)
SoftMax(Layer): init() forward(x)
MeanSquareError(Layer): init() forward(x, t)
CrossEntropy(Layer): init() forward(x, t)
BinaryCrossEntropy(Layer): init() forward(x, t)
Dropout(Layer): init(ratio=0.5) forward(x)
Cat(Layer): init(axis=0) forward(xs)
Reshape(Layer): init() forward(x, shape)
CudnnRNN(Layer): init(hidden_size, activation='tanh', num_layers=1, bias=True, batch_first=True,
    dropout=0, bidirectional=False, rnn_mode='lstm', use_mask=False, return_sequences=True)
    initialize(x, hx=None, cx=None, seq_lengths=None) forward(x, hx=None, cx=None,
    seq_lengths=None) get_params() set_params(parameters)
"""
MODEL = """
ModelMeta(LayerMeta): buffer_operation(func)
Model(Layer): init() compile(inputs, is_train=True, use_graph=False, sequential=False)
    forward(*input) train_one_batch(*input, **kwargs) train(mode=True) eval() graph(mode=True,
    sequential=False) save_states(fpath, aux_states=None) load_states(fpath)
"""
OPT = """
DecayScheduler(): init(init_value) call(step)
Constant(DecayScheduler): call(step)
ExponentialDecay(DecayScheduler): init(init_value, decay_steps, decay_rate, staircase=False)
    call(step)
Optimizer(object): init(lr, dtype=float32) get_states() set_states(states) call(loss)
    step() apply(param_name, param_value, param_grad) update(param, grad) device_check(*inputs)
    backward_and_update(loss)
SGD(Optimizer): init(lr=0.1, momentum=0, dampening=0, weight_decay=0, nesterov=False,
    dtype=float32) apply(param_name, param_value, param_grad) step() get_states()
    set_states(states)
RMSProp(Optimizer): init(lr=0.1, rho=0.9, epsilon=1e-08, weight_decay=0) apply(param_name,
    param_value, param_grad) step() get_states() set_states(states)
AdaGrad(Optimizer): init(lr=0.1, epsilon=1e-08, weight_decay=0) apply(param_name, param_value,
    param_grad) step() get_states() set_states(states)
Adam(Optimizer): init(lr=0.1, beta_1=0.9, beta_2=0.999, epsilon=1e-08, weight_decay=0)
    apply(param_name, param_value, param_grad) step() get_states() set_states(states)
DistOpt(object): init(opt=None, nccl_id=None, local_rank=None, world_size=None, buffSize=4194304)
    update(param, grad) all_reduce(tensor) fused_all_reduce(tensor, send=True)
    all_reduce_half(tensor) fused_all_reduce_half(tensor, send=True) sparsification(tensor,
    accumulation, spars, topK) fused_sparsification(tensor, accumulation, spars, topK) wait()
    backward_and_update(loss, threshold=2097152) backward_and_update_half(loss, threshold=2097152,
    clipping=False, clip_Value=100) backward_and_partial_update(loss, threshold=2097152)
    backward_and_sparse_update(loss, threshold=2097152, spars=0.05, topK=False, corr=True)
"""
INITIALIZER = """
eye(t) orthogonal(t, gain=1.0) lecun_uniform(t) glorot_normal(t) glorot_uniform(t) he_normal(t)
lecun_normal(t) he_uniform(t) gaussian(t, fan_in=0, fan_out=0) xavier(t) glorot(t) msra(t)
"""
DATA = """
ImageBatchIter(object): init(img_list_file, batch_size, image_transform, shuffle=True,
    delimiter=' ', image_folder=None, capacity=10) start() end() run()
"""
#: Attributes of the SWIG module and of its classes.
WRAP = """
Tensor VecTensor Device Platform Snapshot NcclIdHolder Communicator InitLogging
USE_CUDA USE_CUDNN USE_DNNL USE_OPENCL USE_DIST USE_PYTHON USE_JAVA
SINGA_VERSION SINGA_MAJOR_VERSION SINGA_MINOR_VERSION SINGA_PATCH_VERSION
kFloat32 kFloat16 kInt kChar kDouble kUChar kFloat64 kInt32 kInt64 kInt8 kUInt8 kBFloat16 kBool
Abs Ceil Floor Round RoundE Exp Erf Log ReLU Sigmoid Sign Sqrt Square Tanh Cos Cosh Acos Acosh Sin
Sinh Asin Asinh Tan Atan Atanh SoftPlus SoftSign SoftMax Pow Reshape Transpose ConcatOn Mult
Gaussian Uniform Bernoulli Sum SumAll SumAsFloat SumRows SumColumns Average Axpy Contiguous
DefaultTranspose SliceOn SizeOf Product PowFloat PowWithRet PowFloatWithRet PowFloatWitRet
LTFloat LEFloat GTFloat GEFloat EQFloat AddFloat SubFloat MultFloat DivFloat
Add Sub EltwiseMult Div AddFloatWithRet SubFloatWithRet EltwiseMultFloatWithRet DivFloatWithRet
MultWithRet MultWithScale AddRowWithScale AddColumnWithScale
ReLUBackward SoftMaxBackward CrossEntropyFwd SoftmaxCrossEntropyBwd
__add__ __sub__ __mul__ __div__ __lt__ __le__ __gt__ __ge__ __eq__
AddRow AddColumn SubRow SubColumn MultRow MultColumn DivRow DivColumn CopyDataToFrom
ConvHandle CudnnConvHandle PoolingHandle CudnnPoolingHandle BatchNormHandle CudnnBatchNormHandle
RnnHandle CudnnRNNHandle SetupRecorder InitCudnnConvHandles
CpuConvForward CpuConvBackwardx CpuConvBackwardW CpuConvBackwardb
GpuConvForward GpuConvBackwardx GpuConvBackwardW GpuConvBackwardb
CpuPoolingForward CpuPoolingBackward GpuPoolingForward GpuPoolingBackward
CpuBatchNormForwardTraining CpuBatchNormForwardInference CpuBatchNormBackwardx
GpuBatchNormForwardTraining GpuBatchNormForwardInference GpuBatchNormBackward
GpuRNNForwardTraining GpuRNNForwardInference GpuRNNBackwardx GpuRNNBackwardW
GpuRNNForwardTrainingEx GpuRNNForwardInferenceEx GpuRNNBackwardxEx GpuRNNBackwardWEx
"""
WRAP_TENSOR = """
shape data_type device Size MemSize nDim AsType ToDevice ToHost Clone CopyData Reshape Transpose
Repeat ResetLike L1 L2 GetHalfFloatValue CopyHalfFloatDataFromHostPtr
GetFloatValue GetIntValue SetFloatValue SetIntValue CopyFloatDataFromHostPtr CopyIntDataFromHostPtr
initailized transpose
"""
WRAP_DEVICE = """
id EnableGraph RunGraph ResetGraph Reset Sync SetVerbosity SetSkipIteration SetRandSeed host
PrintTimeProfiling graph_enabled EnableLazyAlloc
"""
WRAP_PLATFORM = """
GetDefaultDevice GetNumGPUs GetGPUIDs GetGPUMemSize DeviceQuery CreateCudaGPUs CreateCudaGPUsOn
GetNumOpenclPlatforms GetNumOpenclDevices GetDefaultOpenclDevice
"""
WRAP_CONV_HANDLE = """
bias_term batchsize pad_w pad_h stride_h stride_w kernel_h kernel_w channels num_filters group
"""
WRAP_POOLING_HANDLE = """
batchsize stride_h stride_w kernel_h kernel_w pad_h pad_w pooled_height pooled_width is_max_pooling
"""
RECORDER = """
batchsize in_channels out_channels height width kernel_h kernel_w stride_h stride_w group bias
conv_height conv_width col_height col_width imagesize
"""
