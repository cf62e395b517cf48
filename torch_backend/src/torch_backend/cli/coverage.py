"""The command `coverage`: which kernel each ATen operator runs on a device: the plugin's, a portable one, other
operators, or the CPU's.
"""

from __future__ import annotations

import html
import os
import sys

from torch_backend._coverage import KINDS, Coverage, counts, coverage

from ._output import bar, print_json

_HEADINGS = ("operator", "kind", "by", "dtypes of the plugin's own", "dtypes of portable kernels")


def add_arguments(parser) -> None:
    """Declares the command's options."""
    parser.add_argument("op", nargs="*", help="only these operators, such as add or add.Tensor")
    parser.add_argument("--kind", choices=KINDS, help="only operators of this kind")
    parser.add_argument("--list", action="store_true", help="list the operators, not only their number")
    parser.add_argument("--plugin", metavar="NAME", help="use this plugin (a name or an absolute path) instead of the active one")
    parser.add_argument("--device", type=int, metavar="INDEX", help="use this device, if several plugins are active")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")
    form.add_argument("--html", action="store_true", help="print an HTML page")


def _use(plugin: str) -> None:
    """Activates a plugin. If another one is active, starts this command again."""
    import torch_backend

    if torch_backend.is_active() and plugin not in [name for known in torch_backend.plugins() for name in (known.name, known.path)]:
        os.environ["TORCH_BACKEND"] = plugin
        os.execv(sys.executable, [sys.executable, "-P", "-m", "torch_backend", *sys.argv[1:]])
    if not torch_backend.is_active():
        torch_backend.use(plugin)


def _index(arguments) -> int:
    """Returns the index of the selected device. Raises ValueError if it does not exist."""
    import torch_backend

    plugins = torch_backend.plugins()
    last = max(plugin.first_device + plugin.device_count for plugin in plugins)
    if arguments.device is not None:
        if not 0 <= arguments.device < last:
            raise ValueError(f"invalid device {arguments.device}: expected 0 to {last - 1}")
        return arguments.device
    return next((known.first_device for known in plugins if arguments.plugin in (known.name, known.path)), 0)


def _cells(row: Coverage) -> tuple:
    return (row.op, row.kind, row.by, ", ".join(row.plugin), ", ".join(row.portable))


def _lines(total: dict):
    """Returns the numbers as text lines; those of native implementations below the total of native operators."""
    operators = max(sum(total[kind] for kind in KINDS), 1)
    for kind in KINDS:
        yield f"{total[kind]:>5}  {bar(total[kind] / operators)}  {kind}"
        if kind == "native":
            for by, about in (("plugin", "by the plugin's own operators"), ("portable", "by portable kernels"), ("memory", "without a kernel")):
                yield f"{'':5}  {total[f'native by {by}']:>5} {about}"


def _show_text(title: str, total: dict, rows, listed: bool) -> None:
    print(title)
    print("\n".join(_lines(total)))
    if not listed:
        return
    width = max((len(row.op) for row in rows), default=0)
    for row in rows:
        dtypes = "; ".join(f"{who}: {', '.join(names)}" for who, names in (("plugin", row.plugin), ("portable", row.portable)) if names)
        print(f"{row.op:<{width}}  {row.kind:<11}  {row.by}{f' ({dtypes})' if dtypes else ''}".rstrip())


def _show_markdown(title: str, total: dict, rows) -> None:
    print(f"# {title}\n\n| kind | operators |\n|---|---|")
    for kind, count in total.items():
        print(f"| {kind} | {count} |")
    print("\n| " + " | ".join(_HEADINGS) + " |\n" + "|---" * len(_HEADINGS) + "|")
    for row in rows:
        print("| `" + "` | ".join(_cells(row)[:1]) + "` | " + " | ".join(_cells(row)[1:]) + " |")


def _show_html(title: str, total: dict, rows) -> None:
    def line(cells, tag="td"):
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    print(f"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{html.escape(title)}</title></head><body>")
    print(f"<h1>{html.escape(title)}</h1>\n<table>", *(line(item) for item in total.items()), "</table>", sep="\n")
    print("<table>", line(_HEADINGS, "th"), *(line(_cells(row)) for row in rows), "</table>\n</body></html>", sep="\n")


def run(arguments) -> int:
    """Prints the numbers and, on request, the operators."""
    import torch_backend

    if arguments.plugin:
        _use(arguments.plugin)
    if not torch_backend.is_active():
        print("coverage: no plugin is active; set TORCH_BACKEND=fake, or name one with --plugin", file=sys.stderr)
        return 1
    try:
        index = _index(arguments)
        rows = coverage(*arguments.op, device=index)
    except (RuntimeError, ValueError) as error:
        print(f"coverage: {error}", file=sys.stderr)
        return 1
    if not rows:
        print(f"coverage: ATen has no operator {', '.join(arguments.op)}", file=sys.stderr)
        return 1
    total, shown = counts(rows), [row for row in rows if arguments.kind in (None, row.kind)]
    device = f"{torch_backend.device_name()}:{index}"
    title = f"Operators of ATen on {device}"
    if arguments.json:
        details = {row.op: {"by": row.by.split(", ") if row.by else [], "plugin": row.plugin, "portable": row.portable} for row in shown}
        print_json({"device": device, "counts": total, "operators": {row.op: row.kind for row in shown}, "details": details})
    elif arguments.markdown:
        _show_markdown(title, total, shown)
    elif arguments.html:
        _show_html(title, total, shown)
    else:
        _show_text(title, total, shown, bool(arguments.op or arguments.list or arguments.kind))
    return 0
