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
  SINGA_VENDOR_FUNCTION(File, GetVersion, ncclGetVersion);
  SINGA_VENDOR_FUNCTION(File, GetLastError, ncclGetLastError);
  SINGA_VENDOR_FUNCTION(File, GetUniqueId, ncclGetUniqueId);
  SINGA_VENDOR_FUNCTION(File, InitRank, ncclCommInitRankConfig);
  SINGA_VENDOR_FUNCTION(File, GetAsyncError, ncclCommGetAsyncError);
  SINGA_VENDOR_FUNCTION(File, Finalize, ncclCommFinalize);
  SINGA_VENDOR_FUNCTION(File, Destroy, ncclCommDestroy);
  SINGA_VENDOR_FUNCTION(File, Abort, ncclCommAbort);
  SINGA_VENDOR_FUNCTION(File, GroupStart, ncclGroupStart);
  SINGA_VENDOR_FUNCTION(File, GroupEnd, ncclGroupEnd);
  SINGA_VENDOR_FUNCTION(File, Send, ncclSend);
  SINGA_VENDOR_FUNCTION(File, Recv, ncclRecv);
  SINGA_VENDOR_FUNCTION(File, AllGather, ncclAllGather);
  SINGA_VENDOR_FUNCTION(File, Broadcast, ncclBroadcast);
  SINGA_VENDOR_FUNCTION(File, AllReduce, ncclAllReduce);
  SINGA_VENDOR_FUNCTION(File, CreatePreMulSum, ncclRedOpCreatePreMulSum);
  SINGA_VENDOR_FUNCTION(File, DestroyOp, ncclRedOpDestroy);
};

const Functions& Nccl() {
  static const Functions functions;
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
