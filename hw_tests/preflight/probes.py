"""What Python is asked about the machine: programs that print one line of JSON, last."""

from __future__ import annotations

PROBES = {
    "torch": """
import json, torch
count = torch.cuda.device_count()
names = [torch.cuda.get_device_properties(n).gcnArchName for n in range(count)]
print(json.dumps({"version": torch.__version__, "hip": torch.version.hip, "gpus": names}))
""",
    "mori": """
import importlib.metadata as metadata, json
import mori.io
def version():
    for name in ("amd-mori", "mori", "amd_mori"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return None
print(json.dumps({"version": version(), "file": mori.io.__file__}))
""",
    "verbs": """
import ctypes, json
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype = ctypes.c_char_p
verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
count = ctypes.c_int(0)
listed = verbs.ibv_get_device_list(ctypes.byref(count))
names = [verbs.ibv_get_device_name(listed[n]).decode() for n in range(count.value)]
print(json.dumps({"devices": names}))
""",
    "vllm": """
import json, vllm
from vllm.platforms import current_platform
print(json.dumps({"version": vllm.__version__, "rocm": current_platform.is_rocm()}))
""",
    "connector": """
import hashlib, json, pathlib
import mori.io  # first, because it is quick to fail
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
config = KVTransferConfig(
    kv_connector="HybridReadConnector",
    kv_connector_module_path="connector",
    kv_role="kv_consumer",
)
loaded = KVConnectorFactory.get_connector_class(config)
import connector.worker  # what the class imports when vLLM makes a worker of it
folder = pathlib.Path(connector.__file__).parent
digest = hashlib.sha256()
for path in sorted(folder.rglob("*.py")):
    digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
print(json.dumps({"class": loaded.__name__, "sources": digest.hexdigest()[:12]}))
""",
}
"""By name. Each is run by the Python that asks, in a process of its own."""
