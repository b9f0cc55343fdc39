// Communication between processes.

%ignore singa::Communicator::impl;
%rename(all_reduce) singa::Communicator::AllReduce;
%rename(all_gather) singa::Communicator::AllGather;
%rename(broadcast) singa::Communicator::Broadcast;
%rename(barrier) singa::Communicator::Barrier;
%rename(check) singa::Communicator::CheckEqual;
%rename(set_context) singa::Communicator::SetContext;
%rename(abort) singa::Communicator::Abort;
%rename(drain) singa::Communicator::Drain;
%rename(refusals_differ) singa::Communicator::RefusalsDiffer;
%rename(waits) singa::Communicator::Waits;
SINGA_TUPLE_OF(singa::CollectiveWait)
%rename(_join_mpi) singa::Communicator::JoinMpi;
%rename(_join_at) singa::Communicator::JoinAt;
%rename(_leave_mpi) singa::Communicator::LeaveMpi;
%nodefaultctor singa::Communicator;

%immutable;
%include "singa/distributed/communicator.h"
%mutable;

%pythoncode "singa_distributed.py"
