"""Log calls from Python over gRPC.

    pip install grpcio grpcio-tools
    LOGKIT_GRPC=127.0.0.1:50051 python3 grpc_client.py

The stubs are made when the program starts; `logkit.proto` is crates/logkit-proto/proto/logkit.proto.
"""

import os
import sys
from pathlib import Path

import grpc

PROTO = os.environ.get("LOGKIT_PROTO", str(Path(__file__).parents[2] / "crates/logkit-proto/proto"))
sys.path.append(PROTO)
pb, rpc = grpc.protos_and_services("logkit.proto")

ADDRESS = os.environ.get("LOGKIT_GRPC", "127.0.0.1:50051")
KEY = os.environ.get("LOGKIT_API_KEY", "")
METADATA = [("authorization", f"Bearer {KEY}")] if KEY else []


def requests():
    for n in range(5):
        yield pb.LogRequest(cmd=f"stream {n}", language="python", env="example")


with grpc.insecure_channel(ADDRESS) as channel:
    logger = rpc.LogkitLoggerStub(channel)
    reply = logger.LogCall(
        pb.LogRequest(cmd="backup", args=["/home", "a, b"], language="python", env="example",
                      duration_ms=12.5, output="done", extra={"host": "here"}),
        metadata=METADATA, timeout=10)
    print("row", reply.id, "at", reply.timestamp)
    for reply in logger.StreamLog(requests(), metadata=METADATA, timeout=10):
        assert reply.stored
    found = logger.QueryLogs(
        pb.QueryRequest(function="backup", env="example", limit=1), metadata=METADATA, timeout=10)
    entry = found.entries[0]
    print(entry.cmd, list(entry.args), entry.output, dict(entry.extra))
