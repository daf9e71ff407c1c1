"""Melisma's schemes on Flower's SuperNodes: a ServerApp and a ClientApp.

    [tool.flwr.app.components]
    serverapp = "melisma.flower:server"
    clientapp = "melisma.flower:client"

The ServerApp runs our orchestrator on a fleet that speaks by Flower's messages. A
ClientApp is a new process for each message, so what it does not need is not imported.
"""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

server = ServerApp()
client = ClientApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Train the job that the run's configuration describes."""
    from melisma.flower.run import run

    run(grid, context.run_config)


@client.query()
def query(message: Message, context: Context) -> Message:
    """Report what this node can do."""
    from melisma.flower import node

    return node.query(message, context)


@client.train()
def train(message: Message, context: Context) -> Message:
    """Train until the work is done or the deadline nears."""
    from melisma.flower import node

    return node.train(message, context)
