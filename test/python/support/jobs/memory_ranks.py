"""Runs a function as several ranks, which are joined by the reference communicator."""

import multiprocessing
import os
import secrets
import traceback

from rank_memory import MemoryCommunicator
from singa import distributed, set_num_threads


def on_ranks(world_size, function, *arguments):
    """[function(communicator, *arguments) of each rank]. The communicator is `distributed`'s, too.

    Raises RuntimeError with the tracebacks if one raised an exception.
    """
    context = multiprocessing.get_context("fork")
    job = f"test-{os.getpid()}-{secrets.token_hex(4)}"
    pipes, processes = [], []
    for rank in range(world_size):
        read, write = context.Pipe(duplex=False)
        process = context.Process(
            target=_rank, args=(write, job, rank, world_size, function, arguments)
        )
        process.start()
        write.close()
        pipes.append(read)
        processes.append(process)
    results, errors = [], []
    for rank, read in enumerate(pipes):
        try:
            error, result = read.recv()
        except EOFError:
            error, result = "it ended without a result", None
        results.append(result)
        errors += [f"rank {rank}: {error}"] if error else []
    for process in processes:
        process.join()
    if errors:
        raise RuntimeError("\n".join(errors))
    return results


def _rank(pipe, job, rank, world_size, function, arguments):
    communicator = None
    try:
        set_num_threads(1)
        communicator = MemoryCommunicator(job, rank, world_size, timeout=20)
        distributed.use(communicator)
        pipe.send((None, function(communicator, *arguments)))
    except BaseException:
        error = traceback.format_exc()
        if communicator is not None:
            communicator.abort(error.splitlines()[-1])
        pipe.send((error, None))
    os._exit(0)
