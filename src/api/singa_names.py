# Takes out of the module's names what is no interface: classes of results, which functions make,
# and SWIG's own. Part of the module singa_wrap.

for _name in (
    *("CollectiveWait", "EnvironmentVariable", "ExplainedOp", "GpuProperties", "GraphMemory"),
    *("MemoryStats", "OpcheckKernelStats", "OpcheckOpStats", "PlanCacheOpStats", "PlanCacheStats"),
    *("ProfileRecord", "RefusedPlan", "ReorderRecord", "SHARED_PTR_DISOWN"),
):
    del globals()[_name]

del _name
