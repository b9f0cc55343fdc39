# Pasted into singa_wrap: SINGA's names for communication between processes, and the rank that a
# process has by its environment.

import atexit as _atexit
import sys as _sys
import threading as _threading

USE_DIST = True


class NcclIdHolder:
    """Identifies a group of processes on this machine. It pickles, so that `multiprocessing` can
    hand it to each of them."""

    def __init__(self, id=None):
        self.id = _os.urandom(12).hex() if id is None else str(id)

    def __eq__(self, other):
        return isinstance(other, NcclIdHolder) and self.id == other.id

    def __hash__(self):
        return hash(self.id)

    def __repr__(self):
        return f"NcclIdHolder({self.id!r})"


def _of_environment(name):
    return int(EnvironmentValue(name, "Communicator"))


# What the launchers of MPICH and Intel, and of Open MPI and Slurm, set in each rank.
_MPI_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def _mpi_libraries():
    """File names of MPI libraries, those of the present launcher's kind first: as the system finds
    them, in Python's environment, and beside mpiexec."""
    kinds = ["libmpi.so.12", "libmpi_abi.so.1", "libmpi.so.40"]
    if "PMI_RANK" not in _os.environ or "OMPI_COMM_WORLD_RANK" in _os.environ:
        kinds.reverse()
    folders = [_os.path.join(_sys.prefix, "lib")]
    for folder in _os.get_exec_path():
        if _os.path.exists(_os.path.join(folder, "mpiexec")):
            folders.append(_os.path.join(_os.path.dirname(folder.rstrip("/")), "lib"))
    return [_os.path.join(folder, kind) for kind in kinds for folder in (*folders, "")]


def _joined_by_mpi(timeout):
    joined = Communicator._join_mpi(_mpi_libraries(), timeout)
    _atexit.register(_leave_mpi, joined)
    return joined


def _leave_mpi(joined):
    """At the end of the program. If a rank is stopped then, this one ends with status 1."""
    try:
        Communicator._leave_mpi(joined)
    except RuntimeError as error:
        _sys.stdout.flush()
        print(f"RuntimeError: {error}", file=_sys.stderr, flush=True)
        _os._exit(1)


def _joined_by_environment():
    from singa.launcher import secret
    from singa.launcher.environment import completed, environment

    place = completed(environment())
    if place.meeting:
        known = secret.find(place)
        try:
            joined = Communicator._join_at(
                place.meeting, place.job, place.rank, place.world_size, place.timeout, known
            )
        finally:
            secret.forget()
    elif not place.job and (
        any([name in _os.environ for name in _MPI_RANKS]) or "mpi4py.MPI" in _sys.modules
    ):
        joined = _joined_by_mpi(place.timeout)
    elif place.world_size > 1 and not place.job:
        raise ValueError(
            f"[Communicator] this is rank {place.rank} of {place.world_size} of {place.source}, "
            "and does not know where the others are. Set SINGA_MEETING to host:port of rank 0's "
            "machine for all ranks (MASTER_ADDR and MASTER_PORT do the same beside RANK), or start "
            "them by mpiexec or `python -m singa launch`"
        )
    else:
        joined = Communicator.Join(place.job, place.rank, place.world_size, place.timeout)
    _share_cores(joined)
    return joined


def _share_cores(joined):
    """Ranks of one machine that nobody has given cores or a number of threads share its cores."""
    from singa.launcher import cores

    every = cores.available()
    bound = len(every) != _os.cpu_count()
    if joined.local_size > 1 and not bound and "OMP_NUM_THREADS" not in _os.environ:
        own = cores.split(every, joined.local_size)[joined.local_rank]
        most = cores.threads(own, joined.local_size, cores.quota())
        SetNumThreads(min(NumThreads(), most))


_default = None
_default_lock = _threading.Lock()


def default_communicator():
    """The communicator of this process, made at the first call: the rank that the variables of its
    launcher describe (`singa.distributed.environment`), else that of the MPI job of which the
    process is part, else one process alone."""
    global _default
    with _default_lock:
        if _default is None or _default[0] != _os.getpid():
            _default = _os.getpid(), _joined_by_environment()
        return _default[1]


def _init(self, *args):
    """Communicator(local_rank, world_size, nccl_id, buffSize) joins the processes on this machine
    that have the same NcclIdHolder. Communicator(buffSize) and Communicator() are
    default_communicator(). Buffers have a size of their own, so buffSize is ignored."""
    if len(args) < 2:
        made = default_communicator()
    else:
        local_rank, world_size, holder = (*args, None)[:3]
        if not isinstance(holder, NcclIdHolder):
            raise TypeError(f"[Communicator] nccl_id must be an NcclIdHolder, got {holder!r:.60}")
        made = Communicator.Join(
            holder.id, local_rank, world_size, _of_environment("SINGA_TIMEOUT")
        )
    self.this = made.this


def _raw_list(function, tensors):
    found = list(tensors)
    for t in found:
        if not isinstance(t, Tensor):
            raise TypeError(f"[{function}] expected Tensors, got {type(t).__name__}")
    return found


def _synch(self, t):
    """Replaces t by its sum over the ranks."""
    self.all_reduce(_raw_list("synch", [t]))


def _fused_synch(self, tensors, send=True):
    """Replaces the tensors by their sums over the ranks. `send=False`, SINGA's way to fill a buffer
    before, does nothing."""
    found = _raw_list("fusedSynch", tensors)
    if send and found:
        self.all_reduce(found)


def _synch_half(self, t):
    """As synch, with float16 between the ranks and float32 sums of these."""
    self.fusedSynchHalf([t])


def _fused_synch_half(self, tensors, send=True):
    """As fusedSynch, with float16 between the ranks and float32 sums of these."""
    found = _raw_list("fusedSynchHalf", tensors)
    if send and found:
        half = [t.AsType(kFloat16) for t in found]
        self.all_reduce(half)
        for t, h in zip(found, half, strict=True):
            t.CopyData(h)


def _positions_of_largest(values, spars, topk):
    """Positions of the elements that are sent, in their order. NaN is, too: it must reach the
    others."""
    size = _numpy.abs(values)
    if not topk:
        return _numpy.flatnonzero(~(size < spars))
    count = min(len(values), _math.ceil(spars * len(values)))
    _, positions = TopK(from_buffer(size, True), count)
    return _numpy.sort(_numpy.array(Exporter(positions)))


def _sum_of_largest(self, tensors, residuals, spars, topK):
    """The sums over the ranks of the largest elements of the tensors: those of an absolute value of
    at least `spars`, or with `topK` the fraction `spars` of the elements of all tensors together.
    `residuals`, of as many elements each, are added before and get what was not sent; None: nothing
    is kept. 8 bytes of each element that is sent go to the other ranks."""
    found = _raw_list("sparsification", tensors)
    values = _joined(found)
    kept = None
    if residuals is not None:
        kept = _raw_list("sparsification", residuals)
        values += _joined(kept)
    chosen = _positions_of_largest(values, spars, topK)
    counts = _gathered(self, _numpy.array([len(chosen)], "int64")).reshape(-1)
    message = _numpy.zeros((2, int(counts.max())), "int32")
    message[0, : len(chosen)] = chosen.astype("uint32").view("int32")
    message[1, : len(chosen)] = values[chosen].view("int32")
    total = _numpy.zeros(len(values), "float32")
    for count, (positions, sent) in zip(counts, _gathered(self, message), strict=True):
        total[positions[:count].view("uint32")] += sent[:count].view("float32")
    if kept is not None:
        values[chosen] = 0
        for residual, part in zip(kept, _split_like(kept, values), strict=True):
            residual.CopyFloatDataFromHostPtr(part)
    sums = [Tensor(t.shape(), t.device(), t.data_type()) for t in found]
    for summed, part in zip(sums, _split_like(found, total), strict=True):
        summed.CopyFloatDataFromHostPtr(part)
    return sums


def _joined(tensors):
    """The elements of all tensors, one after the other, as float32."""
    return _numpy.concatenate([_values(t, kFloat32) for t in tensors])


def _split_like(tensors, values):
    """Parts of `values`, of as many elements as each tensor has."""
    return _numpy.split(values, _numpy.cumsum([t.size() for t in tensors])[:-1])


def _gathered(communicator, array):
    return _numpy.array(Exporter(communicator.all_gather(from_buffer(array, True))))


def _fused_sparsification(self, tensors, accumulation, spars, topK):
    """Replaces the tensors by the sums of their largest elements; see sum_of_largest.
    `accumulation` holds the residuals of all of them, one after the other, or is None."""
    found = _raw_list("fusedSparsification", tensors)
    residuals = None
    if accumulation is not None:
        needed = sum([t.size() for t in found])
        if accumulation.size() != needed:
            raise ValueError(
                f"[fusedSparsification] accumulation must have {needed} elements, got "
                f"{accumulation.size()}"
            )
        flat, residuals, first = accumulation.Reshape((-1,)), [], 0
        for t in found:
            residuals.append(flat.SliceAxis(0, first, first + t.size()))
            first += t.size()
    for t, total in zip(found, self.sum_of_largest(found, residuals, spars, topK), strict=True):
        t.CopyData(total)


def _sparsification(self, t, accumulation, spars, topK):
    """As fusedSparsification, for one tensor."""
    self.fusedSparsification([t], accumulation, spars, topK)


def _wait(self):
    """Returns when everything that was started has ended. The methods above wait by themselves."""
    self.drain()


Communicator.__init__ = _init
Communicator.synch = _synch
Communicator.fusedSynch = _fused_synch
Communicator.synchHalf = _synch_half
Communicator.fusedSynchHalf = _fused_synch_half
Communicator.sum_of_largest = _sum_of_largest
Communicator.sparsification = _sparsification
Communicator.fusedSparsification = _fused_sparsification
Communicator.wait = _wait
