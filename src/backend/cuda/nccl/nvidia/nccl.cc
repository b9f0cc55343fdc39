#include <nccl.h>

#include <cstring>

#include "backend/cuda/cudnn/nvidia/vendor.h"
#include "backend/cuda/nccl/library.h"
#include "singa/core/error.h"

namespace singa::nccl {
namespace {

static_assert(sizeof(Id) == sizeof(ncclUniqueId));

const cudnn::VendorLibrary& File() {
  static const auto& library =
      *new cudnn::VendorLibrary("libnccl.so.2", "nvidia/nccl/lib", "nvidia-nccl-cu13");
  return library;
}

struct Functions {
  decltype(ncclGetVersion)* GetVersion;
  decltype(ncclGetLastError)* GetLastError;
  decltype(ncclGetUniqueId)* GetUniqueId;
  decltype(ncclCommInitRankConfig)* InitRank;
  decltype(ncclCommGetAsyncError)* GetAsyncError;
  decltype(ncclCommFinalize)* Finalize;
  decltype(ncclCommDestroy)* Destroy;
  decltype(ncclCommAbort)* Abort;
  decltype(ncclGroupStart)* GroupStart;
  decltype(ncclGroupEnd)* GroupEnd;
  decltype(ncclSend)* Send;
  decltype(ncclRecv)* Recv;
  decltype(ncclAllGather)* AllGather;
  decltype(ncclBroadcast)* Broadcast;
  decltype(ncclAllReduce)* AllReduce;
  decltype(ncclRedOpCreatePreMulSum)* CreatePreMulSum;
  decltype(ncclRedOpDestroy)* DestroyOp;
};

const Functions& Nccl() {
  static const Functions functions = [] {
    Functions f{};
    File().Load(f.GetVersion, "ncclGetVersion");
    File().Load(f.GetLastError, "ncclGetLastError");
    File().Load(f.GetUniqueId, "ncclGetUniqueId");
    File().Load(f.InitRank, "ncclCommInitRankConfig");
    File().Load(f.GetAsyncError, "ncclCommGetAsyncError");
    File().Load(f.Finalize, "ncclCommFinalize");
    File().Load(f.Destroy, "ncclCommDestroy");
    File().Load(f.Abort, "ncclCommAbort");
    File().Load(f.GroupStart, "ncclGroupStart");
    File().Load(f.GroupEnd, "ncclGroupEnd");
    File().Load(f.Send, "ncclSend");
    File().Load(f.Recv, "ncclRecv");
    File().Load(f.AllGather, "ncclAllGather");
    File().Load(f.Broadcast, "ncclBroadcast");
    File().Load(f.AllReduce, "ncclAllReduce");
    File().Load(f.CreatePreMulSum, "ncclRedOpCreatePreMulSum");
    File().Load(f.DestroyOp, "ncclRedOpDestroy");
    return f;
  }();
  return functions;
}

Result ResultOf(ncclResult_t result) {
  if (result == ncclSuccess) return Result::kSuccess;
  return result == ncclInProgress ? Result::kInProgress : Result::kFailed;
}

class VendorNccl final : public Library {
 public:
  std::string Problem() override { return File().problem(); }
  std::string Version() override {
    int version = 0;
    if (Nccl().GetVersion(&version) != ncclSuccess) return "NCCL";
    return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
           "." + std::to_string(version % 100);
  }
  std::string LastError(Comm comm) override {
    const char* text = Nccl().GetLastError(comm);
    return text && *text ? text : "no reason is known; NCCL_DEBUG=WARN may print one";
  }

  Result GetUniqueId(Id* id) override {
    ncclUniqueId made;
    const ncclResult_t result = Nccl().GetUniqueId(&made);
    std::memcpy(id->data(), made.internal, id->size());
    return ResultOf(result);
  }
  Result InitRank(Comm* comm, int world_size, const Id& id, int rank) override {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclUniqueId handed;
    std::memcpy(handed.internal, id.data(), id.size());
    return ResultOf(Nccl().InitRank(comm, world_size, handed, rank, &config));
  }
  Result GetAsyncError(Comm comm, Result* state) override {
    ncclResult_t found = ncclSuccess;
    const ncclResult_t result = Nccl().GetAsyncError(comm, &found);
    *state = ResultOf(found);
    return ResultOf(result);
  }
  Result Finalize(Comm comm) override { return ResultOf(Nccl().Finalize(comm)); }
  Result Destroy(Comm comm) override { return ResultOf(Nccl().Destroy(comm)); }
  Result Abort(Comm comm) override { return ResultOf(Nccl().Abort(comm)); }

  Result GroupStart() override { return ResultOf(Nccl().GroupStart()); }
  Result GroupEnd() override { return ResultOf(Nccl().GroupEnd()); }
  Result Send(const void* data, size_t bytes, int rank, Comm comm, Stream stream) override {
    return ResultOf(Nccl().Send(data, bytes, ncclUint8, rank, comm, stream));
  }
  Result Receive(void* data, size_t bytes, int rank, Comm comm, Stream stream) override {
    return ResultOf(Nccl().Recv(data, bytes, ncclUint8, rank, comm, stream));
  }
  Result AllGather(const void* own, void* all, size_t bytes, Comm comm, Stream stream) override {
    return ResultOf(Nccl().AllGather(own, all, bytes, ncclUint8, comm, stream));
  }
  Result Broadcast(void* data, size_t bytes, int root, Comm comm, Stream stream) override {
    return ResultOf(Nccl().Broadcast(data, data, bytes, ncclUint8, root, comm, stream));
  }
  Result AllReduce(void* data, size_t count, DType dtype, double factor, Comm comm,
                   Stream stream) override {
    const auto reduce = [&](ncclDataType_t type, ncclRedOp_t op) {
      return ResultOf(Nccl().AllReduce(data, data, count, type, op, comm, stream));
    };
    if (dtype == kInt32) return reduce(ncclInt32, ncclSum);
    if (dtype == kInt64) return reduce(ncclInt64, ncclSum);
    float narrow = static_cast<float>(factor);
    const bool wide = dtype == kFloat64;
    const ncclDataType_t type = wide ? ncclFloat64 : ncclFloat32;
    ncclRedOp_t op{};
    if (Nccl().CreatePreMulSum(&op, wide ? static_cast<void*>(&factor) : &narrow, type,
                               ncclScalarHostImmediate, comm) != ncclSuccess)
      return Result::kFailed;
    const Result result = reduce(type, op);
    return Nccl().DestroyOp(op, comm) == ncclSuccess ? result : Result::kFailed;
  }
};

}  // namespace

Library& TheLibrary() {
  static auto& library = *new VendorNccl;
  return library;
}

}  // namespace singa::nccl
