"""The Open Inference Protocol (KServe v2) over HTTP and gRPC, in front of a live cluster.

Messages are translated without any I/O (`tensors`, `infer_request`, `described`, `errors`, and the
module `form` of both folders); `over_http` and `over_grpc` carry the bytes.
"""
