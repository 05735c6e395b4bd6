"""``mesh bench``: the measurements. They are imported when they run, since pyzmq and pynng are extras."""

from __future__ import annotations

from cyclopts import App, Parameter

app = App(
    name="bench",
    help="Measure sockets, brokers and durable subscriptions beside their peers; simulator and analysis.",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
)
app.command("mesh.bench.cli:sockets", name="sockets", help="Our sockets beside pynng's and pyzmq's.")
app.command(
    "mesh.bench.cli:broker", name="broker", help="A broker beside a ZeroMQ proxy; flooding; an idle broker."
)
app.command(
    "mesh.bench.cli:durable", name="durable", help="Level stored beside level accepted and JetStream."
)
app.command("mesh.bench.cli:analyze", name="analyze", help="The analysis beside a scan by Spark.")
app.command(
    "mesh.bench.cli:simulate", name="simulate", help="The simulator: messages a second, by the mesh's size."
)
