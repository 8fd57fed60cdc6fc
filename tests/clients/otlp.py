"""OTLP as its own project defines it: reads a request on stdin and prints it as JSON, or writes one.

    otlp.py decode logs|traces <body      otlp.py encode logs|traces >body
"""

import sys

from google.protobuf.json_format import MessageToJson, ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = {"logs": ExportLogsServiceRequest, "traces": ExportTraceServiceRequest}


def decode(kind):
    request = KINDS[kind]()
    request.ParseFromString(sys.stdin.buffer.read())
    assert not unknown(request), "fields that the definition does not have"
    print(MessageToJson(request))


def unknown(message):
    """Whether anything of what was read is no field of the definition."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    if len(UnknownFieldSet(message)):
        return True
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        values = [value] if hasattr(value, "ListFields") else value
        if any(unknown(each) for each in values):
            return True
    return False


def encode(kind):
    text = lambda value: {"stringValue": value}  # noqa: E731
    resource = {
        "attributes": [
            {"key": "service.name", "value": text("shop")},
            {"key": "service.version", "value": text("1.2")},
        ]
    }
    scope = {"name": "shop.cart"}
    trace, span = "S/kvNXezTaajzpKdDg5HNg==", "APBnqgupArc="  # base64 of 4bf9…, 00f0…
    if kind == "logs":
        records = [
            {
                "timeUnixNano": "1763668488596202000",
                "severityNumber": 17,
                "body": text("card refused"),
                "traceId": trace,
                "spanId": span,
                "attributes": [
                    {"key": "exception.type", "value": text("ValueError")},
                    {"key": "items", "value": {"arrayValue": {"values": [{"intValue": "3"}]}}},
                ],
            },
            {"observedTimeUnixNano": "1763668488596202000", "severityNumber": 9},
        ]
        whole = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": scope, "logRecords": records}]}]}
    else:
        spans = [
            {
                "traceId": trace,
                "spanId": span,
                "parentSpanId": "AAAAAAAAAAc=",
                "name": "GET /cart",
                "startTimeUnixNano": "1763668488596202000",
                "endTimeUnixNano": "1763668488598202000",
                "status": {"code": 2, "message": "too late"},
            }
        ]
        whole = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}]}
    sys.stdout.buffer.write(ParseDict(whole, KINDS[kind]()).SerializeToString())


{"decode": decode, "encode": encode}[sys.argv[1]](sys.argv[2])
