"""Programs of Table 2.1: a service that greets, and who calls it, by each framework."""

from dataclasses import dataclass, field

#: Where services listen; another port is put in its place when they are run.
PORT = 50051


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A service and its client."""

    service: str
    client: str
    interface: str = ""  #: written in a language of its own
    #: Modules that are made of it by a compiler, by file name.
    compiled: dict[str, str] = field(default_factory=dict)


GRPC = Program(
    interface="""
syntax = "proto3";

message Text {
  string text = 1;
}

service Greeter {
  rpc simple_hello (Text) returns (Text) {}
}
""",
    # What `python -m grpc_tools.protoc` makes of that, without its compiler.
    compiled={
        "greeter_pb2.py": """
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

file = descriptor_pb2.FileDescriptorProto(name="greeter.proto", syntax="proto3")
message = file.message_type.add(name="Text")
message.field.add(name="text", number=1, type=9, label=1)
pool = descriptor_pool.DescriptorPool()
pool.Add(file)
Text = message_factory.GetMessageClass(pool.FindMessageTypeByName("Text"))
""",
        "greeter_pb2_grpc.py": """
import grpc
from greeter_pb2 import Text


class GreeterServicer:
    pass


class GreeterStub:
    def __init__(self, channel):
        self.simple_hello = channel.unary_unary(
            "/Greeter/simple_hello", Text.SerializeToString, Text.FromString
        )


def add_GreeterServicer_to_server(servicer, server):
    handler = grpc.unary_unary_rpc_method_handler(
        servicer.simple_hello, Text.FromString, Text.SerializeToString
    )
    handlers = {"simple_hello": handler}
    made = grpc.method_handlers_generic_handler("Greeter", handlers)
    server.add_generic_rpc_handlers((made,))
""",
    },
    service=f"""
from concurrent import futures

import greeter_pb2
import greeter_pb2_grpc
import grpc


class Greeter(greeter_pb2_grpc.GreeterServicer):
    def simple_hello(self, request, context):
        greeting = f"Hello {{request.text}}!!"
        print(greeting)
        return greeter_pb2.Text(text=greeting)


def serve():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=10))
    greeter_pb2_grpc.add_GreeterServicer_to_server(Greeter(), server)
    server.add_insecure_port("127.0.0.1:{PORT}")
    server.start()
    server.wait_for_termination()


serve()
""",
    client=f"""
import greeter_pb2
import greeter_pb2_grpc
import grpc

with grpc.insecure_channel("127.0.0.1:{PORT}") as channel:
    stub = greeter_pb2_grpc.GreeterStub(channel)
    request = greeter_pb2.Text(text="John")
    greeting = stub.simple_hello(request)
    print(greeting.text)
""",
)

AXON = Program(
    service="""
from melisma.rpc import axon


@axon.worker.rpc()
def simple_hello(name):
    greeting = f"Hello {name}!!"
    print(greeting)
    return greeting


axon.worker.init()
""",
    client="""
from melisma.rpc import axon

stub = axon.client.SyncSimplexStub(worker_ip="127.0.0.1", rpc_name="simple_hello")
print(stub("John"))
""",
)

OURS = Program(
    service=f"""
from melisma import rpc


@rpc.expose
def simple_hello(name):
    greeting = f"Hello {{name}}!!"
    print(greeting)
    return greeting


rpc.serve(port={PORT}).wait()
""",
    client=f"""
from melisma import rpc

device = rpc.connect("127.0.0.1:{PORT}")
print(device.simple_hello("John"))
""",
)

PROGRAMS = {"gRPC": GRPC, "Axon": AXON, "melisma.rpc": OURS}

#: Asks a device by its address.
WHO = OURS.client
#: Ways of ours to wait for an answer.
CLIENTS = {
    "at once": OURS.client,
    "joined": f"""
from melisma import rpc

call = rpc.connect("127.0.0.1:{PORT}").simple_hello.submit("John")
print(call.join())
""",
    "awaited": f"""
import asyncio

from melisma import rpc


async def main():
    async with await rpc.aconnect("127.0.0.1:{PORT}") as device:
        print(await device.simple_hello("John"))


asyncio.run(main())
""",
}
