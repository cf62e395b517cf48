"""The command `smi`: measurements of the devices, and the processes that use them."""

from __future__ import annotations

from ._output import print_json


def collect() -> list:
    """Reads every sensor of every device; starts none of them."""
    import torch

    import torch_backend
    from torch_backend import _C

    if not torch_backend.is_active():
        return []
    kind, result = torch_backend.device_name(), []
    module = torch.get_device_module(kind)
    for index in range(module.device_count()):
        properties = module.get_device_properties(index)
        row = {"device": f"{kind}:{index}", "name": properties.name, "total_memory": properties.total_memory, "sensors": {}, "processes": None,
               "problems": []}  # fmt: skip
        for number, name, unit in _C.sensors():
            value = _ask(row, lambda: _C.device_sensor(index, number))  # noqa: B023
            if value is not None:
                row["sensors"][name] = {"value": value, "unit": unit}
        processes = _ask(row, lambda: _C.device_processes(index))  # noqa: B023
        if processes is not None:
            row["processes"] = [{"pid": process, "memory_used": used} for process, used in processes]
        result.append(row)
    return result


def _ask(row: dict, question):
    """Returns a measurement, or None if the device does not measure it. An error is added to the problems of the row
    once.
    """
    try:
        return question()
    except NotImplementedError:
        return None
    except RuntimeError as error:
        problem = str(error).splitlines()[0]
        if problem not in row["problems"]:
            row["problems"].append(problem)
        return None


def _size(count: int) -> str:
    return f"{count / (1 << 20):.0f} MiB"


# Columns: heading, sensors, and the text of their values in the sensors' units; "-" if the device does not measure it.
_COLUMNS = (
    ("load", ("utilization",), lambda load: f"{load} %"),
    ("memory load", ("memory_utilization",), lambda load: f"{load} %"),
    ("temperature", ("temperature",), lambda heat: f"{heat / 1000:.0f} C"),
    ("power", ("power",), lambda power: f"{power / 1000:.0f} W"),
    ("limit", ("power_limit",), lambda power: f"{power / 1000:.0f} W"),
    ("clock", ("clock",), lambda clock: f"{clock} MHz"),
    ("memory clock", ("memory_clock",), lambda clock: f"{clock} MHz"),
    ("fan", ("fan",), lambda speed: f"{speed} %"),
)


def _cells(row: dict) -> list:
    known = {name: sensor["value"] for name, sensor in row["sensors"].items()}
    used = _size(known["memory_used"]) if "memory_used" in known else "?"
    memory = f"{used} of {_size(row['total_memory'])}" if row["total_memory"] else used
    measured = [show(*(known[name] for name in names)) if all(name in known for name in names) else "-" for _, names, show in _COLUMNS]
    return [row["device"], row["name"], memory, *measured]


def show(rows: list) -> None:
    """Prints the result of `collect` as text."""
    table = [["device", "name", "memory", *(heading for heading, _, _ in _COLUMNS)], *map(_cells, rows)]
    # no column for a sensor that no device has
    shown = [column for column in zip(*table) if column[1:] != ("-",) * len(rows)]
    widths = [max(map(len, column)) for column in shown]
    for line in zip(*shown):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    for row in rows:
        for process in row["processes"] or ():
            used = "an unknown amount" if process["memory_used"] is None else _size(process["memory_used"])
            print(f"{row['device']}: process {process['pid']} has {used} of its memory")
        for problem in row["problems"]:
            print(f"{row['device']}: {problem}")


def add_arguments(parser) -> None:
    """Declares the command's options."""
    parser.add_argument("--json", action="store_true", help="print JSON, with the unit of each number")


def run(arguments) -> int:
    """Prints the devices' state. Returns 1 if there is no device, or if reading a sensor fails."""
    rows = collect()
    if arguments.json:
        print_json(rows)
    elif rows:
        show(rows)
    else:
        print("No plugin is active, or it has no device. Set TORCH_BACKEND=fake; run `torch-backend doctor` for details.")
    return 0 if rows and not any(row["problems"] for row in rows) else 1
