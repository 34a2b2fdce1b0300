"""Two tasks word for word as a project may state them: what the families were modelled on."""

from __future__ import annotations

from .task import FileTask, file_equals

_ORDERS = "id,customer,status,amount\n1,ana,paid,30\n2,bo,unpaid,15\n3,cy,paid,12\n4,dee,refunded,40\n"

KNOWN_TASKS = {
    "port": FileTask(
        instruction="In app.conf, change the port to 9090. Leave the other settings exactly as they are.",
        files={"app.conf": "name=shop\nport=8080\ndebug=true\n"},
        check=file_equals("app.conf", "name=shop\nport=9090\ndebug=true"),
        right=(),
        traps=(),
        final="",
        family="port",
    ),
    "paid_orders": FileTask(
        instruction="orders.csv lists orders, one per line after its header. "
        "Write to paid.txt how many orders have the status paid.",
        files={"orders.csv": _ORDERS + "5,ed,unpaid,8\n6,flo,paid,25\n"},
        check="[ \"$(tr -d ' \\n' < paid.txt)\" = 3 ]",
        right=(),
        traps=(),
        final="",
        family="paid_orders",
    ),
}
