"""The Open Inference Protocol (KServe v2) over HTTP and gRPC, in front of a live cluster.

Messages are translated without any I/O (`tensors`, `http_form`, `grpc_form`, `messages`, `errors`,
`statistics`); `http_server` and `grpc_server` carry the bytes.
"""
