"""Windows, movement and parts."""

from __future__ import annotations

from .draw import Draw, Step, divisor, kind

# Windows.


@kind(3)
def _pooling(d: Draw) -> Step:
    F, i = d.F, d.value(4)
    kernel, stride, padding = d.one(2, 3), d.one(None, 1, 2), d.one(0, 1)
    ceil, counted, size = d.one(True, False), d.one(True, False), d.one(1, 2, (3, 2), (None, 2))
    return d.one(
        lambda net, v: F.max_pool2d(v[i], kernel, stride, padding, ceil_mode=ceil),
        lambda net, v: F.max_pool2d(v[i], 2, 1, 0, dilation=2),
        lambda net, v: F.avg_pool2d(v[i], kernel, stride, padding, ceil, counted),
        lambda net, v: F.avg_pool2d(v[i], (1, kernel), divisor_override=3),
        lambda net, v: F.adaptive_avg_pool2d(v[i], size),
        lambda net, v: F.adaptive_max_pool2d(v[i], size),
        lambda net, v: F.lp_pool2d(v[i].abs() + 0.1, 2, kernel),
        lambda net, v: F.avg_pool2d(v[i], v[i].shape[2:]).flatten(1),
    )


@kind()
def _pooling_of_rows(d: Draw) -> Step:
    F, i = d.F, d.value(3)
    kernel, padding = d.one(2, 3), d.one(0, 1)
    return d.one(
        lambda net, v: F.max_pool1d(v[i], kernel, 2, padding),
        lambda net, v: F.avg_pool1d(v[i], kernel, 1, padding),
        lambda net, v: F.adaptive_avg_pool1d(v[i], 3),
    )


@kind(2)
def _resized(d: Draw) -> Step:
    F, i = d.F, d.value(4)
    h, w = d.shape(i)[2:]
    channels = d.shape(i)[1]
    size = (d.integer(2, 10), d.integer(2, 10))
    mode = d.one("bilinear", "bicubic")
    corners, anti = d.one(True, False), d.one(True, False)
    groups = divisor(d, channels)
    steps: list[Step] = [
        lambda net, v: F.interpolate(v[i], size),
        lambda net, v: F.interpolate(v[i], scale_factor=2, mode="nearest"),
        lambda net, v: F.interpolate(v[i], size, mode=mode, align_corners=corners),
        lambda net, v: F.interpolate(v[i], scale_factor=1.5, mode=mode),
        lambda net, v: F.interpolate(v[i], size, mode=mode, antialias=anti),
        lambda net, v: F.interpolate(v[i], size, mode="nearest-exact"),
        lambda net, v: F.interpolate(v[i], size, mode="area"),
        lambda net, v: F.channel_shuffle(v[i], groups),
        lambda net, v: F.unfold(v[i], 2, padding=1, stride=2),
        lambda net, v: F.fold(F.unfold(v[i], 2), (h, w), 2),
    ]
    if channels % 4 == 0:
        steps.append(lambda net, v: F.pixel_shuffle(v[i], 2))
    if h % 2 == w % 2 == 0:
        steps.append(lambda net, v: F.pixel_unshuffle(v[i], 2))
    return d.one(*steps)


# Movement.


@kind(5)
def _moved(d: Draw) -> Step:
    t, i = d.torch, d.value(2, 3, 4)
    shape = d.shape(i)
    rank, axis = len(shape), d.axis(i, 1)
    order = [0, *d.random.sample(range(1, rank), rank - 1)]
    n, shift = shape[axis], d.integer(-3, 3)
    factor = divisor(d, n)
    return d.one(
        lambda net, v: v[i].permute(order),
        lambda net, v: v[i].permute(order).contiguous().view(shape),
        lambda net, v: v[i].transpose(1, axis),
        lambda net, v: v[i].movedim(axis, 1),
        lambda net, v: v[i].mT if rank > 2 else v[i].flip(1),
        lambda net, v: v[i].flip(axis),
        lambda net, v: v[i].roll(shift, axis),
        lambda net, v: v[i].roll(shift),
        lambda net, v: v[i].flatten(1),
        lambda net, v: v[i].reshape(v[i].shape[0], -1),
        lambda net, v: v[i].reshape(-1, *v[i].shape[-2:])[: v[i].shape[0]],
        lambda net, v: v[i].unflatten(axis, (factor, -1)).sum(axis % rank),
        lambda net, v: v[i].unsqueeze(axis).squeeze(axis),
        lambda net, v: v[i][:, None].expand(-1, 2, *[-1] * (rank - 1)).flatten(1, 2),
        lambda net, v: v[i].repeat(1, 2, *[1] * (rank - 2)),
        lambda net, v: v[i].repeat_interleave(2, axis),
        lambda net, v: v[i].tile(2),
        lambda net, v: t.rot90(v[i], 1, (-2, -1)) if rank > 2 else v[i].clone(),
        lambda net, v: v[i].swapaxes(1, -1).T.mT if rank == 2 else v[i].swapaxes(1, -1),
        lambda net, v: v[i] + t.arange(n).view(-1, *[1] * (rank - 1 - axis % rank)),
    )


@kind(4)
def _parts(d: Draw) -> Step:
    t, i = d.torch, d.value(2, 3, 4)
    axis = d.axis(i)
    n = d.shape(i)[axis]
    start = d.integer(0, n - 2)
    step, stop = d.one(1, 1, 2), d.integer(start + 1, n)
    places = t.tensor([d.integer(-n, n - 1) for _ in range(3)])
    positive = places % n
    whole = [slice(None)] * (axis % d.values[i].ndim)
    window = d.integer(1, n)
    return d.one(
        lambda net, v: v[i][(*whole, slice(start, stop, step))],
        lambda net, v: v[i][..., ::2],
        lambda net, v: v[i][..., -2:],
        lambda net, v: v[i][(*whole, None, slice(start, stop))].flatten(0, 0).sum(len(whole)),
        lambda net, v: v[i].narrow(axis, start, n - start),
        lambda net, v: v[i].select(axis, start).unsqueeze(1),
        lambda net, v: v[i][(*whole, places)],
        lambda net, v: v[i][(*whole, places.tolist())],
        lambda net, v: v[i].index_select(axis, positive),
        lambda net, v: t.cat(v[i].chunk(2, axis)[::-1], axis),
        lambda net, v: t.cat(v[i].split(2, axis)[:2], axis),
        lambda net, v: t.cat(t.tensor_split(v[i], 2, axis)[::-1], axis),
        lambda net, v: t.stack(v[i].unbind(axis)[:2], axis),
        lambda net, v: v[i].unfold(axis, window, 1).mean(-1),
        lambda net, v: v[i].gather(axis, (v[i].argsort(axis)).clamp(max=n - 1)),
        lambda net, v: t.take_along_dim(v[i], v[i].argmax(axis, keepdim=True), axis),
        lambda net, v: v[i].tril() + v[i].triu(1) * 2,
        lambda net, v: v[i].diagonal(0, 1, -1) if v[i].ndim > 2 else v[i] * 2,
        lambda net, v: t.diff(v[i], dim=axis),
        lambda net, v: t.cat([v[i], v[i].new_zeros(v[i].shape)], axis),
    )


@kind(2)
def _joined(d: Draw) -> Step:
    t, i = d.torch, d.value(2, 3, 4)
    j, axis = d.value(like=d.values[i].shape), d.axis(i, 1)
    return d.one(
        lambda net, v: t.cat([v[i], v[j]], axis),
        lambda net, v: t.stack([v[i], v[j]], 1).mean(1),
        lambda net, v: t.stack([v[i], v[j]], -1).flatten(-2),
        lambda net, v: t.hstack([v[i], v[j]]),
        lambda net, v: sum(t.broadcast_tensors(v[i], v[j])),
    )


@kind(2)
def _padded(d: Draw) -> Step:
    F, i = d.F, d.value(3, 4)
    pads = tuple(d.integer(0, 2) for _ in range(2 * (d.values[i].ndim - 2)))
    mode = d.one("reflect", "replicate", "circular")
    return d.one(
        lambda net, v: F.pad(v[i], pads),
        lambda net, v: F.pad(v[i], (1, -1), value=0.4),
        lambda net, v: F.pad(v[i], pads, mode=mode),
        lambda net, v: F.pad(v[i], (0, 0, 1, 2), value=-0.1),
    )
